#!/bin/sh
# study.sh OUT: dev/study.py on a tiny grid, whole, killed at random moments and resumed, paused; dev/report.py, every figure of
# which study_check.py computes again from log.jsonl; dev/plot.py; dev/experiments.py. Takes the cpu build of OUT.
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
[ $# -eq 1 ] && [ -x "$1/train_gpt_cpu" ] || { echo "usage: test/study.sh OUT, the folder of train_gpt_cpu" >&2; exit 2; }
cpu=$(cd "$1" && pwd)/train_gpt_cpu
export PYTHONDONTWRITEBYTECODE=1
. "$here/runs_check.sh"
command -v python3 >/dev/null || { skip "the study" python3 && report; exit; }

table=$here/study.table go=
# FOLDER ARGS...: the study of the table; its runs and records lie in FOLDER. go=exec: it takes the place of a subshell
study() {
  folder=$1
  shift
  $go python3 "$root/dev/study.py" "${use:-$table}" --binary "$cpu" --runs "$folder/runs" --records "$folder/records" --jobs 2 --nice 1 \
    --save-every 10 --poll 0.05 "$@"
}
# what a record must have in common with that of a run that was never stopped: all but times and memory
science() { grep -v -e _seconds -e peak_bytes -e '"finished"' "$1"; }

whole=$work/whole
all_runs() {
  study "$whole" && [ "$(ls "$whole/records" | wc -l)" -eq 20 ] && study "$whole" --list | grep '^20 finished, 0 to do$' &&
    grep '"lr": 0.001' "$whole/records/depth2-wav-seed1.json" && grep '"data-seed": 102' "$whole/records/depth4-again-seed2.json"
}
again() {  # nothing is run twice; records alone are enough
  rm -rf "$whole.more" && mkdir "$whole.more" && cp -r "$whole/records" "$whole.more" &&
    study "$whole.more" --resume && [ "$(ls "$whole.more/runs")" = lock ] || return 1
  study "$whole" && return 1
  [ $? -eq 2 ]
}
killed() {  # KILL, TERM and INT in turn after 0.2 to 1.3 s, until it is through; the runs die with the study
  for moment in 4 11 2 9 6 3 13 8; do
    go=exec study "$work/killed" --resume >>log 2>&1 &
    sleep "$((moment / 10)).$((moment % 10))"
    signal=$(echo KILL TERM INT | cut -d' ' -f$((moment % 3 + 1)))
    kill -$signal $! 2>/dev/null
    wait $!
  done
  study "$work/killed" --resume >>log || { cat log && return 1; }
  for record in "$whole"/records/*.json; do
    science "$record" >a && science "$work/killed/records/${record##*/}" >b && diff a b || return 1
  done
  python3 "$here/study_check.py" logs "$work/killed/runs"
}
until_true() {  # CONDITION: within 20 seconds
  for _ in $(seq 400); do
    eval "$1" && return
    sleep 0.05
  done
  echo "not within 20 seconds: $1" && return 1
}
paused() {
  touch stop
  go=exec study here --pause-file stop >log 2>&1 &
  pid=$!
  until_true 'grep -q paused log' && sleep 0.2 && [ ! -e here/runs/depth2-prenorm-seed1 ] && rm stop &&
    until_true 'cat here/runs/*/log.jsonl 2>/dev/null | grep -q .' && touch stop && until_true '[ $(grep -c paused log) -eq 2 ]' &&
    cat here/runs/*/log.jsonl >a && sleep 0.5 && cat here/runs/*/log.jsonl >b
  still=$?
  kill $pid
  wait $pid
  [ $? -eq 3 ] && [ $still -eq 0 ] && cmp a b || { cat log && return 1; }
}
refused_table() {  # TEXT MESSAGE: a line that the table must not hold
  { cat "$table" && echo "$1"; } >bad.table
  use=bad.table study bad >out 2>&1 && return 1
  [ $? -eq 2 ] && grep -e "$2" out || { cat out && return 1; }
}
bad_tables() {
  refused_table 'what is this' 'bad.table:18: not understood' && refused_table 'depth 2: --layers 3' 'is there already' &&
    refused_table 'noise again nothing' 'no value nothing' && refused_table 'loop seed' 'loop must name every axis' &&
    refused_table 'all: layers 3' 'expected --OPTION' && refused_table 'all: --layres 3' 'layres' &&
    refused_table 'depth 3: --layers 0' 'depth3-prenorm-seed1'
}
other_options() {  # a record of the same name and other options is no record of this run
  sed 's/--steps 80/--steps 81/' "$table" >other.table
  use=other.table study "$whole" --resume >out 2>&1 && return 1
  grep 'other options' out
}
failing() {  # a run that fails leaves the others alone
  sed -e 's/^all: --channels/all: --clip 0 --channels/' -e 's/^depth 4: /depth 4: --lr 1e3 --weight-decay 1e3 /' "$table" >bad.table
  use=bad.table study bad >log 2>&1 && return 1
  [ $? -eq 1 ] && ls bad/records | grep -c depth2 | grep -x 12 && grep '^.*failed: .*depth4' log
}
options_again() {  # run.json's options, given back, make the same file
  run=$whole/runs/depth4-wav-seed2
  python3 "$here/study_check.py" options "$run/run.json" >again.options && run cpu --options again.options --out again &&
    cmp "$run/step_80.safetensors" again/step_80.safetensors
}
listed() {
  python3 "$root/dev/experiments.py" "$cpu" "$table" >out && grep '^study.table: 20 runs$' out && grep '  depth 4 wav  *2  ' out &&
    python3 "$root/dev/experiments.py" "$cpu" >out && grep '^paper.table: 90 runs$' out
}
check "study: a grid, a record of each run" all_runs
check "study: a run that has a record is not run again; a begun study needs --resume" again
check "study: killed and stopped at 8 moments, resumed: equal records, logs without gaps or repeats" killed
check "study: a pause file stops the runs" paused
check "study: wrong tables are refused with their line, wrong options with their run" bad_tables
check "study: a record with other options is refused" other_options
check "study: run.json given back as options gives the same file" options_again
check "report: verdicts follow from the intervals, those from tables of t" 'python3 "$here/study_check.py" verdicts "$table" "$whole/records" made'
check "experiments: parameters and FLOPs of every file" listed

figures() {
  cat >"$whole/records/times.txt" <<END
methods C=16 L=2 T=16 B=2, blocks of 2 sublayers: whole step relative to prenorm
  method             time    (lowest to highest) parameters +   memory
  block        ~    1.500       (1.100 to 1.700)           96    1.10x
END
  python3 "$root/dev/report.py" "$table" --records "$whole/records" --markdown page.md --html "$work/page.html" >out &&
    grep '^20 of 20 runs$' out && python3 "$here/study_check.py" report page.md "$table" "$whole/runs" page
}
partial() {  # without interval below three seeds, and no verdict
  mkdir records && cp "$whole"/records/*seed[12].json records && rm records/depth2-wav-seed2.json &&
    python3 "$root/dev/report.py" "$table" --records records --markdown page.md --html page.html && grep 'Partial: 15 of 20' page.md &&
    grep 'cannot yet say it' page.md && ! grep '\[[-+][0-9.]*, [-+]' page.md && ! grep -i nan page.md
}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
html_of() {
  python3 "$here/study_check.py" html "$1" || return 1
  [ -z "$browser" ] || ! "$browser" --headless --no-sandbox --enable-logging=stderr --dump-dom "$1" 2>&1 >dom | grep CONSOLE
}
plots() {
  python3 "$here/study_check.py" plot "$whole/runs/depth4-wav-seed1" &&
    python3 "$root/dev/plot.py" --hours "$whole"/runs/depth4-*-seed1 -o a.png && python3 "$root/dev/plot.py" --band "$whole"/runs/*-seed? -o b.png &&
    [ -s a.png ] && [ -s b.png ]
}
if python3 -c 'import matplotlib' 2>/dev/null; then
  check "report: every figure again from log.jsonl by other code" figures
  check "report: of a partial study no intervals and no verdict" partial
  check "report: the HTML page is well formed and holds what it refers to" "html_of '$work/page.html'"
  check "plot: steps where they are, seeds as a band" plots
else
  skip "report and plots" matplotlib
fi
report
