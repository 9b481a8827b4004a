#!/bin/sh
# mutations.sh [edits]: deliberate reorderings and slips. Each is one edit to a copy of the tree; the named test must
# then fail. An edit that changes nothing, or does not compile, is a failure of this script: keep the patterns in step
# with the source (`edits` checks only that each of them still changes something). Programs are built into a temporary
# folder, test_bits at -O0, where compiling costs more than running, with its quick sizes.
only_edits=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
export OMP_WAIT_POLICY=passive
. "$here/runs_check.sh"
native=-march=native
[ "$(uname -m)" = x86_64 ] || native=-mcpu=native
tree=$work/tree
mkdir "$tree" && cd "$root" && cp -r Makefile *.cuh train_gpt.cu layers runtime data test "$tree" || exit 2

program() {  # NAME: builds and runs test_NAME of the tree, into the file `result`
  [ -z "$only_edits" ] || return 1
  level=-O1
  [ "$1" = bits ] && level=-O0
  make -C "$tree" OUT="$PWD/build" ARCH=native "FLAGS_native=$native $level" "$PWD/build/test_$1" >make.log 2>&1 || {
    echo "test_$1 does not compile:" && grep -m 5 error make.log
    return 2
  }
  how=
  [ "$1" = bits ] && how=quick
  (cd "$tree" && "$OLDPWD/build/test_$1" $how) >result 2>&1
}

# slip WHAT PROGRAM TEST FILE EDIT: after the sed EDIT of FILE, a test of PROGRAM whose name begins with TEST must fail
slip() {
  what=$1 target=$2 expected=$3 file=$4 edit=$5
  check "$what -> $target: $expected" '
    cp "$tree/$file" original && sed -e "$edit" original >"$tree/$file"
    if cmp -s original "$tree/$file"; then echo "the edit changes nothing in $file: $edit"; code=2
    else program $target; code=$?; fi
    cp original "$tree/$file"
    [ -n "$only_edits" ] && [ $code -eq 1 ] && exit 0
    [ $code -eq 1 ] && grep -F -e "  FAIL $expected" result >/dev/null && exit 0
    [ $code -eq 2 ] || { echo "test_$target ended with code $code:" && grep -v "^  ok" result | tail -n 5; }
    exit 1'
}

[ -n "$only_edits" ] || for name in bits exact layers model; do
  check "test_$name passes as it is" "program $name || { tail -n 5 result; exit 1; }"
done

# ---- the definition
slip "a product contracted differently" bits swiglu_forward layers/swiglu.cuh \
  's/(d \* up) \* exact::fma(A, 1 - S, S)/(d * up) * (A * (1 - S) + S)/'
slip "products of SwiGLU reassociated" bits swiglu_forward layers/swiglu.cuh \
  's/(gate \* exact::sigmoid(gate)) \* up/gate * (exact::sigmoid(gate) * up)/'
slip "multiplication by 1/C instead of division" bits rmsnorm_forward layers/rmsnorm.cuh \
  's|/ (real)C + |* (1 / (real)C) + |'
slip "epsilon of RMSNorm outside the root" bits rmsnorm_forward layers/rmsnorm.cuh \
  's|C) / (real)C + (real)eps)|C) / (real)C) + (real)eps|; s|rstd\[n\] = 1 / \(.*\);|rstd[n] = 1 / (\1);|'
slip "one chain over the batch instead of one per sequence" bits rmsnorm_backward layers/rmsnorm.cuh \
  's|&sums\[n / T \* C\]|\&sums[0]|'
slip "a chain from -0" bits "matmul_forward and matmul_backward_dinp: every" layers/matmul.cuh \
  's/real acc = 0;/real acc = -(real)0;/'
slip "a chain with descending k" bits "matmul_forward and matmul_backward_dinp: odd" layers/matmul.cuh \
  's/for (int64_t c = 0; c < C; c++) acc/for (int64_t c = C - 1; c >= 0; c--) acc/'
slip "a masked key added as zero" bits "attention: odd sizes" layers/attention.cuh \
  's/^    out\[d\] = acc;/    out[d] = acc + (real)0;/'
slip "a maximum without + 0" bits "attention: odd sizes" layers/attention.cuh 's/largest + (real)0/largest/'
slip "softmax divides by the sum instead of multiplying by its inverse" bits crossentropy_forward \
  layers/crossentropy.cuh \
  's|z\[j\] \* inverse - |z[j] / S - |; s|, inverse = 1 / S||'
slip "dlogits times 1/count instead of divided by it" bits crossentropy_forward layers/crossentropy.cuh \
  's|/ (real)count|* (1 / (real)count)|'
slip "rotation without the negation" layers "rope: goldens" layers/rope.cuh \
  's/exact::fma(a, cos, -(b \* sin))/exact::fma(a, cos, b * sin)/'
slip "AdamW: v by product and sum instead of fma" model "prenorm: pinned bits" layers/adamw.cuh \
  's/v\[i\] = exact::fma(b2, v\[i\], rest2 \* (G \* G))/v[i] = b2 * v[i] + rest2 * (G * G)/'
slip "sigmoid of a negative number as 1/(1+exp(-x))" bits "exp_neg and sigmoid" layers/exact.cuh \
  's|1 / (1 + E) : E / (1 + E)|1 / (1 + E) : 1 / (1 + 1 / E)|'
slip "lanes in another order" exact "lane" layers/exact.cuh \
  's/lane\[i % LANES\] + a\[i\]/lane[i % LANES] + a[i ^ (i + 32 < n ? 1 : 0)]/'
slip "butterfly 1, 2, 4, 8, 16" exact "lane" layers/exact.cuh \
  's/int step = LANES \/ 2; step > 0; step \/= 2/int step = 1; step < LANES; step *= 2/
   s/int i = 0; i < step; i++) lane\[i\] =/int i = 0; i < LANES; i += 2 * step) lane[i] =/'
slip "leftovers of the counter from the largest level down" exact "Counter: the trees" layers/exact.cuh \
  's/for (int l = 0; n >> l; l++)/for (int l = 39; l >= 0; l--)/'

# ---- the fast forms
slip "the cut-off of exp moved" bits "exp_neg and sigmoid" layers/cpu/simd.cuh 's/splat(-87.f)/splat(-88.f)/'
slip "absent elements touch their lane" bits "lane sums" layers/cpu/simd.cuh \
  's/^  for (int64_t i = from; i < n; i++) lane\[i - from\] = f(.*/&\
  for (int64_t i = n; i < from + 32; i++) lane[i - from] += 0.f;/'
slip "elements behind the last whole 32 in other lanes" bits "lane sums" layers/cpu/simd.cuh \
  's/lane\[i - from\] = f(lane\[i - from\]/lane[(i - from) ^ 1] = f(lane[(i - from) ^ 1]/'
slip "carries in descending order" bits "add_sequences" layers/cpu/sums.cuh \
  's/for (int s = 0; s < carry.adds; s++)/for (int s = carry.adds - 1; s >= 0; s--)/'
slip "the last sequence joins the wrong level" bits "matmul_backward_dweight: sequences" layers/cpu/dweight.cuh \
  's/step.to \* s.level_floats/0/'
slip "a long chain begins anew in the middle" bits "matmul_forward and matmul_backward_dinp: odd" \
  layers/cpu/matmul.cuh 's/k0 == 0/true/'
slip "a query sees the key behind it" bits "attention: odd sizes" layers/cpu/attention.cuh \
  's/(int)ahead + r/(int)ahead + 1 + r/'

# ---- the model
slip "a gradient that skips the residual connection" model "prenorm: goldens: logits" routers.cuh \
  's/device::residual_forward(dx, dx, dh, p.N() \* c.C)/memcpy(dx, dh, p.N() * c.C * sizeof(real))/'
report
