#!/bin/sh
# gpu.sh OUT essential|all|rest: the CUDA kernels without a GPU. The emulator of dev/cuda_on_cpu executes them: every kernel
# against plain<float> (OUT/emulated_bits, OUT/emulated_mixer_bits), whole training by OUT/train_gpt_emulated against
# the pinned bits. `all` adds resume, orders of threads, the flavours asan and checked, the
# emulator's own test, and what nvcc makes of the source (gpu_all.sh); `rest` is these alone. One line per check, then
# the sum.
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { echo "usage: test/gpu.sh OUT essential|all|rest" >&2; exit 2; }
out=$(cd "$1" && pwd) && mode=$2 || exit 2
root=$(dirname "$here")
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
  methods=$(pinned_methods)
  method() { pinned_options "$1"; }
  trains() {  # BUILD FOLDER OPTIONS...
    build=$1 folder=$2
    shift 2
    run $build "$@" --out $folder
  }
  [ $mode = rest ] || . "$here/gpu_essential.sh"
  [ $mode = essential ] || . "$here/gpu_all.sh"
fi
report
