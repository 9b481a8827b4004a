# runs_state.sh: read by runs.sh. State is never lost: what is on the disk when a run is stopped, killed or goes wrong.

# A validation text of ten million bytes: an evaluation of all of it takes longer than a signal to arrive
half="--data stories:20 --split 50/50/0"
long_text="$half --eval-tokens 100000000"
begin() {  # DIR ARGS...: train in the background, for at most a minute; its number is in $process
  folder=$1
  shift
  (ulimit -t 20 && exec "$cpu" $(others "$@") "$@" --out "$folder") >"$folder.out" 2>"$folder.err" &
  process=$!
}
until_true() {  # CONDITION, at most 20 s
  waited=0
  until eval "$1"; do
    [ $waited -lt 400 ] || { echo "it never came true: $1"; return 1; }
    sleep 0.05
    waited=$((waited + 1))
  done
}
ends_with() {  # CODE, of $process
  wait $process
  code=$?
  [ $code -eq $1 ] || { echo "exit code $code, wanted $1"; return 1; }
}
letters() { cat "$@" | tr -cd "a-z \n"; }  # of files: a text whose parts have the same bytes
status() { says "$1/run.json" "\"status\": \"$2\""; }  # DIR STATUS
newest() { ls "$1" | sed -n 's/^step_\([0-9]*\).safetensors$/\1/p' | sort -n | tail -n 1; }
events() { grep -c "{\"event\":\"$2\",\"step\":$3," "$1/log.jsonl"; }  # DIR KIND STEP: how many

check "a checkpoint stands before every evaluation and sample; the newest two are kept, or as many as asked" '
  train cpu a --eval-every 5 && [ "$(ls a | grep -c step_)" -eq 2 ] && [ -e a/step_15.safetensors ] &&
    train cpu b --sample-every 5 --keep 0 && [ "$(ls b | grep -c step_)" -eq 4 ] && same a b 20 &&
    train cpu c --save-minutes 1e-9 --keep 3 && [ "$(ls c | grep -c step_)" -eq 3 ] && same a c 20'
check "kill -9 in an evaluation loses nothing: resumed, the evaluation is made up for, the same file" '
  begin k $long_text --eval-every 5 && until_true "[ -e k/step_5.safetensors ]" && kill -9 $process
  ends_with 137 && [ "$(newest k)" -eq 5 ] && run cpu --resume k --eval-every 5 --final-tokens 99 &&
    [ $(events k eval 5) -eq 1 ] && [ $(events k routes 5) -eq 1 ] && steps_logged k 20 &&
    train cpu whole $half --eval-every 5 --final-tokens 99 && same k whole 20'
for signal in TERM HUP INT; do
  if [ $signal = HUP ] && sh -c 'kill -HUP $$; :' 2>/dev/null; then
    skip "SIGHUP in an evaluation" "SIGHUP, which is ignored here (nohup)"
    continue
  fi
  check "SIG$signal in an evaluation: left at once, exit 3; resumed and finished, exit 0" '
    begin s $long_text --eval-every 5 && until_true "[ -e s/step_5.safetensors ]" && sleep 0.2 && kill -$signal $process
    ends_with 3 && status s stopped && says s.out "by SIG$signal" && [ ! -s s.err ] && [ $(events s eval 5) -eq 0 ] &&
      run cpu --resume s --final-tokens 99 && status s finished && steps_logged s 20'
done
check "SIGTERM in the last evaluation: exit 3, the state is there; resumed: evaluated, exit 0" '
  begin s $long_text && until_true "[ -e s/step_20.safetensors ]" && sleep 0.2 && kill -TERM $process
  ends_with 3 && status s stopped && [ "$(newest s)" -eq 20 ] && cp s/step_20.safetensors before || exit 1
  run cpu --resume s --final-tokens 99 && status s finished && [ $(events s eval 20) -eq 1 ] &&
    cmp before s/step_20.safetensors && refused 1 cpu --resume s && one_line && says stderr "the run is finished"'
check "SIGTERM while it writes a sample: exit 3" '
  begin s --sample-every 5 --tokens 1000000 && until_true "[ -e s/step_5.safetensors ]" && sleep 0.2 &&
    kill -TERM $process
  ends_with 3 && status s stopped && run cpu --resume s && status s finished'
check "a second signal ends the process at once; two of the same moment are one" '
  begin s $long_text --batch 4096 --micro-batch 4096 --steps 2 && until_true "[ -e s/run.json ]" && kill -TERM $process &&
    sleep 0.5 && kill -TERM $process
  ends_with 143 || exit 1
  begin t --steps 100000 --eval-every 0 && until_true "[ -s t/log.jsonl ]" && kill -TERM $process && kill -TERM $process
  ends_with 3'
# killed again and again at moments that differ, and resumed: over several epochs, through saves, evaluations and samples
killed_often() {  # METHOD TIMES
  options="--router $1 --steps 400 --save-every 7 --eval-every 20 --eval-tokens 99 --sample-every 30 --tokens 9 --final-tokens 99"
  begin k $options
  for moment in $(awk -v n="$2" -v m="$1" 'BEGIN { srand(length(m)); while (n--) print 0.02 + 0.2 * rand() }'); do
    until_true "[ -s k/log.jsonl ]" && sleep $moment && kill -9 $process 2>/dev/null
    wait $process
    again=--resume
    [ -n "$(newest k)" ] || again=
    (ulimit -t 20 && exec "$cpu" $(others $options) $options --out k $again) >k.out 2>&1 &
    process=$!
  done
  wait $process || [ "$(newest k)" -eq 400 ] || { cat k.out; return 1; }
  train cpu whole $options && same k whole 400 && steps_logged k 400 && status k finished || return 1
  for step in $(seq 20 20 400); do
    [ $(events k eval $step) -eq 1 ] && [ $(events k routes $step) -eq 1 ] || { echo "evaluations at $step"; return 1; }
  done
  [ -z "$(ls k | grep tmp)" ]
}
for name in prenorm attnres wav; do
  check "$name: killed -9 at 7 moments and resumed each time: the same file, a log without gaps or repeats" "killed_often $name 7"
done
check "the folder is removed under the run: the first reason is said, exit 1" '
  begin s --steps 100000 --eval-every 0 --save-every 1000 && until_true "[ -s s/log.jsonl ]" && rm -r s
  ends_with 1 && mv s.err stderr && one_line && says stderr "cannot create s/step_1000.safetensors.tmp"'
check "SIGUSR1 saves and the run goes on" '
  begin s --steps 100000 --eval-every 0 && until_true "[ -s s/log.jsonl ]" && kill -USR1 $process &&
    until_true "ls s/step_*" && kill -TERM $process
  ends_with 3 && says s.out "saved after step" && [ "$(ls s | grep -c step_)" -ge 1 ]'
check "--max-minutes is kept in an evaluation too, exit 3; --stop-after, exit 0" '
  begin s $long_text --eval-every 5 --max-minutes 0.02
  ends_with 3 && [ "$(newest s)" -eq 5 ] && status s stopped && train cpu t --stop-after 7 && status t stopped'
check "nohup stays: a SIGHUP that was ignored before is ignored" '
  (trap "" HUP; ulimit -t 20; exec "$cpu" $(others --steps 100000) --steps 100000 --eval-every 0 --out s >s.out 2>&1) & process=$!
  until_true "[ -s s/log.jsonl ]" && kill -HUP $process && sleep 0.5 && kill -0 $process && kill -TERM $process
  ends_with 3'
# what becomes of a bad value in a file: its place is named by every command, and nothing is written
check "a file with an infinity: eval, sample, routes, show, --init-from and --resume name tensor and index, exit 1" '
  train cpu a --steps 4 --stop-after 2 && f=a/step_2.safetensors && infinite $f 41 && cp $f bad || exit 1
  for command in "eval a" "sample a" "routes a" "show a" "--resume a" "$model --init-from $f --out n"; do
    refused 1 cpu $command && one_line && says stderr "embed\[41\] = \[1,5\] is inf" || exit 1
  done
  cmp $f bad && [ -z "$(ls n 2>/dev/null | grep safetensors)" ]'
# a first moment near the largest float: the parameter becomes infinite in the next step
check "a parameter that becomes infinite is not saved, at the end neither: exit 1, the good file stays" '
  for last in 3 6; do
    train cpu a --steps $last --stop-after 2 && f=a/step_2.safetensors &&
      write_bytes $f $(($(data_start $f) + ($(wc -c <$f) - $(data_start $f)) / 3)) "\\000\\000\\000\\177" && cp $f good &&
      refused 1 cpu --resume a && one_line && says stderr "the parameter embed\[0\] = \[0,0\] is -inf" &&
      says stderr "of step 2, is good" && status a failed && [ "$(newest a)" -eq 2 ] && cmp good $f && rm -r a || exit 1
  done'
check "bad tokens of the validation text lose nothing: the state is saved, exit 1" '
  printf "\210\330\064\001\001\000\000\000\240\017\000\000" >v.bin && head -c 1012 /dev/zero >>v.bin && cp v.bin t.bin &&
    head -c 8000 /dev/zero >>t.bin && head -c 7000 /dev/zero >>v.bin && head -c 1000 /dev/zero | tr "\000" "\377" >>v.bin &&
    refused_train 1 cpu a --data t.bin --val v.bin --eval-every 5 --eval-tokens 99 && one_line &&
    says stderr "v.bin: token 65535 at offset 8024" && [ "$(newest a)" -eq 20 ] && status a failed'

# ---- one run, one folder

check "two runs in one folder: the second says so, exit 1, and changes nothing; after kill -9 the folder is free" '
  begin s --steps 100000 --eval-every 0 --save-every 1 && until_true "ls s/step_*" || exit 1
  refused_train 1 cpu s/ --steps 3 && one_line && says stderr "another run is writing" &&
    refused 1 cpu --resume ./s/. && one_line && says stderr "another run is writing" && kill -9 $process
  ends_with 137 || exit 1
  "$cpu" --resume s --max-minutes 1e-9 >stdout
  [ $? -eq 3 ] && [ -z "$(ls s | grep tmp)" ]'
check "two runs that begin at the same moment in one new folder: one of them runs, whole" '
  begin s && first=$process && begin s && wait $first; a=$?; wait $process; b=$?
  [ $((a + b)) -eq 1 ] && status s finished && steps_logged s 20'
check "runs/x, runs/x/ and ./runs/x are one folder" '
  train cpu whole && for name in r r/ ./r "$PWD/r/"; do
    rm -rf r && train cpu r --stop-after 5 && run cpu --resume $name --out r/ --stop-after 9 && run cpu --out $name --resume &&
      same whole r 20 && [ "$(ls -a r | grep -c "^log.jsonl\|^run.json")" -eq 2 ] || exit 1
  done'
check "killed between its last save and run.json: --resume completes it, exit 0; unfinished files are removed" '
  train cpu a && cp -r a b && grep -v "\"event\":\"eval\",\"step\":20" a/log.jsonl >b/log.jsonl &&
    sed "s/\"finished\"/\"running\"/" a/run.json >b/run.json && echo x >b/step_20.safetensors.tmp && echo x >b/run.json.tmp &&
    run cpu --resume b && status b finished && [ -z "$(ls b | grep tmp)" ] && [ $(events b eval 20) -eq 1 ] && same a b 20 &&
    echo "{\"status\": \"run" >b/run.json && "$cpu" --resume b --data stories:0.05 >stdout 2>stderr && status b finished &&
    says stderr "note: b/run.json"'
check "a damaged log.jsonl is set aside with a note; the run goes on" '
  train cpu a && train cpu b --stop-after 5 && cp b/log.jsonl old && { echo "{\"event\":\"st"; echo hello; } >>b/log.jsonl &&
    cp b/log.jsonl damaged && run cpu --resume b && says stdout "note: b/log.jsonl:6" && cmp damaged b/log.jsonl.1 &&
    same a b 20 && steps_logged b 20'

# ---- the data are what they were

for what in ": >" "echo more >>" "printf x | dd conv=notrunc status=none of=" "cp other.txt "; do
  check "data that change under the run ($what): a sentence, exit 1, the state saved; restored: the same file" '
    letters "$root/README.md" "$root"/docs/*.md >t.txt && cp -p t.txt keep.txt && tac t.txt >other.txt
    begin s --data t.txt --steps 100000 --eval-every 0 && until_true "[ -s s/log.jsonl ]" && eval "${what}t.txt"
    ends_with 1 && mv s.err stderr && one_line && says stderr "t.txt: the file .* while it was in use" && status s failed &&
      says stderr "is saved in s" && k=$(newest s) && cp -p keep.txt t.txt && train cpu whole --data t.txt --steps 100000 \
      --eval-every 0 --stop-after $k && same whole s $k'
done
check "data that are renamed and removed under the run stay what they were" '
  letters "$root/README.md" "$root"/docs/*.md >t.txt && cp t.txt u.txt
  begin s --data t.txt --steps 300 --eval-every 50 && until_true "[ -s s/log.jsonl ]" && echo other >n.txt && mv n.txt t.txt
  ends_with 0 && train cpu whole --data u.txt --steps 300 --eval-every 50 && same whole s 300'
check "eval and routes say which data they read and refuse to guess; a moved run finds its data" '
  letters "$root/README.md" "$root"/docs/*.md >t.txt && train cpu r --data t.txt && mkdir sub && cd sub && run cpu eval ../r &&
    says stdout "^data: $PWD/../t.txt\|^data: .*/t.txt" && ! grep "other data" stdout && run cpu routes ../r &&
    says stdout "^data: .*/t.txt" && cd .. && head -c 20000 t.txt >u.txt && run cpu eval r --data u.txt &&
    says stdout "note: other data than it was trained with" && mv r/run.json x &&
    for command in "eval r" "routes r" "--resume r"; do refused 1 cpu $command && one_line && says stderr "give --data" || exit 1; done
    run cpu eval r --data t.txt && ! grep "other data" stdout'
check "--data given anew: --val must be too" '
  letters "$root/README.md" "$root"/docs/*.md | head -c 30000 >t.txt && head -c 3000 t.txt >v.txt && train cpu r --data t.txt --val v.txt --stop-after 5 &&
    refused 1 cpu eval r --data t.txt && one_line && says stderr "give --val too" && run cpu eval r --data t.txt --val v.txt &&
    ! grep "other data" stdout && run cpu eval r --data t.txt --split 50/50/0 && says stdout "other data" &&
    refused 1 cpu --resume r --data t.txt && says stderr "give --val too" && run cpu --resume r'

# ---- output

check "descriptors that are closed at the start: the run is the same, and resumes" '
  train cpu a && for closed in "0<&-" "1>&-" "2>&-" "0<&- 1>&- 2>&-"; do
    rm -rf b && eval "\"$cpu\" $model --stop-after 7 --out b $closed" && steps_logged b 7 &&
      eval "\"$cpu\" --resume b $closed" && steps_logged b 20 && same a b 20 || exit 1
  done'
check "output that cannot be written: exit 1 where it is the product, a sentence; a run goes on without it" '
  train cpu a && for command in "eval a" "sample a" "show a" "routes a" "methods" "compare a a" "--help" "$model --dry-run"; do
    for broken in ">/dev/full" ">&-"; do
      eval "\"$cpu\" $command $broken" 2>stderr
      [ $? -eq 1 ] && one_line && says stderr "cannot write to the standard output: " || { echo "$command $broken"; exit 1; }
    done
  done
  "$cpu" $model --out b >/dev/full && "$cpu" $model --out c >&- && same a b 20 && same a c 20 &&
    { "$cpu" sample a --tokens 100000 2>stderr; echo $? >code; } | head -c 5 >start && [ "$(cat code)" -eq 1 ] && one_line'
if command -v script >/dev/null; then
  check "control characters of a sample are escaped on a terminal, and only there; it is printed as it is drawn" '
    printf "a\033b\001c\377\n%.0s" $(seq 400) >t.txt && train cpu a --data t.txt --context 8 --lr 0.01 &&
      run cpu sample a --tokens 200 && cp stdout raw && grep -q "$(printf "\033")" raw &&
      script -qec "\"$cpu\" sample a --tokens 200" shown >/dev/null </dev/null && says shown "\\\\x1b" &&
      ! grep -v "^Script" shown | grep -q "$(printf "\033")" &&
      { timeout 2 "$cpu" sample a --tokens 1000000000 | head -c 300 >start; } && [ "$(wc -c <start)" -eq 300 ]'
else skip "control characters on a terminal" "script"; fi

check "every wrong input of bad_inputs.txt: its code, its message" '
  sh "$here/bad_inputs.sh" "$cpu" >said || { cat said; exit 1; }
  [ "$(sed -n "s/ passed, 0 failed//p" said)" -ge 170 ]'
check "the last of options that are given twice counts, and the log says so" '
  "$cpu" $model --steps 3 --out a 2>stderr && says stderr "note: --steps is given twice; the last one counts: 3" &&
    [ "$(newest a)" -eq 3 ]'
check "--init-from: what the router adds starts anew, what only the file has is left out, both are said" '
  train cpu p && train cpu w --router wav --init-from p --steps 4 && says stdout "note: not in p/.* initial values: router.1.q" &&
    train cpu p2 --init-from w --steps 4 && says stdout "note: of w/.* left out: router.1.q" &&
    refused_train 1 cpu n --layers 3 --init-from p && one_line && says stderr "no tensor layer.2"'
check "parameters of the router that have not moved are named; where all move, or are fixed, nothing is said" '
  few="--router wav --context 16 --steps 12 --warmup 0"
  train cpu w $few && ! grep warning: stdout && train cpu f $few --beta -20 --fixed-beta && ! grep "warning: no beta" stdout &&
    train cpu b $few --beta -40 && says stdout "warning: no beta of the router has moved" &&
    grep -q "{\"event\":\"warning\",\"step\":12," b/log.jsonl'
check "the log has gates, betas and the clipping factor; threads beyond the cores are noted" '
  train cpu w --router wav --clip 0.001 --threads 64 && says stdout "note: --threads 64 on " && says stdout "clipped to" &&
    says w/log.jsonl "\"beta\":\[-2" && says w/log.jsonl "\"clip\":0.0" && train cpu r --router rezero &&
    says r/log.jsonl "\"scale\":\[" && says r/log.jsonl "\"clip\":1,"'
