#!/bin/sh
# gpu_check.sh [--emulated] [OUT]: whether the exact CUDA build has the bits of the cpu build on this machine's GPU, and
# how fast its kernels are: one table, last. Offline; to take under 3 minutes on a GPU of H200's class with 16 cores,
# the build (of the GPU's own architecture) included. Every row has a bound; one that fails gives exit code 1, and the
# rows behind it still run. OUT: of make, `build`; OUT/gpu_check keeps the table and what every row printed.
#   needs        sh, g++, make, nvcc, a GPU and its driver; compute-sanitizer for four rows, else skipped by name
#   --emulated   the same rows at tiny sizes on dev/cuda_on_cpu, which needs CUDA's headers only; the sanitizers are the
#                emulator's, times mean nothing, and faults are planted that rows must find; some minutes on 2 cores
#   variables    BITS=quick|essential|all (sizes of the bit tests), those of make (CXX, NVCC, CUDA_HOME, CUDA_ARCH)
emulated=
[ "$1" = --emulated ] && emulated=yes && shift
case $#$1 in 0* | 1[!-]*) ;; *) echo "usage: dev/gpu_check.sh [--emulated] [OUT]" >&2; exit 2 ;; esac
target=${1:-build} make=${MAKE:-make} CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
cd "$(dirname "$0")/.." || exit 2
root=$(pwd)
export CUDA_HOME
clock() { date +%s; }
began=$(clock)

# ---- what the machine has

lacks() { echo "gpu_check.sh: $1" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
has "${CXX:-g++}" || lacks "no ${CXX:-g++}: install it or set CXX"
has "${make%% *}" || lacks "no make: install it"
if [ $emulated ]; then
  [ -f "$CUDA_HOME/include/cuda_runtime_api.h" ] || lacks "no CUDA headers in $CUDA_HOME/include: set CUDA_HOME"
else
  nvidia-smi -L 2>/dev/null | grep -q '^GPU 0' ||
    lacks "no GPU here (nvidia-smi lists none); --emulated runs the same rows on the CPU"
  has "${NVCC:-nvcc}" || [ -x "$CUDA_HOME/bin/nvcc" ] || lacks "no nvcc: install the CUDA Toolkit or set CUDA_HOME"
fi
jobs=$(nproc 2>/dev/null || echo 2)
# Rows that need no quiet machine run beside each other where there is room, unless only one process may use the GPU
beside=yes
[ $emulated ] || [ "$jobs" -lt 8 ] && beside=
[ $emulated ] || nvidia-smi --query-gpu=compute_mode --format=csv,noheader | grep -q -i exclusive && beside=

mkdir -p "$target/gpu_check" || exit 2
out=$(cd "$target" && pwd)
log=$out/gpu_check
rm -f "$log"/*
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_gpu_check.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# ---- rows

ok=0 failed=0 skipped=0
note() {  # RESULT NAME FIGURE BOUND SECONDS
  printf '%-4s  %-46s  %-53s  %-24s %4s\n' "$@" | tee -a "$log/table"
}
skip() {  # NAME WHAT
  note skip "$1" "$2" "" ""
  skipped=$((skipped + 1))
}
figure() { echo "$*" >"$work/$id.figure"; }
# What a row does, in the folder work/ID, for which it has the time of $patience
patience=100
[ $emulated ] && patience=1000
limited() {
  if has timeout; then timeout -k 5 $patience "$@"; else "$@"; fi
}
job() {  # ID COMMANDS
  id=$1 since=$(clock)
  mkdir -p "$work/$id"
  (cd "$work/$id" && eval "$2") >"$log/$id" 2>&1
  echo "$? $(($(clock) - since))" >"$work/$id.code"
}
start() { if [ $beside ]; then job "$@" & else job "$@"; fi; }
finish() {  # ID NAME BOUND, after a wait
  code=1 seconds=
  [ -s "$work/$1.code" ] && read -r code seconds <"$work/$1.code"
  if [ "$code" -eq 0 ]; then
    note ok "$2" "$(cat "$work/$1.figure" 2>/dev/null)" "$3" "$seconds"
    ok=$((ok + 1))
  else
    tail -n 12 "$log/$1" | sed 's/^/    /'
    note FAIL "$2" "$(cat "$work/$1.figure" 2>/dev/null || echo "code $code; $log/$1")" "$3" "$seconds"
    failed=$((failed + 1))
  fi
}
row() { job "$1" "$4"; finish "$1" "$2" "$3"; }  # ID NAME BOUND COMMANDS

# ---- builds

if [ $emulated ]; then
  kind=emulated BITS=emulated bench="$out/emulated_bench --tiny" longest=1800
  small="--layers 5 --channels 20 --heads 2 --context 12 --batch 4 --data stories:0.01"
else
  kind=exact BITS=${BITS:-essential} bench=$out/exact_bench longest=180
  small="--layers 6 --channels 96 --heads 4 --context 64 --batch 8 --data stories:0.05"
fi
small="$small --split 98/1/1 --skip-unknown --steps 3"
tiny="--layers 3 --channels 20 --heads 2 --context 12 --batch 2 --data stories:0.01 --split 98/1/1 --skip-unknown
  --steps 1 --router wav --block 4"
gpu=$out/train_gpt_$kind cpu=$out/train_gpt_cpu
programs="train_gpt_$kind ${kind}_bits ${kind}_mixer_bits ${kind}_bench train_gpt_cpu"

built() {
  targets= missing=
  for p in $programs; do targets="$targets $target/$p"; done
  (cd "$root" && $make -k -j"$jobs" OUT="$target" $targets) && figure "$(echo $programs | wc -w) programs" && return
  for t in $targets; do  # what was not made must not be there from another day
    grep -q -F ": $t] Error" "$log/build" && rm -f "$out/${t##*/}" && missing="$missing ${t##*/}"
  done
  figure "not made:${missing:- see $log/build}"
  return 1
}
architectures() { nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u | xargs; }
name="build"
[ $emulated ] || name="build for sm_${CUDA_ARCH:-$(architectures)}, registers do not spill"
row build "$name" "all $(echo $programs | wc -w)" built

# ---- what rows are made of

run() { limited "$@" >"$work/$id/last" 2>&1 || { echo "code $? from: $*"; tail -n 12 "$work/$id/last"; return 1; }; }
losses() { sed 's/,"tokens_per_second":[^}]*//' "$1/log.jsonl" | grep -e '"step"' -e '"eval"'; }
same() {  # A B: folders of runs; the newest checkpoints, and the losses that were logged
  "$cpu" compare "$1" "$2" >compared
  code=$?
  cat compared
  loss=$(sed -n 's/.*"final_validation_loss": \([0-9]*\.[0-9]\{4\}\).*/\1/p' "$1/run.json")
  figure "$(tail -n 1 compared | sed "s/, [0-9]* tensors missing.*//"), loss $loss"
  last=$(cd "$1" && ls -v step_*.safetensors | tail -n 1)
  [ $code -eq 0 ] && cmp "$1/$last" "$2/$last" || return
  losses "$1" >a && losses "$2" >b && cmp a b || { figure "the same file, but the logged losses differ"; return 1; }
}
differs() { ! same "$@" && grep -q '^different: ' compared; }

# ---- bits of every kernel

bits() {  # PROGRAM
  limited "$out/$1" "$BITS"
  code=$?
  figure "$BITS: $(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log/$1" || echo "code $code")"
  [ $code -eq 0 ] && grep -q -E '^[1-9][0-9]* passed, 0 failed' "$log/$1"
}
start ${kind}_bits "bits ${kind}_bits"
start ${kind}_mixer_bits "bits ${kind}_mixer_bits"

# ---- sanitizers

tools="memcheck racecheck initcheck synccheck"
sanitizer=$(command -v compute-sanitizer || ls "$CUDA_HOME/bin/compute-sanitizer" \
  "$CUDA_HOME/compute-sanitizer/compute-sanitizer" 2>/dev/null | head -n 1)
sanitized() {  # TOOL
  limited "$sanitizer" --tool $1 --error-exitcode 9 "$gpu" $tiny --out run
  code=$?
  figure "$(sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p' "$log/$1" | tail -n 1) code $code"
  [ $code -eq 0 ] && grep -q -E 'SUMMARY: 0 (errors|hazards)' "$log/$1"
}
emulated_sanitized() {  # FLAVOUR
  (cd "$root" && $make OUT="$target/$1" FLAVOUR=$1 "$target/$1/train_gpt_emulated") || return
  limited "$out/$1/train_gpt_emulated" $tiny --out run && "$cpu" $tiny --out reference && same run reference
}
if [ $emulated ]; then
  for flavour in asan checked; do start $flavour "emulated_sanitized $flavour"; done
elif [ "$sanitizer" ]; then
  for tool in $tools; do start $tool "sanitized $tool"; done
fi

# ---- whole runs: 3 steps of every method, and the evaluation behind them

method() {  # OPTIONS
  run "$cpu" $small --router "$@" --out cpu && run "$gpu" $small --router "$@" --out gpu && same gpu cpu
}
number=0
trained() {  # OPTIONS
  number=$((number + 1))
  row run$number "train $(echo "$*" | sed 's/ --block/, block/; s/ --details/:/')" "0 differing bits" "method $*"
}
methods=$("$cpu" methods --names 2>"$log/methods")
[ "$methods" ] || row methods "the methods of train_gpt_cpu" "at least one" false
for m in $methods; do  # blocks of 4 where there are blocks: the program refuses --block where there are none
  if "$cpu" $small --router $m --block 4 --dry-run >/dev/null 2>&1; then trained $m --block 4; else trained $m; fi
done
trained block --block 4 --details random,duplicate,learned
wav="--router wav --block 4"
row passes "train wav, in passes of 2 sequences" "0 differing bits" \
  'run "$gpu" $small $wav --micro-batch 2 --out gpu && run "$cpu" $small $wav --out cpu && same gpu cpu'
row resume "train wav, stopped after each step, resumed" "0 differing bits" '
  run "$gpu" $small $wav --stop-after 1 --out gpu && run "$gpu" --resume --out gpu --stop-after 2 &&
    run "$gpu" --resume --out gpu && run "$cpu" $small $wav --out cpu && same gpu cpu'
row sample "sample wav, longer than the context" "the same text" '
  run "$cpu" $small $wav --lr 0.05 --warmup 0 --out trained || exit 1  # large steps: the text hangs on every position
  run "$gpu" sample trained --prompt The --tokens 80 && mv ../sample/last text.gpu &&
    run "$cpu" sample trained --prompt The --tokens 80 && mv ../sample/last text.cpu || exit 1
  figure "$(wc -c <text.gpu) bytes: $(head -c 40 text.gpu | tr "\n" " ")"
  [ $(wc -c <text.gpu) -gt 80 ] && cmp text.gpu text.cpu'
row seed "planted: a run from another seed" "must be found" \
  'run "$gpu" $small --seed 2 --out gpu && run "$cpu" $small --out cpu && differs gpu cpu'

wait
finish ${kind}_bits "test_bits: every function against plain::" "0 failed"
finish ${kind}_mixer_bits "test_mixer_bits: the depth mixer" "0 failed"
if [ $emulated ]; then
  finish asan "tiny run, AddressSanitizer and UBSan" "no fault, 0 differing bits"
  finish checked "tiny run, races and uninitialised reads" "no fault, 0 differing bits"
else
  for tool in $tools; do
    if [ "$sanitizer" ]; then finish $tool "compute-sanitizer $tool, tiny run" "0 errors"
    else skip "compute-sanitizer $tool" "compute-sanitizer is not installed (a part of the CUDA Toolkit)"; fi
  done
fi

# ---- times

functions() {  # of gpu::, as layers/gpu has them, but for what others are made of
  sed -n -e 's/^inline [a-z]* \([a-z_0-9]*\)(.*/\1/p' -e 's/^template <class Partials> void \([a-z_0-9]*\)(.*/\1/p' \
    $(ls layers/gpu/*.cuh | grep -v -e backend -e launch) | grep -v -x rotate
}
timed() {
  cd "$root" || return
  missing=
  for f in $(functions); do grep -q "gpu::$f(" dev/gpu_bench.cu || missing="$missing $f"; done
  figure "$(functions | wc -l) functions; missing:${missing:- none}"
  [ $(functions | wc -l) -gt 30 ] && [ -z "$missing" ]
}
row timed "every function of layers/gpu has a row below" "none missing" timed
benched() {
  limited $bench
  code=$?
  figure "$(tail -n 1 "$log/bench" | cut -c 1-40), code $code"
  [ $code -le 1 ] && tail -n 1 "$log/bench" | grep -q -E '^[0-9]+ ok, [0-9]+ failed$'
}
row bench "times of kernels: dev/gpu_bench.cu" "runs to its end" benched
while IFS='|' read -r name figures bound; do
  result=${name%% *}
  [ "$result" ] || continue
  note "$result" "${name#* }" "$figures" "$bound" ""
  [ "$result" = ok ] && ok=$((ok + 1)) || failed=$((failed + 1))
done <<END
$(sed -n 's/^ *\(ok\|FAIL\)  *\(.*\)/\1 \2/p' "$log/bench" | tr -s ' ' | sed 's/ *| */|/g')
END
row unreachable "planted: bounds that no kernel reaches" "every row fails" '
  limited $bench --only query --bounds 1e9
  [ $? -eq 1 ] && figure "$(tail -n 1 "$log/unreachable")" && grep -q "^0 ok, [1-9][0-9]* failed" "$log/unreachable"'

# ---- planted faults of the emulator and of kernels: in a copy of the tree

if [ $emulated ]; then
  row emulator "planted: faults.cu, found by the emulator" "0 failed" '
    sh "$root/test/emulator_faults.sh"
    code=$?
    figure "$(tail -n 1 "$log/emulator")"
    [ $code -eq 0 ] && grep -q -E "^[1-9][0-9]* passed, 0 failed" "$log/emulator"'
  slips() {
    cd "$root" && cp -rp Makefile *.cuh train_gpt.cu dev layers runtime test "$work/slips" || return
    mkdir -p "$work/slips/data" && cp -p data/*.cuh "$work/slips/data" || return
    mkdir -p "$work/slips/build" && cp -rp "$out/cuda_on_cpu" "$work/slips/build" && cd "$work/slips" || return
    slip rmsnorm 's|butterfly(dot) / (float)C;|butterfly(dot) * (1 / (float)C);|' &&
      slip attnres 's|K \* (r \* r) / (float)C|K * r * r / (float)C|' &&
      slip adamw 's|exact::fma(h.decay, p\[i\], u)|h.decay * p[i] + u|' &&
      $make -k -j"$jobs" build/emulated_bits build/emulated_mixer_bits build/train_gpt_emulated
  }
  slip() {  # FILE EDIT
    sed -e "$2" layers/gpu/$1.cuh >edited && ! cmp -s edited layers/gpu/$1.cuh && mv edited layers/gpu/$1.cuh && return
    echo "the edit changes nothing in layers/gpu/$1.cuh: $2"
    return 1
  }
  fails() {  # PROGRAM TEST
    limited "$work/slips/build/$1" emulated >said
    code=$?
    grep -v "^  ok" said
    figure "$(tail -n 1 said)"
    [ $code -eq 1 ] && grep -q -e "^  FAIL $2" said
  }
  row slips "planted: three slips in layers/gpu, built" "all 3" slips
  row slip1 "planted: d rmsnorm times 1/C -> test_bits" "must fail" "fails emulated_bits rmsnorm_backward"
  row slip2 "planted: (K r) r for K (r r) -> mixer bits" "must fail" 'fails emulated_mixer_bits "the mixer"'
  row slip3 "planted: AdamW without fma -> train prenorm" "must fail" '
    run "$work/slips/build/train_gpt_emulated" $small --out gpu && run "$cpu" $small --out cpu && differs gpu cpu'
fi

# ---- the table

total=$(($(clock) - began))
job total "figure '$total s'; [ $total -lt $longest ]"
finish total "all of it" "under $longest s"
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
printf '\n%s\n' "$kind, $(date -u +%Y-%m-%dT%H:%MZ), commit $commit"
head -n 1 "$log/bench"
sed -n 2p "$log/bench"
cat "$log/table"
echo "$ok ok, $failed failed, $skipped skipped in $total s"
[ $failed -eq 0 ]
