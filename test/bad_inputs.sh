#!/bin/sh
# bad_inputs.sh PROGRAM [WORD...]: every row of bad_inputs.txt: what PROGRAM (any build) makes of input that is wrong. It must
# end within 20 s, by itself, with the code of the row and a message that says what the row says; each line of it begins
# with the name of the program. With words: only the rows that contain one.
#
# A row:  CODE | FRAGMENT | ARGUMENTS | PREPARATION
# FRAGMENT is a basic regular expression; ARGUMENTS are read by the shell, so quotes and redirections may stand there. The
# preparation runs in a fresh folder that holds copies of: a (a run of a small model, stopped at step 2 of 4, with a/c its
# checkpoint under a short name), w (likewise wav), t.txt (a text), s.bin and v.bin (shards of 4000 and 2000 tokens below 50),
# tok/ (the same shards with a tokenizer.bin of 50 tokens). It may use:
#   head FILE SED          edits the header of a checkpoint
#   at FILE OFFSET BYTES   writes bytes, as printf takes them
#   cut FILE N             the first N bytes stay
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] && [ -x "$1" ] || { echo "usage: test/bad_inputs.sh PROGRAM [WORD...]" >&2; exit 2; }
program=$(cd "$(dirname "$1")" && pwd)/${1##*/}
shift
export OMP_WAIT_POLICY=passive
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_bad.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
model="--layers 2 --channels 8 --heads 2 --context 16 --batch 2 --steps 4 --data t.txt --threads 1"

little() {  # N BYTES: N as that many bytes, little endian
  n=$1 bytes=$2
  while [ "$bytes" -gt 0 ]; do
    printf "\\$(printf %03o $((n % 256)))"
    n=$((n / 256)) bytes=$((bytes - 1))
  done
}
head() {  # the data behind it keep their bytes
  length=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  tail -c +9 "$1" | command head -c "$length" | LC_ALL=C sed "$2; s/ *\$//" >header
  while [ $((($(wc -c <header) + 8) % 256)) -ne 0 ]; do printf " " >>header; done
  { little "$(wc -c <header)" 8 && cat header && tail -c +$((9 + length)) "$1"; } >edited && mv edited "$1" && rm header
}
at() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
cut() { command head -c "$2" "$1" >short && mv short "$1"; }
tokenizer() {  # of 50 tokens of one byte
  little 20240328 4 && little 2 4 && little 50 4 && little 49 4 && command head -c 1008 /dev/zero
  awk 'BEGIN { for (i = 0; i < 50; i++) printf "\001%c", 65 + i }'
}

mkdir "$work/row" && cd "$work/row" || exit 2
cat "$here/README.md" "$here/check.h" | tr -cd "a-z \n" >t.txt
awk 'BEGIN { for (i = 0; i < 4000; i++) print i % 49 + 1 }' >numbers
shorts() { while read -r n; do printf "\\$(printf %03o "$n")\\000"; done; }
{ little 20240520 4 && little 1 4 && little 4000 4 && command head -c 1012 /dev/zero && shorts <numbers; } >s.bin
{ little 20240520 4 && little 1 4 && little 2000 4 && command head -c 1012 /dev/zero && command head -n 2000 numbers | shorts; } >v.bin
mkdir tok && cp s.bin v.bin tok && tokenizer >tok/tokenizer.bin
for run in a w; do
  [ $run = a ] && router="" || router="--router wav"
  "$program" $model $router --stop-after 2 --out $run >log 2>&1 || { cat log; exit 1; }
  cp $run/step_2.safetensors $run/c
done

cp -rp "$work/row" "$work/start"

passed=0 failed=0
while IFS= read -r row; do
  case $row in '' | '#'*) continue ;; *"ulimit -v"*) [ -z "$SANITIZED" ] || continue ;; esac
  if [ $# -gt 0 ]; then
    found=
    for word; do case $row in *"$word"*) found=1 ;; esac; done
    [ -n "$found" ] || continue
  fi
  code=${row%%" | "*} rest=${row#*" | "}
  fragment=${rest%%" | "*} rest=${rest#*" | "}
  case $rest in *" | "*) arguments=${rest%%" | "*} preparation=${rest#*" | "} ;; *) arguments=$rest preparation=: ;; esac
  rm -rf "$work/row" && cp -rp "$work/start" "$work/row" && cd "$work/row" || exit 2
  (eval "$preparation" && eval "timeout 20 \"\$program\" $arguments") </dev/null >"$work/stdout" 2>"$work/stderr"
  got=$?
  if [ $got -eq "$code" ] && grep -q -e "$fragment" "$work/stderr" && [ -s "$work/stderr" ] &&
    ! grep -v -q -e '^train_gpt: ' -e '^note: ' "$work/stderr"; then
    passed=$((passed + 1))
  else
    echo "    code $got: $(command head -c 600 "$work/stderr")"
    echo "  FAIL $row"
    failed=$((failed + 1))
  fi
done <"$here/bad_inputs.txt"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
