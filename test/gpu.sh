#!/bin/sh
# gpu.sh OUT essential|all: the CUDA kernels without a GPU. The emulator of dev/cuda_on_cpu executes them: every kernel
# against plain<float> (OUT/emulated_bits, OUT/emulated_mixer_bits), whole training by OUT/train_gpt_emulated against
# OUT/train_gpt_cpu and OUT/train_gpt_plain. `all` adds resume, orders of threads, the flavours asan and checked, the
# emulator's own test, and what nvcc makes of the source. One line per check, then the sum.
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { echo "usage: test/gpu.sh OUT essential|all" >&2; exit 2; }
out=$(cd "$1" && pwd) && mode=$2 || exit 2
root=$(dirname "$here")
export OMP_WAIT_POLICY=passive
. "$here/runs_check.sh"
plain=$out/train_gpt_plain cpu=$out/train_gpt_cpu emulated=$out/train_gpt_emulated
headers=${CUDA_HOME:-/usr/local/cuda}/include

if [ "$(uname -m)" != x86_64 ]; then skip "kernels under the emulator" "a machine with x86-64"
elif [ ! -f "$headers/cuda_runtime_api.h" ]; then skip "kernels under the emulator" "CUDA's headers in $headers (CUDA_HOME)"
elif [ ! -x "$emulated" ]; then skip "kernels under the emulator" "$emulated: make emulated"
else
  # ---- what every check here trains on: 1,400 bytes, so that the evaluation at the end is short
  awk 'BEGIN { for (i = 1; i <= 40; i++)
    printf "The %s of %d cats ate %d fish.\n", substr("kingqueenprince", i % 11 + 1, 5), i * i, 7 * i }' >"$work/text"
  passes="--data $work/text --split 96/2/2 --layers 3 --channels 40 --heads 4 --context 20 --batch 6 --steps 5"
  passes="$passes --micro-batch 4"
  tiny="--data $work/text --split 98/1/1 --layers 2 --channels 36 --heads 2 --context 17 --batch 3 --steps 2"
  methods="prenorm rezero layerscale attnres delta block+--block+5 delta-block+--block+4 wav+--block+4 haares+--block+4
    block+--details+random,duplicate,learned+--block+4+--final-read+all"
  method() { echo "--router $1" | tr + ' '; }
  trains() {  # BUILD FOLDER OPTIONS...
    build=$1 folder=$2
    shift 2
    run $build "$@" --out $folder
  }
  # of all kernels, in passes: 4 sequences and 2
  as_cpu() {  # METHOD
    trains emulated e $passes $(method $1) && trains cpu c $passes $(method $1) &&
      trains plain p $passes $(method $1) && cmp e/step_5.safetensors c/step_5.safetensors || return
    run cpu compare e c && grep -q "^identical" stdout && run cpu compare e p && grep -q "^identical" stdout || return
    run emulated sample e --prompt "The " --tokens 12 && cp stdout text_e &&
      run cpu sample c --prompt "The " --tokens 12 && cmp stdout text_e
  }
  for program in emulated_bits emulated_mixer_bits; do
    check "$program: 0 bits differ from plain" "
      EMU_REPORT=$work/$program.report $out/$program emulated >log || { tail -n 20 log; exit 1; }
      grep -q '^[1-9][0-9]* passed, 0 failed' log"
  done
  check "every kernel of layers/gpu was among them, with 3 blocks or more, and never 2 in a dimension" '
    cat "$root"/layers/gpu/*.cuh | tr "\n" " " | grep -oE "__global__ [^;{(]*(__launch_bounds__\([^)]*\))?[^;{(]*\(" |
      grep -o "[a-z0-9_]*_kernel" | sort -u >kernels
    [ $(wc -l <kernels) -gt 40 ] || { cat kernels; exit 1; }
    for kernel in $(grep -v -e "^fill_kernel" -e "^fma_peak_kernel" kernels); do
      cat "$work"/emulated_*.report | grep -E "(::| )$kernel(<|$)" | awk -v kernel=$kernel "{
        split(\$2, d, \",\")
        for (i = 1; i <= 3; i++) if (d[i] == 2) few = 1
        if (d[1] > 2) seen = 1
      } END { if (!seen || few) { print kernel; exit 1 } }" || bad=1
    done
    [ -z "$bad" ]'
  for m in $methods; do check "emulated, cpu and plain, $m: the same file after 5 steps, the same text" "as_cpu $m"; done
  check "no CUDA device: one line, exit 1, after the plan" '
    EMU_DEVICES=0 $emulated $tiny --router wav --out d >stdout 2>stderr
    [ $? -eq 1 ] && [ $(wc -l <stderr) -eq 1 ] && grep -q "no CUDA device.*make cpu" stderr || { cat stderr; exit 1; }
    EMU_DEVICES=0 run emulated $tiny --router wav --dry-run'
  [ $mode = essential ] || . "$here/gpu_all.sh"
fi
report
