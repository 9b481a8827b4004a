#!/bin/sh
# demo.sh BINARY: what `make demo` does, in about two minutes on two cores. Makes stories, trains a small model on them,
# evaluates it on stories it has not seen, lets it write one, and plots the loss where matplotlib is installed.
# Needs sh and the binary; python3 with matplotlib for the plot. Leaves runs/demo, which a later demo replaces.
set -eu
[ $# -eq 1 ] || { echo "usage: demo.sh BINARY" >&2; exit 2; }
binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ -x "$binary" ] || { echo "demo.sh: $1: not a program; \`make cpu\` builds build/train_gpt_cpu" >&2; exit 2; }
cd "$(dirname "$0")/.."
run=runs/demo

say() { printf '\n== %s\n' "$1"; }

say "training WAV with 4 layers of 128 channels on the built-in stories, about 90 seconds on two cores"
rm -rf "$run"
"$binary" train --out "$run" --split 98/1/1 --router wav --block 4 --layers 4 --channels 128 --heads 4 --context 256 \
  --batch 4 --lr 2e-3 --steps 1700 --eval-every 300 --eval-tokens 32768 --max-minutes 2
if grep -q '"status": *"stopped"' "$run/run.json"; then
  echo "The two minutes of the demo are over, or it was interrupted. The model so far is saved, and used below."
fi

say "loss on stories the training has not seen (the test part)"
"$binary" eval "$run" --part test

say "a story by the model, after the prompt 'One day, there was a little'"
"$binary" sample "$run" --prompt 'One day, there was a little' --tokens 500 --temperature 0.6

say "plot"
if ! command -v python3 > /dev/null; then
  echo "python3 is not installed: no plot"
elif ! python3 -c 'import matplotlib' 2> /dev/null; then
  echo "matplotlib is not installed: no plot (pip install matplotlib, then: python3 dev/plot.py $run)"
else
  python3 dev/plot.py "$run"
fi

say "files left in $run"
wc -c "$run"/*
cat <<END

More: $1 sample $run --prompt TEXT      $1 show $run
      $1 --data FILE --out runs/mine    trains on a text of yours; $1 --help tells the rest
END
