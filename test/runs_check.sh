# runs_check.sh: what runs.sh and its like are made of; read by `.`, POSIX sh.
#
#   check NAME COMMANDS       runs the commands in a fresh folder; ok or FAIL, and on failure what they printed
#   skip NAME WHAT            counted and named; WHAT is missing
#   run BUILD ARGS...         the program must succeed; stdout and stderr stay as files
#   train BUILD DIR ARGS...   run with the small model into DIR
#   pins BUILD [NAME...]      it must have the pinned bits of golden/checkpoints.txt, of these rows or of all
#   refused CODE BUILD ARGS, refused_train CODE BUILD DIR ARGS   the program must fail with this code
# BUILD is the name of a variable that holds the path of a program: plain, cpu.

work=$(mktemp -d "${TMPDIR:-/tmp}/wav_runs.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0 number=0
model="--layers 2 --channels 36 --heads 2 --context 33 --batch 8 --data stories:0.05 --steps 20"

check() {
  number=$((number + 1))
  mkdir "$work/$number"
  if (cd "$work/$number" && eval "$2") >"$work/output" 2>&1; then
    echo "  ok   $1"
    passed=$((passed + 1))
  else
    tail -n 25 "$work/output" | sed 's/^/    /'
    echo "  FAIL $1"
    failed=$((failed + 1))
  fi
  rm -rf "${work:?}/$number"
}
skip() {
  echo "  skip $1: $2"
  skipped=$((skipped + 1))
}
report() {
  if [ $skipped -eq 0 ]; then echo "$passed passed, $failed failed"
  else echo "$passed passed, $failed failed, $skipped skipped"; fi
  [ $failed -eq 0 ]
}

place() { eval "echo \"\$$1\""; }
run() {
  build=$1
  shift
  $under "$(place $build)" "$@" >stdout 2>stderr && [ ! -s stderr ] && return
  echo "code $? from: $build $*"
  tail -n 5 stdout && cat stderr
  return 1
}
# The options of the small model, but for those that stand among the arguments
others() {
  for name in layers channels heads context batch data steps; do
    case " $* " in *" --$name "*) ;; *) echo "$model" | grep -o -e "--$name [^ ]*" ;; esac
  done
}
train() {
  build=$1 folder=$2
  shift 2
  run $build $(others "$@") "$@" --out "$folder"
}
pins() {
  build=$1
  shift
  UNDER=$under sh "$here/pins.sh" "$(place $build)" "$@" >pins.log 2>&1 && return
  grep -v "^  ok" pins.log
  return 1
}
# Of golden/checkpoints.txt: the name of the first row of every method and of the last row, which has every detail
pinned_methods() {
  awk '!/^#/ { name = $3 } !/^#/ && !seen[$5]++ { print name } END { print name }' "$here/golden/checkpoints.txt" | uniq
}
pinned_options() {  # NAME: the options of that row, without the number of layers
  awk -v name="$1" '$3 == name { for (i = 4; i <= NF; i++) if ($i == "--layers") i++; else printf "%s ", $i }' \
    "$here/golden/checkpoints.txt"
}
refused() {
  want=$1 build=$2
  shift 2
  options=$*
  "$(place $build)" "$@" >stdout 2>stderr
  code=$?
  [ $code -eq $want ] && [ -s stderr ] && return
  echo "code $code, wanted $want, from: $build $options"
  tail -n 5 stdout && cat stderr
  return 1
}
refused_train() {  # CODE BUILD DIR ARGS
  code=$1 build=$2 folder=$3
  shift 3
  refused $code $build $(others "$@") "$@" --out "$folder"
}
one_line() {
  [ "$(wc -l <stderr)" -eq 1 ] && grep -q '^train_gpt: ' stderr && return
  echo "stderr should be one line:" && cat stderr
  return 1
}
says() {
  grep -q -e "$2" "$1" && return
  echo "$1 should say: $2" && tail -n 5 "$1"
  return 1
}

same() { cmp "$1/step_$3.safetensors" "$2/step_$3.safetensors"; }  # DIR DIR STEP
identical() { run cpu compare "$1" "$2" && says stdout '^identical: '; }
same_loss() {  # all digits of the last evaluation
  for d in "$1" "$2"; do grep '"final_validation_loss"' $d/run.json >$d.loss || return 1; done
  cmp $1.loss $2.loss
}
steps_logged() {  # DIR N: steps 1..N, each once
  seq "$2" >want && sed -n 's/^{"event":"step","step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" >have && cmp want have
}

# ---- bytes of a checkpoint
data_start() { echo $((8 + $(od -An -tu8 -N8 "$1"))); }
write_bytes() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }  # FILE OFFSET ESCAPES
infinite() { write_bytes "$1" $(($(data_start "$1") + 4 * $2)) '\000\000\200\177'; }  # FILE INDEX: that float is +inf
flip_bit() {  # the lowest bit of the byte at OFFSET
  byte=$(od -An -tu1 -j "$2" -N1 "$1")
  write_bytes "$1" "$2" "\\$(printf %03o $((byte % 2 ? byte - 1 : byte + 1)))"
}
# differs A B WHERE OFFSET SUMMARY: compare must say so, with the values and patterns of the float at OFFSET
differs() {
  "$cpu" compare "$1" "$2" >stdout 2>stderr
  [ $? -eq 1 ] && says stdout "$3" && says stdout "$5" || { cat stdout stderr; return 1; }
  for f in "$1" "$2"; do
    pattern=$(od -An -tx4 -j "$4" -N4 $f/step_2.safetensors | tr -d ' ')
    value=$(od -An -tf4 -j "$4" -N4 $f/step_2.safetensors)
    shown=$(sed -n "s/.*[: ]\([^ ]*\) (0x$pattern).*/\1/p" stdout)
    [ -n "$shown" ] && awk -v a="$value" -v b="$shown" 'BEGIN { d = a - b; exit !(d * d <= 1e-11 * a * a) }' || {
      echo "value $value, pattern $pattern, in:" && cat stdout
      return 1
    }
  done
}
