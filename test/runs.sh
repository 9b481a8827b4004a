#!/bin/sh
# runs.sh OUT essential|all|rest: whole runs of OUT/train_gpt_plain and OUT/train_gpt_cpu (runs_essential.sh,
# runs_state.sh); `all` adds the same runs by other compilers and instruction sets (builds.sh), `rest` is these alone. One
# line per check, then the sum.
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 2 ] || { echo "usage: test/runs.sh OUT essential|all|rest" >&2; exit 2; }
out=$(cd "$1" && pwd) && mode=$2 || exit 2
root=$(dirname "$here")
. "$here/runs_check.sh"
plain=$out/train_gpt_plain cpu=$out/train_gpt_cpu
for program in "$plain" "$cpu"; do
  [ -x "$program" ] || { echo "runs.sh: $program is missing; build it: make plain cpu" >&2; exit 2; }
done

[ "$mode" = rest ] || for part in essential state; do . "$here/runs_$part.sh"; done
[ "$mode" = essential ] || . "$here/builds.sh"
report
