#!/bin/sh
# run.sh OUT essential|all|rest: every test program OUT/test_*, then whole runs (runs.sh), the CUDA kernels under the
# emulator (gpu.sh) and a study (study.sh); with all, also the larger sizes of test_bits, other compilers and instruction
# sets (in runs.sh), fuzzers (fuzz.sh) and planted faults (faults.sh). rest is what essential leaves out of all.
# Prints what failed and one line for each; everything is in OUT/log. The last line is `N passed, N failed` or
# `N passed, N failed, N skipped`.
# Exit code 1 if anything failed or crashed, 2 for wrong arguments.
here=$(cd "$(dirname "$0")" && pwd)
out=$1 mode=$2
case $#,$mode in
  2,essential | 2,all | 2,rest) ;;
  *) echo "usage: test/run.sh OUT essential|all|rest" >&2 && exit 2 ;;
esac
[ -d "$out" ] || { echo "run.sh: no folder $out; build first: make test" >&2; exit 2; }
out=$(cd "$out" && pwd)
mkdir -p "$out/log"
cd "$here/.." || exit 2  # where programs look for test/golden
passed=0 failed=0 skipped=0

# one NAME COMMAND...: runs it, adds up its closing line; a program that ends without one, or with a code that does not
# fit it, has crashed
one() {
  name=$1
  shift
  log=$out/log/$name.log
  start=$(date +%s)
  "$@" >"$log" 2>&1
  code=$?
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
  set -- $(echo "$line" | tr -cd '0-9 ')
  p=${1:-0} f=${2:-0} s=${3:-0}
  if [ -z "$line" ] || { [ "$code" -ne 0 ] && [ "$f" -eq 0 ]; }; then
    f=$((f + 1))
    echo "  FAIL $name ended with code $code and '$line'; the end of $log:"
    tail -n 15 "$log" | sed 's/^/    /'
  elif [ "$f" -ne 0 ]; then
    # the lines of a failure stand before its name
    awk '/^  (ok|skip)/ { text = ""; next }
      /^  FAIL/ { printf "%s%s\n", text, $0; text = ""; next }
      { text = text $0 "\n" }' "$log" | head -n 60
  fi
  grep '^  skip' "$log"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "$name: ${line:-crashed} ($(($(date +%s) - start)) s)"
}

for program in "$out"/test_*; do
  case $program in *.d | *'*') continue ;; esac
  [ -x "$program" ] || continue
  case ${program##*/} in
    test_bits) one test_bits "$program" $([ "$mode" = essential ] && echo essential || echo all) ;;
    *) [ "$mode" = rest ] || one "${program##*/}" "$program" ;;
  esac
done
if [ "$mode" != rest ]; then
  if command -v python3 >/dev/null; then one style python3 "$here/style.py"
  else echo "  skip style: python3" && skipped=$((skipped + 1)); fi
fi
one runs sh "$here/runs.sh" "$out" "$mode"
one gpu sh "$here/gpu.sh" "$out" "$mode"
[ "$mode" = rest ] || one study sh "$here/study.sh" "$out"
[ "$mode" = rest ] || one tutorial_pages sh "$here/tutorial.sh" check
if [ "$mode" != essential ]; then
  # of the faults in the routers a third; the commit chooses which
  one tutorial sh "$here/tutorial.sh"
  one fuzz sh "$here/fuzz.sh" 30
  one faults sh "$here/faults.sh" $(($(git rev-list --count HEAD 2>/dev/null || echo 0) % 3))
fi

[ "$skipped" -eq 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
