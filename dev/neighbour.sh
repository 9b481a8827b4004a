#!/bin/sh
# neighbour.sh BINARY...: how fast training is on two cores beside other processes, which compute without end, each
# pinned to a core; several binaries alternate. Prints tokens a second over all steps but the first three, and after it
# the share of what the same binary does alone with two threads. Needs taskset (util-linux). About five minutes a binary;
# the machine should do nothing else. LIMIT (60) seconds is the most that one run may take.
set -eu
[ $# -ge 1 ] || { echo "usage: neighbour.sh BINARY..." >&2; exit 2; }
command -v taskset >/dev/null || { echo "neighbour: no taskset (Debian: package util-linux)" >&2; exit 1; }
limit=${LIMIT:-60}
work=$(mktemp -d "${TMPDIR:-/tmp}/wav_neighbour.XXXXXX")
busy=
quiet() {
  for pid in $busy; do kill "$pid" 2>/dev/null || :; done
  for pid in $busy; do wait "$pid" 2>/dev/null || :; done
  busy=
}
trap 'quiet; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

neighbour() {  # CORE NICE
  nice -n "$2" taskset -c "$1" sh -c 'while :; do :; done' &
  busy="$busy $!"
}
# BINARY THREADS: tokens a second, or 0 when the run did not end in time
speed() {
  rm -rf "$work/run"
  timeout "$limit" taskset -c 0,1 "$1" $shape --threads "$2" --out "$work/run" >"$work/log" 2>&1 || {
    [ $? -eq 124 ] || { tail -n 3 "$work/log" >&2; exit 1; }
  }
  sed -n 's/.*"step":\([0-9]*\),.*"tokens_per_second":\([0-9.e+]*\).*/\1 \2/p' "$work/run/log.jsonl" |
    awk '$1 > 3 { time += 1 / $2; n++ } END { printf "%.0f\n", n ? n / time : 0 }'
}
# NAME: all numbers of threads, every binary in turn
situation() {
  for threads in 2 1 3 8; do
    number=0
    for binary; do
      number=$((number + 1))
      rate=$(speed "$binary" "$threads")
      [ "$name" != alone ] || [ "$threads" -ne 2 ] || echo "$rate" >"$work/alone$number"
      alone=$(cat "$work/alone$number" 2>/dev/null || echo 0)
      awk -v r="$rate" -v a="$alone" -v n="$name" -v t="$threads" -v b="$binary" 'BEGIN {
        share = a > 0 ? sprintf("%.2f", r / a) : ""
        printf "  %-32s %d threads %9d tokens/s %5s  %s\n", n, t, r, share, b
      }'
    done
  done
}

sed -n 's/^model name[^:]*: /machine: /p' /proc/cpuinfo | head -n 1
for size in "12 128 4 128 20" "2 32 2 64 300"; do
  shape=$(echo "$size" | awk '{
    printf "--layers %d --channels %d --heads %d --context %d --batch 8 ", $1, $2, $3, $4
    printf "--eval-every 0 --steps %d --stop-after %d", $5 + 1, $5
  }')
  echo "$shape"
  rm -f "$work"/alone*
  name="alone" && situation "$@"
  name="beside one busy process" && neighbour 1 0 && situation "$@" && quiet
  name="beside one of lower priority" && neighbour 1 19 && situation "$@" && quiet
  name="beside two busy processes" && neighbour 0 0 && neighbour 1 0 && situation "$@" && quiet
done
