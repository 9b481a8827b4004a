# gpu_all.sh: read by gpu.sh. Resume, orders of threads, the flavours, the emulator's own test, nvcc.
check "emulated: stopped, resumed by the other build, in other passes: the same file" '
  w="--router wav --block 4"
  trains cpu whole $passes $w && trains emulated a $passes $w --stop-after 2 && run cpu --out a --resume &&
    cmp whole/step_5.safetensors a/step_5.safetensors && trains cpu b $passes $w --stop-after 3 &&
    run emulated --out b --resume --micro-batch 2 && cmp whole/step_5.safetensors b/step_5.safetensors &&
    trains emulated c ${passes%--micro-batch*} $w && cmp whole/step_5.safetensors c/step_5.safetensors'
check "emulated eval, routes and show say what cpu says" '
  trains cpu c $passes --router wav --block 4 || exit 1
  for command in eval routes show; do
    run cpu $command c && cp stdout want && cp c/routing.json json 2>/dev/null
    run emulated $command c && cmp stdout want || exit 1
    [ $command != routes ] || cmp c/routing.json json || exit 1
  done'

for m in $methods; do
  check "emulated, $m: threads up, down, at random by 2 more seeds, streams as late as allowed: the same file" '
    trains cpu c $tiny $(method $m) || exit 1
    for how in EMU_ORDER=up EMU_ORDER=down EMU_SEED=2 "EMU_SEED=3 EMU_STREAMS=lazy"; do
      rm -rf e && (export $how && trains emulated e $tiny $(method $m)) && cmp e/step_2.safetensors c/step_2.safetensors ||
        { echo "with $how"; exit 1; }
    done'
done

# ---- flavours, side by side: the same programs, compiled so that mistakes are found that do not show in the bits
flavour() {
  flavour=$1 work=$work/$1
  mkdir "$work"
  sanitized=$work/train_gpt_emulated
  check "$flavour: compiles" 'make -C "$root" OUT="$work" FLAVOUR=$flavour emulated "$work/emulated_bits" \
    "$work/emulated_mixer_bits" >log 2>&1 || { tail -n 20 log; exit 1; }'
  for program in emulated_bits emulated_mixer_bits; do
    check "$flavour: $program" 'EMU_REPORT=$work/$program.report "$work/$program" emulated >log 2>&1 &&
      grep -q "^[1-9][0-9]* passed, 0 failed" log || { grep -v "^  ok" log | head -n 20; exit 1; }'
  done
  for m in $methods; do
    check "$flavour: $m" 'trains cpu c $tiny $(method $m) && trains sanitized e $tiny $(method $m) &&
      cmp e/step_2.safetensors c/step_2.safetensors'
  done
}
for f in asan checked; do (flavour $f) >"$work/said_$f" 2>&1 & done
wait
for f in asan checked; do
  cat "$work/said_$f"
  passed=$((passed + $(grep -c "^  ok" "$work/said_$f"))) failed=$((failed + $(grep -c "^  FAIL" "$work/said_$f")))
done
check "every kernel: there are threads that wrote results" '
  awk "FNR > 1 && !(\$6 > 0) { print; bad = 1 } END { exit bad }" "$work"/checked/*.report'

check_script() {  # NAME SCRIPT: its own checks count
  sh "$here/$2" >"$work/script" 2>&1
  grep -e "^  FAIL" -e "^    " "$work/script"
  counts=$(grep -E "^[0-9]+ passed, [0-9]+ failed" "$work/script" | tail -n 1 | tr -cd "0-9 ")
  set -- "$1" ${counts:-0 1 0}
  echo "  $1: $2 passed, $3 failed"
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + ${4:-0}))
}
check_script "planted faults" emulator_faults.sh

# ---- nvcc
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [ ! -x "$nvcc" ]; then skip "make exact: compiles, no spills, PTX" "nvcc"
else
  check "make exact compiles for sm_80, 90, 100, 120 (those nvcc knows); no kernel spills" '
    make -C "$root" OUT="$work/exact" NVCC="$nvcc" GPU_ARCH= exact >log 2>&1 || { tail -n 20 log; exit 1; }
    grep -q "^spills: [1-9][0-9]* kernels .* 0 refused" log || { tail -n 5 log; exit 1; }'
  check "a spilling kernel is refused" '
    { echo "#include \"layers/gpu/launch.cuh\""
      echo "__global__ void hungry(float *p) { float x[64]; for (int i = 0; i < 64; i++) x[i] = p[i];"
      echo "for (int i = 0; i < 64; i++) p[i] = x[(int)p[64 + i]]; }"
      echo "int main() { hungry<<<1, 1>>>(nullptr); }"; } >hungry.cu
    sh "$root/dev/spills.sh" report "$nvcc" -std=c++17 -arch=sm_90 -Xptxas -v -I"$root" -c hungry.cu -o hungry.o >log 2>&1 && exit 1
    grep -q "hungry" log && grep -q "1 refused" log || { cat log; exit 1; }'
  # contraction of a*b+c shows in the bits alone: an fma that nobody wrote looks like one that somebody did
  check "PTX: no .approx, no .ftz, every add, sub, mul, div, sqrt says .rn" '
    "$nvcc" -std=c++17 -O3 -fmad=false --ptx -arch=compute_90 -I"$root/layers/gpu" -I"$root" "$root/train_gpt.cu" -o ptx || exit 1
    grep -q "fma.rn.f32" ptx && ! grep -n -e "\.approx" -e "\.ftz" ptx &&
      ! grep -nE "^[[:space:]]*(@%p[0-9]+ )?(add|sub|mul|div|sqrt|rcp|mad)[a-z0-9.]*\.f(32|64)" ptx | grep -v "\.rn\.f"'
  check "the exact binary without a GPU: one line, exit 1" '
    [ -x "$work/exact/train_gpt_exact" ] || exit 1
    nvidia-smi >/dev/null 2>&1 && exit 0
    "$work/exact/train_gpt_exact" $tiny --out d >stdout 2>stderr
    [ $? -eq 1 ] && [ $(wc -l <stderr) -eq 1 ] || { cat stderr; exit 1; }'
fi
