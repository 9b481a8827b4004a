#!/bin/sh
# methods.sh BINARY TRAIN VALID [STEPS [LAYERS [FOLDER]]]: every method of BINARY from the same seed on the same text:
# 12 layers, 128 channels, 300 steps unless given. Prints a table in Markdown: parameters added to the first method
# (prenorm), validation loss and bits per character over the whole of VALID. Leaves the runs in FOLDER
# (runs/methods-LAYERS-STEPS); a run that is there already is not repeated.
set -eu
[ $# -ge 3 ] || { echo "usage: methods.sh BINARY TRAIN VALID [STEPS [LAYERS [FOLDER]]]" >&2; exit 2; }
binary=$1 train=$2 valid=$3 steps=${4:-300} layers=${5:-12}
folder=${6:-runs/methods-$layers-$steps}
methods=$("$binary" methods --names)
mkdir -p "$folder"
fact() { sed -n "s/^  \"$2\": \([^,]*\),*$/\1/p" "$folder/$1/run.json"; }
base=
echo "| method | parameters added | validation loss, nats | bits per character |"
echo "|---|---|---|---|"
for method in $methods; do
  out=$folder/$method
  if ! grep -qs '"status": "finished"' "$out/run.json"; then
    rm -rf "$out"
    "$binary" --router "$method" --data "$train" --val "$valid" --layers "$layers" --channels 128 --heads 4 \
      --context 256 --batch 8 --steps "$steps" --eval-every 0 --out "$out" > "$out.log" 2>&1 ||
      { tail -n 3 "$out.log" >&2; exit 1; }
  fi
  [ -n "$base" ] || base=$(fact "$method" parameters)
  printf '| `%s` | %d | %.4f | %.4f |\n' "$method" $(($(fact "$method" parameters) - base)) \
    "$(fact "$method" final_validation_loss)" "$(fact "$method" final_bits_per_character)"
done
