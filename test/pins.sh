#!/bin/sh
# pins.sh PROGRAM [NAME...]: trains every row of golden/checkpoints.txt for 5 steps with PROGRAM (any build) and compares
# the SHA-256 of the checkpoint with the one pinned there, once of the tensors' bytes alone (parameters and moments) and
# once of the whole file (configuration and names too). One line per row, then the sum. A new option in the configuration
# changes the second alone; a change of the first is a change of the trained bits: a new float order, never a new pin.
# UNDER=qemu-aarch64 in the environment runs PROGRAM under that.
#   pins.sh PROGRAM --print prints the rows anew, for rows that are added (their hashes are then to be agreed by all builds)
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] && [ -x "$1" ] || { echo "usage: pins.sh PROGRAM [--print | NAME...]" >&2; exit 2; }
program=$(cd "$(dirname "$1")" && pwd)/${1##*/}
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_pins.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 2
common="--data stories:0.02 --split 96/2/2 --channels 40 --heads 4 --context 20 --batch 6 --micro-batch 4 --steps 5"
sha256() { sha256sum | cut -c 1-64; }
passed=0 failed=0
grep -v '^#' "$here/golden/checkpoints.txt" >rows
while read -r tensors file name options; do
  case $* in '' | --print | "$name" | "$name "* | *" $name" | *" $name "*) ;; *) continue ;; esac
  rm -rf run
  # shellcheck disable=SC2086
  if ! $UNDER "$program" $common $options --out run >log 2>&1 </dev/null; then
    echo "    it ended with code $?"
    tail -n 3 log
    found=none whole=none
  else
    checkpoint=run/step_5.safetensors
    found=$(tail -c +$((9 + $(od -An -tu8 -N8 $checkpoint))) $checkpoint | sha256)
    whole=$(sha256 <$checkpoint)
  fi
  if [ "$1" = --print ]; then
    echo "$found $whole $name $options"
  elif [ "$found $whole" = "$tensors $file" ]; then
    echo "  ok   $name"
    passed=$((passed + 1))
  else
    what="the trained bits differ"
    [ "$found" = "$tensors" ] && what="the trained bits are right, the configuration in the file differs"
    echo "    pinned $tensors $file"
    echo "    found  $found $whole"
    echo "  FAIL $name ($options): $what"
    failed=$((failed + 1))
  fi
done <rows
[ "$1" = --print ] && exit 0
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
