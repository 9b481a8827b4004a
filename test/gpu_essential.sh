# gpu_essential.sh: read by gpu.sh. Every kernel, then whole runs of every method, in the pinned bits.
for program in emulated_bits emulated_mixer_bits; do
  check "$program: 0 bits differ from plain" "
    EMU_REPORT=$work/$program.report $out/$program emulated >log || { tail -n 20 log; exit 1; }
    grep -q '^[1-9][0-9]* passed, 0 failed' log"
done
check "every kernel of layers/gpu was among them, with 3 blocks or more, and never 2 in a dimension" '
  cat "$root"/layers/gpu/*.cuh | tr "\n" " " | grep -oE "__global__ [^;{(]*(__launch_bounds__\([^)]*\))?[^;{(]*\(" |
    grep -o "[a-z0-9_]*_kernel" | sort -u >kernels
  [ $(wc -l <kernels) -ge 40 ] && [ $(wc -l <kernels) -eq $(cat "$root"/layers/gpu/*.cuh | grep -c __global__) ] ||
    { cat kernels; exit 1; }
  for kernel in $(grep -v -e "^fill_kernel" -e "^fma_peak_kernel" kernels); do
    cat "$work"/emulated_*.report | grep -E "(::| )$kernel(<|$)" | awk -v kernel=$kernel "{
      split(\$2, d, \",\")
      for (i = 1; i <= 3; i++) if (d[i] == 2) few = 1
      if (d[1] > 2) seen = 1
    } END { if (!seen || few) { print kernel; exit 1 } }" || bad=1
  done
  [ -z "$bad" ]'
for m in $methods; do check "emulated: the pinned bits of $m" "pins emulated $m"; done
check "emulated: prints what cpu prints of a sample" '
  for m in prenorm wav; do
    rm -rf c && trains cpu c $passes $(method $m) && run emulated sample c --prompt "The " --tokens 12 && cp stdout text &&
      run cpu sample c --prompt "The " --tokens 12 && cmp stdout text || exit 1
  done'
check "no CUDA device: one line, exit 1, after the plan" '
  EMU_DEVICES=0 $emulated $tiny --router wav --out d >stdout 2>stderr
  [ $? -eq 1 ] && [ $(wc -l <stderr) -eq 1 ] && grep -q "no CUDA device.*make cpu" stderr || { cat stderr; exit 1; }
  EMU_DEVICES=0 run emulated $tiny --router wav --dry-run'
