#!/bin/sh
# emulator_faults.sh [TABLE]: the emulator of dev/cuda_on_cpu must find every fault planted in its faults.cu, by the
# flavours named here, with the file and the line of the statement that is marked there, and nothing where there is none,
# in any order of threads; and the checker must agree with the model of races.cu. Prints what was found, and with TABLE
# writes the table of dev/cuda_on_cpu/README.md into that file.
# Ends with `N passed, N failed[, N skipped]`.
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
emulator=$root/dev/cuda_on_cpu
[ -z "$1" ] || { : >"$1" && table=$(cd "$(dirname "$1")" && pwd)/$(basename "$1"); } || exit 2
. "$here/runs_check.sh"
cd "$root" || exit 2

name="emulator: planted faults"
headers=${CUDA_HOME:-/usr/local/cuda}/include
if [ "$(uname -m)" != x86_64 ]; then
  skip "$name" "a machine with x86-64"
elif [ ! -f "$headers/cuda_runtime_api.h" ]; then
  skip "$name" "CUDA's headers, $headers/cuda_runtime_api.h (CUDA_HOME)"
elif ! echo 'int main() {}' | ${CXX:-g++} -fsanitize=address,undefined -x c++ - -o "$work/probe" 2>/dev/null; then
  skip "$name" "the sanitizers of ${CXX:-g++}"
elif ! command -v addr2line >/dev/null; then
  skip "$name" "addr2line"
fi
[ $skipped -eq 0 ] || { report; exit; }

# the source has its path relative to the root, as messages give it
compiled() {  # FLAVOUR PROGRAM OUT
  (cd "$root" && sh dev/cuda_on_cpu/compile.sh $1 "$work/$3" dev/cuda_on_cpu/$2.cu -I. -Ilayers/gpu -Werror)
}
for flavour in fibers asan checked; do check "faults.cu compiles: $flavour" "compiled $flavour faults $flavour"; done
[ $failed -eq 0 ] || { report; exit 1; }

clean() {  # FLAVOUR: what it prints is a message
  for streams in eager lazy random; do
    for order in up down "random EMU_SEED=1" "random EMU_SEED=2" "random EMU_SEED=3"; do
      env EMU_STREAMS=$streams EMU_ORDER=$order "$work/$1" 0 >said 2>&1 && [ ! -s said ] && continue
      echo "fault 0, EMU_STREAMS=$streams EMU_ORDER=$order:" && head -n 20 said
      return 1
    done
  done
}
for flavour in fibers asan checked; do check "no fault, nothing found: $flavour" "clean $flavour"; done

# What a flavour says of a fault, into `said`: yes if it names the line in every order of threads; no if the program
# ends with code 0; else what happened
how() {  # FLAVOUR FAULT LINE
  for order in "random EMU_SEED=2" "random EMU_SEED=3" up down "random EMU_SEED=1"; do
    (cd "$root" && env EMU_STREAMS=lazy EMU_ORDER=$order "$work/$1" "$2" >"$work/said" 2>&1)
    code=$?
    [ $code -eq 0 ] && echo no && return
    grep "dev/cuda_on_cpu/faults.cu:$3\>" "$work/said" >"$work/lines" || { echo "code $code"; return; }
  done
  echo yes
}
# fault NUMBER FLAVOURS: each of them must name the line
fault() {
  mark=$(grep -n "// FAULT $1: " "$emulator/faults.cu")
  line=${mark%%:*} what=${mark##*// FAULT $1: }
  row="| $1 | $what |" bad=
  for flavour in fibers asan checked; do
    answer=$(how $flavour $1 $line 2>/dev/null)
    case " $2 " in *" $flavour "*)
      [ "$answer" = yes ] || bad="$bad $flavour: $answer; $(head -n 5 "$work/said")"
      message=$(grep -E -m 1 'cuda_on_cpu: |runtime error: |ERROR: AddressSanitizer: ' "$work/said") ;;
    esac
    row="$row $answer |"
  done
  message=$(echo "$message" | sed -e 's/0x[0-9a-f]\{9,\}/ADDRESS/g; s/^==[0-9]*==ERROR: //; s/^cuda_on_cpu: //' \
    -e 's|dev/cuda_on_cpu/||g; s| at pc ADDRESS.*||')
  [ -z "$table" ] || echo "$row \`$message\` |" >>"$table"
  check "fault $1, line $line: $what: found by $2" '[ -z "$bad" ] || { echo "missed by$bad"; exit 1; }'
  echo "         $message"
}
[ -z "$table" ] || printf '| | fault | fibers | asan | checked | message of the last that must find it |\n%s\n' \
  '|---|---|---|---|---|---|' >"$table"
fault 1 checked
fault 2 checked
fault 3 "fibers asan checked"
fault 4 "fibers asan checked"
fault 5 asan
fault 6 "fibers asan checked"
fault 7 checked
fault 8 checked
fault 9 checked
fault 10 checked
fault 11 "fibers asan checked"
fault 12 checked
fault 13 "fibers asan checked"
fault 14 asan
fault 15 "fibers asan checked"
fault 16 "fibers asan checked"
fault 17 checked
fault 18 checked
fault 19 "fibers asan checked"
fault 20 checked
fault 21 checked
fault 22 checked
fault 23 checked
check "races: the checker agrees with a model of 100 random kernels" 'compiled checked races races && "$work/races" 100'

planted=$(grep -c '// FAULT [0-9]*: ' "$emulator/faults.cu")
check "every planted fault is looked for" "[ $planted -eq $(grep -c '^fault [0-9]' "$0") ] || { echo $planted planted; exit 1; }"
report
