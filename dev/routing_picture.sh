#!/bin/sh
# routing_picture.sh BINARY TRAIN VALID [FOLDER]: the picture of README.md: trains WAV (12 layers, 128 channels, 300
# steps) on TRAIN, looks at its routing on the first 500,000 bytes of VALID, draws dev/wav_routing.png. Needs python3
# with matplotlib. FOLDER: runs/routing-picture
set -eu
[ $# -ge 3 ] || { echo "usage: routing_picture.sh BINARY TRAIN VALID [FOLDER]" >&2; exit 2; }
folder=${4:-runs/routing-picture}
here=$(dirname "$0")
mkdir -p "$folder"
head -c 500000 "$3" > "$folder/valid.txt"
grep -qs '"status": "finished"' "$folder/run/run.json" ||
  "$1" --router wav --data "$2" --val "$folder/valid.txt" --layers 12 --channels 128 --heads 4 --context 256 --batch 8 \
    --steps 300 --eval-every 25 --eval-tokens 32768 --out "$folder/run"
"$1" routes "$folder/run" --eval-tokens 65536
python3 "$here/plot.py" routes "$folder/run" -o "$here/wav_routing.png"
