#!/bin/sh
# faults.sh [0|1|2 | NUMBER or WORD...]: plants the faults of test/faults, one at a time, in a copy of the tree: each
# must compile and make the test fail that its row names (test_faults.cu tells the format); where the row names no case,
# any case will do, and the first that fails is printed. All at -O0, two at a time.
#   0, 1, 2       of the rows that name no case only every third, those whose number leaves this rest
#   NUMBER, WORD  only these faults, by the number that `test_faults --list` gives them or a word of what they are
# That all of them still apply is a test of its own: make test_faults. Ends with `N passed, N failed`.
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_faults.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
native=-march=native
[ "$(uname -m)" = x86_64 ] || native=-mcpu=native
flags="-std=c++17 -O0 $native -pthread -ffp-contract=off -fno-math-errno -w"

# the goldens alone notice most faults of the routers, in a third of the time of test_routers
cat >"$work/goldens.cu" <<'END'
#include "test/routers_gradients.h"
int main() {
  for (const char *name : routers::GOLDENS) routers::golden_gradients(name);
  return check::report();
}
END
for header in algorithm charconv chrono cmath fstream map memory set sstream stdexcept string string_view vector; do
  echo "#include <$header>"
done >"$work/common.h"
${CXX:-g++} $flags -x c++-header "$work/common.h" -o "$work/common.h.gch" || exit 2
${CXX:-g++} $flags -I"$root" -x c++ "$root/test/test_faults.cu" -o "$work/test_faults" || exit 2
(cd "$root" && "$work/test_faults" table) >"$work/table" || exit 2

copied() {  # TREE: what programs are compiled from
  mkdir "$1" "$1/test" && cd "$root" && cp -p ./*.cuh "$1" && cp -p test/*.cu test/*.h "$1/test" || return
  for folder in layers routers runtime; do [ ! -d $folder ] || cp -rp $folder "$1" || return; done
  ln -s "$root/test/golden" "$1/test" && cd "$1"
}
compiled() {  # PROGRAM: test_PROGRAM of the folder it is in
  build=plain source=test/test_$1.cu
  case $1 in bits | mixer_bits) build=cpu ;; goldens) source=$work/goldens.cu ;; esac
  ${CXX:-g++} $flags -I. -Ilayers/$build -I"$work" -include common.h -x c++ "$source" -o "test_$1" >log 2>&1
}
how() { [ "$1" != bits ] || echo quick; }  # much of a program is run
result() { if [ "$1" = ok ]; then echo "  ok   $2"; else echo "  FAIL $2"; fi; }
# the case must fail that the row names; the program runs no other
expects() {  # PROGRAM CASE WHAT
  compiled "$1" || { result no "$3: does not compile: $(grep -m 1 error log)"; return; }
  timeout 300 "./test_$1" $(how "$1") "$2" >out 2>&1
  code=$?
  if [ $code -eq 1 ] && grep -a -q -F -e "  FAIL $2" out; then result ok "$3 -> $1: $2"
  else grep -a -v '^  ok' out | tail -n 5 && result no "$3: test_$1 ended with code $code, and no case failed that begins: $2"; fi
}
# stops at the first case that fails; a program that crashes has noticed too
notices() {  # PROGRAM WHAT
  programs=$1
  [ "$1" = routers ] && programs="goldens routers"
  for program in $programs; do
    compiled $program || { result no "$2: does not compile: $(grep -m 1 error log)"; return; }
    caught=$({ timeout 300 ./test_$program || echo "  FAIL ended with code $?"; } 2>&1 | grep -a -m 1 '^  FAIL')
    [ -z "$caught" ] || { result ok "$2 -> $program: ${caught#  FAIL }"; return; }
  done
  result no "$2: no test fails"
}
planted() {  # NUMBER PROGRAM CASE WHAT
  copied "$work/$1" || exit 2
  if ! (cd "$root" && "$work/test_faults" apply "$1" "$work/$1") >log 2>&1; then
    cat log && result no "$4: does not apply"
  elif [ -n "$3" ]; then expects "$2" "$3" "$4"
  else notices "$2" "$4"; fi >"$work/$1.result"
  cd "$work" && rm -rf "${work:?}/$1"
}
passes() {  # NUMBER PROGRAM: without a fault
  copied "$work/$1" || exit 2
  set -- "$1" "$2" "$2 passes as it is, in the cases that its faults name"
  awk -F '\t' -v program="$2" '$2 == program && $3 != "" { print $3 }' "$work/rows" | sort -u >cases
  if compiled "$2" && tr '\n' '\0' <cases | xargs -0 "./test_$2" $(how "$2") >log 2>&1; then result ok "test_$3"
  else tail -n 5 log && result no "test_$3"; fi >"$work/$1.result"
  cd "$work" && rm -rf "${work:?}/$1"
}

# ---- which, and by two workers
meant() {  # THE ARGUMENTS
  case $#,$1 in
    0,*) cat "$work/table" ;;
    1,[012]) awk -F '\t' -v rest="$1" '$3 != "" || $1 % 3 == rest' "$work/table" ;;
    *) for word; do awk -F '\t' -v w="$word" '$1 == w || index($4, w)' "$work/table"; done | sort -n -u ;;
  esac
}
meant "$@" >"$work/rows"
[ -s "$work/rows" ] || { echo "faults.sh: no fault is meant by: $*; make test_faults ONLY=--list tells them" >&2; exit 2; }
# without a fault the programs must pass the cases that the rows name
awk -F '\t' '$3 != "" { print $2 }' "$work/rows" | sort -u | while read -r program; do
  printf 'as_it_is_%s\t%s\t\t\n' "$program" "$program"
done | cat - "$work/rows" | tr '\t' '|' >"$work/jobs"
worker() {  # 0 or 1: every second line
  awk -v w="$1" 'NR % 2 == w' "$work/jobs" | while IFS='|' read -r number program expected what; do
    case $number in as_it_is*) passes "$number" "$program" ;; *) planted "$number" "$program" "$expected" "$what" ;; esac
  done
}
worker 0 & worker 1 & wait

passed=0 failed=0
while IFS='|' read -r number rest; do
  [ -s "$work/$number.result" ] || result no "fault $number ($rest): no result" >"$work/$number.result"
  cat "$work/$number.result"
  if grep -a -q '^  ok' "$work/$number.result"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done <"$work/jobs"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
