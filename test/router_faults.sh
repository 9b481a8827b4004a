#!/bin/sh
# router_faults.sh [edits|REST]: deliberate faults in the routers, one at a time: what public implementations got wrong, and
# every term of the backward left out. Each is one sed edit to a copy of the tree; some test of test_routers (or, for
# layers/cpu, of test_mixer_bits) must fail; the first that does is printed. An edit that changes nothing or does not
# compile is a failure of this script (`edits`: only whether each still changes something). Two run at a time, at -O0.
# REST: tries every third fault, those whose number leaves this rest, and of the others only the edit.
only_edits= rest=
case $1 in '') ;; edits) only_edits=1 ;; [0-2]) rest=$1 ;; *) echo "usage: router_faults.sh [edits|0|1|2]" >&2; exit 2 ;; esac
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_faults.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OMP_WAIT_POLICY=passive
native=-march=native
[ "$(uname -m)" = x86_64 ] || native=-mcpu=native
number=0
flags="-O0 $native -fopenmp -ffp-contract=off -fno-math-errno -w"
cat >"$work/goldens.cu" <<'EOF'
#include "test/routers_gradients.h"
int main() {
  for (const char *name : routers::GOLDENS) routers::golden_gradients(name);
  return check::report();
}
EOF
for header in algorithm charconv chrono cmath fstream map memory set sstream stdexcept string string_view vector; do
  echo "#include <$header>"
done >"$work/common.h"
[ -n "$only_edits" ] || ${CXX:-g++} -std=c++17 $flags -x c++-header "$work/common.h" -o "$work/common.h.gch" || exit 2

one() {  # NUMBER WHAT FILE EDIT: into the file NUMBER.result
  tree=$work/$1
  mkdir "$tree" && cd "$tree" && cp -p "$root"/*.cuh . && ln -s "$root/runtime" "$root/test" . || exit 2
  case $3 in layers/*) cp -rp "$root/layers" . ;; *) ln -s "$root/layers" . ;; esac
  sed -e "$4" "$root/$3" >"$3"
  if cmp -s "$root/$3" "$3"; then echo "  FAIL $2: the edit changes nothing in $3: $4"
  elif [ -n "$only_edits" ] || [ "${rest:-$(($1 % 3))}" -ne $(($1 % 3)) ]; then echo "  ok   $2 (only the edit)"
  else
    found= programs="goldens routers" build=plain
    case $3 in layers/cpu/*) programs=mixer_bits build=cpu ;; esac
    for program in $programs; do  # the goldens alone notice most, in a third of the time
      source=test/test_$program.cu
      [ $program = goldens ] && source=$work/goldens.cu
      if ! ${CXX:-g++} -std=c++17 $flags -I. -Ilayers/$build \
        -I"$work" -include common.h -x c++ "$source" -o program >log 2>&1; then
        found="  FAIL $2: does not compile: $(grep -m 1 error log)"
        break
      fi
      # stops at the first failure; a program that crashes has noticed too
      caught=$({ timeout 300 ./program || echo "  FAIL ended with code $?"; } 2>&1 | grep -a -m 1 '^  FAIL' | cut -c 8-)
      [ -z "$caught" ] || { found="  ok   $2 -> $caught" && break; }
    done
    echo "${found:-  FAIL $2: no test fails}"
  fi >"$work/$1.result"
  cd "$work" && rm -rf "$tree"
}
fault() {
  number=$((number + 1))
  (one $number "$@") &
  [ $((number % 2)) -eq 1 ] || wait
}

f=attnres.cuh
fault "dq without g" $f 's/dq\[c\] = dq\[c\] \* g\[c\]/dq[c] = dq[c]/'
fault "dg = dw instead of dw*q" $f 's/dg\[c\] = dq\[c\] \* q\[c\]/dg[c] = dq[c]/'
fault "w = q without g" $f 's/w\[c\] = g\[c\] \* q\[c\]/w[c] = q[c]/'
fault "key-eps left out of a finished source" $f '/lane_dot(s + t/s/ + (real)key_eps//'
fault "key norm left out of phase 1" $f 's/s\.r\[t\], g\.bias_of(k)\[s\.detail\]/(real)1, g.bias_of(k)[s.detail]/'
fault "beta left out of phase 1" $f 's/s\.r\[t\], g\.bias_of(k)\[s\.detail\]/s.r[t], (real)0/'
fault "phase 1 without a maximum" $f 's/mx = i == 0 || z\[i \* GROUP\] > mx ? z\[i \* GROUP\] : mx/mx = 0/'
fault "one source: the normalised key instead of the source" $f \
  's/fma(E\[i\], g.sources\[i\].s\[t \* C + c\], acc)/fma(E[i], g.sources[i].s[t * C + c] * (n > 1 ? 1 : g.sources[i].r[t]), acc)/'
fault "beta left out of phase 2" $f 's/p\.r\[d\], g\.bias_of(k)\[p\.detail\[d\]\]/p.r[d], (real)0/'
fault "c left out of the score" $f 's/fma(p\.c\[d\] \* exact/fma(exact/'
fault "c left out of the value" $f 's/(E\[d\] \* l) \* p\.c\[d\]/E[d] * l/'
fault "phase 2: old sum not rescaled" $f 's/l = first \* l;/l = l;/'
fault "phase 2: old mix not rescaled" $f 's/(p\.n ? first \* l : l) \* o/l * o/'
fault "phase 2 backward: dz without D" $f 's/exact::lane_dot(dh, P, C) - D)/exact::lane_dot(dh, P, C))/'
fault "phase 2 backward: dz without c" $f 's/dz = p \* (c \* exact/dz = p * (exact/'
fault "phase 2 backward: be without c" $f 's/be = (dz \* c) \* r/be = dz * r/'
fault "phase 2 backward: be without r" $f 's/be = (dz \* c) \* r/be = dz * c/'
fault "phase 2 backward: gm with beta" $f 's/(z - g\.bias_of(k)\[x\.detail\[d\]\])/z/'
fault "phase 2 backward: gm without c" $f 's/\* (c \* r)) \/ (real)C/* r) \/ (real)C/'
fault "phase 2 backward: no gm term" $f 's/exact::fma(-gm, P\[i\], \(.*\));$/\1;/'
fault "phase 2 backward: no w term" $f 's/exact::fma(be, w\[i\], \(exact::fma(p \* c, dh\[i\], to)\))/\1/'
fault "phase 2 backward: no dh term" $f 's/exact::fma(p \* c, dh\[i\], to)/to/'
fault "phase 2 backward: dh term without c" $f 's/exact::fma(p \* c, dh\[i\], to)/exact::fma(p, dh[i], to)/'
fault "phase 2 backward: no dw" $f 's/sum = exact::fma(be, P\[i\], sum)/(void)sum/'
fault "phase 2 backward: no dbeta" $f '/db\[t \/ T \* g.details/{n;s/bias + dz/bias/}'
fault "phase 1 backward: dz without D" $f 's/ - g\.D\[t \* GROUP + k\])/)/'
fault "phase 1 backward: be without r" $f 's/be\[k\] = dz \* r/be[k] = dz/'
fault "phase 1 backward: gamma with beta" $f 's/K\[k\] = dz \* (z - g\.bias_of(k)\[source\.detail\])/K[k] = dz * z/'
fault "phase 1 backward: gamma without r^2" $f 's/gamma = sum \* (r \* r)/gamma = sum/'
fault "phase 1 backward: gamma not divided by C" $f 's/(r \* r) \/ (real)C/(r * r)/'
fault "phase 1 backward: gamma forgets the last lane" $f 's/(K\[3\] + K\[7\])/K[3]/'
fault "phase 1 backward: no gamma term" $f 's/= exact::fma(-gamma, s\[c\], ds);/= ds;/'
fault "phase 1 backward: no w term" $f 's/ds = exact::fma(be\[k\], g\.w\[k \* C + c\], ds);//'
fault "phase 1 backward: no dh term" $f 's/ds = exact::fma(p\[k\], g\.dh\[k \* g\.stride + t \* C + c\], ds)/(void)ds/'
fault "phase 1 backward: the first gradient added to what was there" $f 's/source\.fresh ? 0 : //'
fault "phase 1 backward: no dw" $f 's/sum_w = exact::fma(be\[k\], s\[c\], sum_w)/(void)sum_w/'
fault "phase 1 backward: no dbeta" $f '/db\[(k \* B + t \/ T)/{n;s/bias + dz/bias/}'
fault "the copy of read 0 has no gradient" $f 's/p\[0\] = 1;/p[0] = 0;/'

f=wav_router.cuh
fault "rho left out" $f 's/(real)b\.rho < ratio ? (real)b\.rho : ratio/ratio/'
fault "c always rho" $f 's/(real)b\.rho < ratio ? (real)b\.rho : ratio/(real)b.rho/'
fault "wav-eps left out" $f 's/ + (real)b\.wav_eps)/)/'
fault "r of a detail without c" $f 's/(x\.c\[d\] \* x\.c\[d\]) \* ss/ss/'
fault "key-eps left out of partials" $f 's/ + (real)b\.key_eps)/)/'
fault "a zero partial at the start of a block" $f 's/return updates ? bases : 0/return bases/'
fault "stored details without c" $f 's/x\.c\[d\] \* x\.row\[d\]\[i\]/x.row[d][i]/'
fault "closing block, backward: without c" $f 's/G\[d\]\[i\] = c\[d\]\[i \/ C\] \* G\[d\]\[i\]/(void)G, (void)c/'
fault "du without its details" $f 's/x = exact::fma(b\.coef\[d \* b\.m + k\], G\[d\]\[i\], x)/(void)d/'
fault "du: coefficients of the first update" $f 's/fma(b\.coef\[d \* b\.m + k\], G/fma(b.coef[d * b.m], G/'
fault "no gradient of learned coefficients" $f 's/if (learned) dcoef/if (false) dcoef/'
fault "du of the update before left" $f 's/^  block_update_backward(du, dcoef, learned, G, b, b\.updates - 1/  if (false) block_update_backward(du, dcoef, learned, G, b, b.updates - 1/'
fault "coefficients' gradient of the first token alone" $f 's/= dcoef\[t \/ T\] + exact/= exact/'

f=routers.cuh
fault "queries start with noise" $f 's/vector(name + "\.q", c\.C, 0)/vector(name + ".q", c.C, 0.02)/'
fault "weight decay on queries, gains, biases" $f 's/Init::constant, value, false, true/Init::constant, value, true, true/'
fault "learning rate of the router left out" $f 's/Init::constant, value, false, true/Init::constant, value, false, false/'
fault "a query for the read of sublayer 0" $f 's/for (int64_t j = 1; j < c\.M() \&\& c\.mixes(); j++) read/for (int64_t j = 0; j < c.M() \&\& c.mixes(); j++) read/'
fault "coefficients of the block size, not the planned length" $f 's/(int)b), c\.block_length(b), 1, Init::split/(int)b), c.block, 1, Init::split/'
fault "final read: a plain mean" $f 's/      if (j > 0)$/      if (j > 0 \&\& (int64_t)j != final_read())/'
fault "final read leaves out the unfinished block" $f \
  's/return s\.detail == 0 || c\.final_all;/return (s.detail == 0 || c.final_all) \&\& index + bases < sources.size();/'
fault "the embedding counted twice" $f 's/^      g\.sources\.push_back(sources\[i\]);/      for (int k = 0; k < (i ? 1 : 2); k++) g.sources.push_back(sources[i]);/'
fault "a group sees its own block" $f 's/reads\[j\]\.block \* bases);/(reads[j].block + 1) * bases);/'
fault "cumulative states as blocks" $f '/device::close_block(b.rows/{s/device::close_block(/device::close_block(/;s/;$/, (reads[j].block ? device::residual_forward(b.rows[0], b.rows[0], blocks[reads[j].block - 1].rows[0], p.N() * c.C) : (void)0);/}'
fault "the buffer of a block used again while it is a source" $f \
  's/b\.rows\.push_back(arena\.take(N \* c\.C)),/b.rows.push_back(d || \&b == \&blocks[0] ? arena.take(N * c.C) : blocks[0].rows[0]),/'
fault "details share the bias of the first" $f 's/sources\.push_back({b\.rows\[d\], b\.r\[d\], b\.ds\[d\], d})/sources.push_back({b.rows[d], b.r[d], b.ds[d], d > 0})/'
fault "split off by one" $f 's/k < m \/ 2 ? 1 : -1/k <= m \/ 2 ? 1 : -1/'
fault "phase starts with -1" $f 's/% 2 == 0 ? 1 : -1/% 2 ? 1 : -1/'
fault "random signs not shuffled" $f 's/i > 0 \&\& kind == "random"/i > m/'
fault "random signs without the seed" $f 's/rng::key_of(c\.seed, format/rng::key_of(1, format/'
fault "backward through a list that has grown" $f 's/partials = open(b, read\.position);/partials = open(b, read.position + 1);/'
fault "delta: D of h instead of the mix" $f 's/dw_k, db_k, y\[j\], saved\[j\], g, k, open, p/dw_k, db_k, h[j], saved[j], g, k, open, p/'
fault "delta: the stream without the update" $f 's/device::residual_forward(x, j == 0 ? e : x, u\[j\]/device::residual_forward(x, j == 0 ? e : x, j ? u[j] : e/'
fault "delta: h without the stream" $f 's/if (c\.delta()) device::residual_forward(h\[j\], x, y\[j\]/if (c.delta()) device::residual_forward(h[j], e, y[j]/'
fault "delta backward: dx without dh" $f 's/if (c\.delta()) device::residual_forward(dx, dx, dinput/if (false) device::residual_forward(dx, dx, dinput/'
fault "delta backward: du without dx" $f 's/if (!c\.delta()) return grad;/return grad;/'
fault "delta backward: de without its source" $f 's/device::residual_forward(dx, dx, ds\[0\], p/if (false) device::residual_forward(dx, dx, ds[0], p/'
fault "ds that no group reads not cleared" $f 's/for (real \*d : zeroed) device::fill.*$/;/'
fault "every group writes ds instead of adding" $f 's/fresh = !seen\[i\]/fresh = true/'
fault "dw not cleared" $f 's/device::fill(dw, GROUP.*$/;/'
fault "dbeta not cleared" $f 's/device::fill(db, GROUP.*$/;/'
fault "dcoef not cleared" $f 's/device::fill(dcoef, p\.B, (real)0);//'
fault "no backward of a closing block" $f 's/device::close_block_backward(b\.ds/if (false) device::close_block_backward(b.ds/'
fault "closing block, backward: du of its last update left" $f 's/^      device::block_update_backward(du, dcoef, learned, b\.ds/      if (false) device::block_update_backward(du, dcoef, learned, b.ds/'
fault "the coefficient of another update" $f 's/add_coefficient(j - 1, p);/add_coefficient(j, p);/'
fault "dw of the final read not added" $f 's/      device::add_sequences(p\.grads\.router\[r\.row\], dw/      if (j != final_read()) device::add_sequences(p.grads.router[r.row], dw/'
fault "dw without the levels of the passes" $f 's/lane \* p\.B \* c\.C, p\.B, c\.C, p\.carry/lane * p.B * c.C, p.B, c.C, {}/'
fault "dbeta without the levels of the passes" $f 's/lane \* p\.B \* c\.D(), p\.B, c\.D(), p\.carry/lane * p.B * c.D(), p.B, c.D(), {}/'
fault "dcoef without the levels of the passes" $f 's/dcoef, p\.B, 1, p\.carry/dcoef, p.B, 1, {}/'
fault "no dbeta" $f 's/if (r\.beta) device::add/if (false) device::add/'
fault "no phase 1 backward" $f 's/device::mix_phase1_backward(dw, db, g, p\.B, p\.T, c\.C);//'
fault "dq left as dw" $f 's/for (size_t j = 1; j < reads\.size(); j++) {/for (size_t j = 2; j < reads.size(); j++) {/'
fault "learned coefficients of another block" $f 's/row + (size_t)b, {}/row, {}/'

f=layers/cpu/attnres.cuh
fault "cpu: gamma of another source" $f 's/gamma = gamma\[i - 1\]/gamma = gamma[0]/'
fault "cpu: gamma, r squared in another order" $f 's/reduce8(K) \* (r \* r)/reduce8(K) * r * r/'
fault "cpu: lanes that are no reads in gamma" $f 's/(oct)((uoct)(dz \* (z - bias\[s\.detail\])) \& live)/exp8(z - mx) * (z - bias[s.detail])/'
fault "cpu: dz of the lanes that are no reads" $f 's/dz = (oct)((uoct)(p \* (y - D)) \& live)/dz = exp8(z - mx) * (y - D)/'
fault "cpu: the first gradient added to what was there" $f 's/source\.fresh ? splat(0\.f) : //'
fault "cpu: du of the gradients before the read" $f 's/u\[v\] = d == 0 ? y :/u[v] = d == 0 ? fma(a[d], dhv[v], y) :/'
fault "cpu: squares of a row, product and sum rounded" $f 's/y\.x\[u\] = fma(r, r, y\.x\[u\])/y.x[u] = r * r + y.x[u]/'
fault "cpu: tokens behind the end stored" $f 's/if (n == 8)$/if (n <= 8)/'
fault "cpu: lanes 16 apart added last" $f 's/half\[r\]\[u\] + x\[r\]\[u\]/x[r][u] + half[r][(u + 1) % H]/'
f=layers/cpu/wav_router.cuh
fault "cpu: bases that differ in the last coefficient share a row" $f 's/(size_t)b\.updates \* sizeof/(size_t)(b.updates - 1) * sizeof/'
fault "cpu: a sum of the block scaled" $f 's/d == 0 ? all8(1\.f) : rho < ratio/rho < ratio/'
fault "cpu: the learned coefficients' gradient of another update" $f 's/b\.u\[k\] + t \* C, C);/b.u[0] + t * C, C);/'
wait

passed=0 failed=0 i=0
while [ $i -lt $number ]; do
  i=$((i + 1))
  [ -s "$work/$i.result" ] || echo "  FAIL fault $i: no result" >"$work/$i.result"
  cat "$work/$i.result"
  if grep -q '^  ok' "$work/$i.result"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
