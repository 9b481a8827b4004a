#!/bin/sh
# fuzz.sh SECONDS [NAME...]: libFuzzer with AddressSanitizer and UBSan on what reads files (fuzz.cu), SECONDS for each
# target; all, or those named. Begins with the examples of test/fuzz/NAME, which stay as they are. What is found is printed
# with its bytes in base64. Needs clang++ with libFuzzer.
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: test/fuzz.sh SECONDS [json|options|tokenizer|shard|checkpoint]..." >&2; exit 2; }
seconds=$1
shift
[ $# -gt 0 ] || set -- json options tokenizer shard checkpoint
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_fuzz.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$here/.." || exit 2
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }' >"$work/probe.cc"
if ! clang++ -fsanitize=fuzzer "$work/probe.cc" -o "$work/probe" 2>"$work/log"; then
  echo "  skip fuzzers: clang++ with libFuzzer"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
clang++ -std=c++17 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -ffp-contract=off -w -I. \
  -Ilayers/plain -x c++ test/fuzz.cu -o "$work/fuzz" || exit 1
passed=0 failed=0
for name; do
  cp -r "test/fuzz/$name" "$work/$name"
  if (cd "$work" && FUZZ=$name ./fuzz -max_total_time="$seconds" -timeout=5 -rss_limit_mb=3000 -max_len=8192 \
    -print_final_stats=1 "$name") >"$work/log" 2>&1; then
    echo "  ok   $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log") inputs"
    passed=$((passed + 1))
  else
    grep -v '^#\|NEW_FUNC\|^INFO' "$work/log" | tail -n 40 | sed 's/^/    /'
    echo "  FAIL $name"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
