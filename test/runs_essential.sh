# runs_essential.sh: read by runs.sh. Small models, a few seconds each, on the plain and the cpu build.
# ---- the test programs, case by case

check "test programs name their cases without running them; run those with a word; refuse a word that none has" '
  for program in "$out"/test_*; do
    [ -x "$program" ] || continue
    (cd "$root" && timeout 10 "$program" --list) >names && [ -s names ] && ! grep -e "^  ok" -e " passed, " names ||
      { echo "$program --list"; exit 1; }
  done
  cases=$("$out/test_exact" --list Counter | wc -l) && [ $cases -gt 1 ] &&
    "$out/test_exact" Counter | grep -qx "$cases passed, 0 failed" || exit 1
  "$out/test_exact" Cuonter >said 2>stderr
  [ $? -eq 2 ] && [ ! -s said ] && says stderr "contains .Cuonter.; --list"'

# ---- the same file from every way of computing it

for build in plain cpu; do check "$build: the pinned bits of every method and detail" "pins $build"; done
check "every method has its pinned row" '
  run cpu methods --names && sort stdout >want && awk "!/^#/ { print \$5 }" "$here/golden/checkpoints.txt" | sort -u >have &&
    diff want have'
# two groups of reads, a short last block
for name in $(pinned_methods) wav-two-groups; do
  check "$name: the same file by threads, in passes, resumed; the same text from plain and cpu" '
    deep="--layers 6 --steps 5 $(pinned_options $name)"
    train cpu c $deep && train cpu t3 $deep --threads 3 --micro-batch 2 && same c t3 5 &&
      train cpu r $deep --stop-after 2 && run cpu --out r --resume && same c r 5 || exit 1
    run plain sample c --prompt "The cat" --tokens 50 && cp stdout first &&
      run cpu sample c --prompt "The cat" --tokens 50 && cmp stdout first'
done
check "plain and cpu, odd shapes: the same file" '
  odd="--layers 1 --channels 20 --heads 1 --context 1 --batch 3 --steps 5"
  train plain p $odd && train cpu c $odd && same p c 5 || exit 1
  odd="--channels 40 --heads 4 --context 65 --batch 5 --steps 3 --order random --schedule wsd --clip 0.1"
  train plain p2 $odd && train cpu c2 $odd && same p2 c2 3'
check "1, 2, 3 threads: the same file" '
  train cpu t1 --threads 1 && train cpu t2 --threads 2 && train cpu t3 --threads 3 && same t1 t2 20 && same t1 t3 20'
for batch in 8 6 7 12; do
  check "batch $batch in passes of 8, 4, 2, 1: the same file and loss" '
    b="--batch $batch --steps 4 --router layerscale"
    train cpu whole $b && train plain plain_1 $b --micro-batch 1 && same whole plain_1 4 || exit 1
    for pass in 8 4 2 1; do
      train cpu pass_$pass $b --micro-batch $pass && same whole pass_$pass 4 && same_loss whole pass_$pass || exit 1
    done'
done

# ---- interrupted and resumed

check "stopped and resumed in a new process at each of 12 steps: the same file" '
  short="--steps 12 --warmup 4 --schedule cosine"
  train cpu whole $short || exit 1
  for k in 1 2 3 4 5 6 7 8 9 10 11; do
    train cpu part_$k $short --stop-after $k && run cpu --out part_$k --resume && same whole part_$k 12 &&
      says part_$k/run.json "\"status\": \"finished\"" && steps_logged part_$k 12 || exit 1
  done'
check "resumed by the other build, with other passes and threads: the same file" '
  train cpu whole --steps 8 && train plain part --steps 8 --stop-after 3 &&
    run cpu --out part --resume --micro-batch 2 --threads 3 --stop-after 5 && run plain --resume part &&
    same whole part 8'
check "--resume refuses another science, exit 2, and leaves the folder alone" '
  train cpu part --steps 8 --stop-after 3 && cp -r part before &&
    refused 2 cpu --out part --resume --lr 0.5 --batch 4 && [ "$(wc -l <stderr)" -eq 2 ] &&
    grep -q -e "--lr is 0.5" stderr && grep -q -e "--batch is 4" stderr && diff -r part before'
for signal in TERM INT; do
  check "SIG$signal stops after the step, saves, exit 3; resumed: the same file" '
    long="--steps 100000 --eval-every 0"
    "$cpu" $(others $long) $long --out s >s.log 2>&1 &
    process=$!
    waited=0
    until [ "$(cat s/log.jsonl 2>/dev/null | wc -l)" -ge 3 ] || [ $waited -ge 100 ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    kill -$signal $process
    wait $process
    [ $? -eq 3 ] || { cat s.log; exit 1; }
    says s/run.json "\"status\": \"stopped\"" && says s.log "by SIG$signal" || exit 1
    set -- s/step_*.safetensors
    [ $# -eq 1 ] || { echo "checkpoints: $*"; exit 1; }
    k=${1##*_} && k=${k%.safetensors} && [ "$k" -lt 100000 ] || exit 1
    train cpu whole $long --stop-after $((k + 2)) --save-every $k && run cpu --out s --resume --stop-after $((k + 2)) &&
      same whole s $k && same whole s $((k + 2))'
done

# ---- compare

check "compare names the tensor, index, values and patterns of one flipped bit, exit 1" '
  train cpu a --steps 2 && cp -r a b && f=b/step_2.safetensors && at=$(data_start $f) && vocabulary=59 &&
    flip_bit $f $((at + 4 * 41)) || exit 1
  differs a b "first difference: embed\[41\] = \[1,5\]" $((at + 4 * 41)) "different: 1 elements in 1 of" || exit 1
  cp -r a d && f=d/step_2.safetensors && last=$(($(wc -c <$f) - 4)) && flip_bit $f $last || exit 1
  differs a d "first difference: adam.v.head\[$((vocabulary * 36 - 1))\] = \[$((vocabulary - 1)),35\]" $last \
    "different: 1 elements in 1 of"'

# ---- options, refusals, exit codes

check "option errors: all at once, exit 2, nothing created" '
  mkdir empty && cd empty || exit 1
  refused 2 cpu --heads 0 --nonsense 3 --lr abc --layers 4 --router wild --batch 8 --micro-batch 3 || exit 1
  for word in --heads nonsense --lr --router --micro-batch; do says stderr $word || exit 1; done
  [ "$(wc -l <stderr)" -eq 5 ] || exit 1
  rm -f stderr stdout && [ -z "$(ls -A)" ]'
check "exit codes: 0, 1 for data and run errors, 2 for options; one line each" '
  train cpu a --steps 1 && run cpu --help && run cpu show a && run cpu compare a a &&
    refused_train 1 cpu n --data nowhere.txt && one_line && says stderr nowhere.txt && [ ! -e n ] &&
    refused 1 cpu eval nowhere && one_line && refused 1 cpu sample nowhere && one_line &&
    refused 1 cpu --resume nowhere && one_line && refused 2 cpu frobnicate && one_line &&
    refused 2 cpu eval && one_line &&
    head -c 1000 a/step_1.safetensors >cut.safetensors && refused 1 cpu show cut.safetensors && one_line'
check "--dry-run: the plan, nothing written, nothing allocated" '
  (ulimit -v 4000000; train cpu out --layers 100 --channels 8192 --context 4096 --batch 64 --dry-run) &&
    says stdout "in all" && [ "$(ls -A)" = "stderr
stdout" ]'
check "help names every option of its command" '
  has() { for o in $2; do grep -q -e "^  --$o\( \|\$\)" $1 || { echo "$1: --$o is missing"; exit 1; }; done; }
  "$cpu" --help >train; "$cpu" eval --help >eval; "$cpu" sample --help >sample; "$cpu" --help=markdown >markdown
  has train "data val split skip-unknown order data-seed router layers channels heads context eps layerscale-init steps
    batch micro-batch lr min-lr warmup schedule weight-decay beta1 beta2 adam-eps clip router-lr seed out resume
    init-from stop-after save-every keep eval-every eval-tokens sample-every max-minutes threads options verbose dry-run
    prompt tokens temperature top-k top-p samples sample-seed"
  has eval "data val split part skip-unknown batch threads"
  has sample "prompt tokens temperature top-k top-p samples sample-seed"
  [ "$(grep -c "^| .--" markdown)" -ge 48 ]'
check "docs/options.md and the methods in README.md are what the program says" '
  sh "$root/dev/generated.sh" "$cpu" --check'
check "a new run into a folder with checkpoints is refused, exit 1, the folder left alone" '
  train cpu a --steps 2 && cp -r a before && refused_train 1 cpu a --steps 5 && one_line && says stderr "--resume" &&
    diff -r a before'

# ---- evaluation and sampling

check "eval: the same for batch 1, 3, 8, threads and builds" '
  train cpu a --steps 3 && run cpu eval a --batch 1 --threads 1 && cp stdout first || exit 1
  for batch in 3 8; do
    run cpu eval a --batch $batch && cmp stdout first && run plain eval a --batch $batch && cmp stdout first || exit 1
  done
  says first "predictions"'
check "sample: the same text from plain and cpu, longer than the context" '
  train cpu a --lr 0.05 --warmup 0 || exit 1  # large steps: the text hangs on every position
  for o in "--temperature 0" "--temperature 1 --samples 3" "--temperature 0.7 --top-k 5" \
    "--temperature 1.3 --top-p 0.8 --sample-seed 7"; do
    run cpu sample a --prompt "The cat" --tokens 90 $o && cp stdout first &&
      run cpu sample a --prompt "The cat" --tokens 90 $o --threads 1 && cmp stdout first &&
      run plain sample a --prompt "The cat" --tokens 90 $o && cmp stdout first || exit 1
    [ "$(wc -c <first)" -ge 97 ] || exit 1
  done
  run cpu sample a --tokens 60 && cp stdout first && run cpu sample a --tokens 60 --sample-seed 2 &&
    ! cmp -s stdout first'

# ---- when things go wrong

check "a loss that is not finite: one line with step and tensor, exit 1, status failed, the state before it saved" '
  refused_train 1 cpu bad --lr 1000 --warmup 0 --clip 0 && one_line && k=$(sed "s/.*step \([0-9]*\): .* is not finite.*/\1/" stderr) &&
    says stderr "the gradient of" && says bad/run.json "\"status\": \"failed\"" &&
    [ "$(ls bad | grep step)" = step_$((k - 1)).safetensors ] && cp stderr first && refused 1 cpu --out bad --resume &&
    says stderr "step $k: the gradient" && [ "$(ls bad | grep step)" = step_$((k - 1)).safetensors ]'
check "a file where the folder should be: one line, exit 1" '
  echo >file && refused_train 1 cpu file/run && one_line && says stderr "file" && refused_train 1 cpu file && one_line'
check "a full disk (a limit on file sizes): one line, exit 1, no half-written file, the last one still good" '
  train cpu a --steps 4 && train cpu part --steps 4 --stop-after 2 && cp part/step_2.safetensors first || exit 1
  (trap "" XFSZ; ulimit -f 200; refused 1 cpu --out part --resume) && one_line && says stderr "cannot write" &&
    says part/run.json "\"status\": \"failed\"" && cmp first part/step_2.safetensors &&
    [ -z "$(ls part | grep tmp)" ] && run cpu --out part --resume && same a part 4'
read_only() {
  mkdir locked && chmod 755 "$work" . && chmod 555 locked && cp "$cpu" program && chmod 755 program
  if [ "$(id -u)" -ne 0 ]; then ./program $model --out locked/run >stdout 2>stderr
  else setpriv --reuid=65534 --regid=65534 --clear-groups ./program $model --out locked/run >stdout 2>stderr; fi
  [ $? -eq 1 ] && one_line && says stderr "locked"
}
if [ "$(id -u)" -ne 0 ] || setpriv --reuid=65534 --regid=65534 --clear-groups true 2>/dev/null; then
  check "a read-only folder: one line, exit 1" read_only
else
  skip "a read-only folder" "root may write anywhere, and there is no setpriv"
fi

# ---- memory

memory() {
  big="--layers 6 --channels 256 --heads 4 --context 256 --batch 8 --data stories:0.3 --steps 2 --threads 2"
  python3 -c 'import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=open("memory.log", "w"))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)' "$cpu" $big --out big >peak || return 1
  planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' big/run.json)
  awk -v kb="$(cat peak)" -v plan="$planned" 'BEGIN {
    printf "peak %.1f MB, planned %.1f MB: %+.1f %%\n", kb * 1024 / 1e6, plan / 1e6, 100 * (kb * 1024 / plan - 1)
    exit !(plan > 2.5e8 && kb * 1024 < 1.1 * plan && kb * 1024 > 0.9 * plan) }'
}
if python3 -c 'import resource' 2>/dev/null; then check "peak memory within 10 % of the plan" memory
else skip "peak memory within 10 % of the plan" "python3"; fi

if command -v ldd >/dev/null; then
  check "the binaries need no CUDA library" '
    for program in "$plain" "$cpu"; do
      ldd "$program" >libraries && ! grep -i -e cuda -e cublas -e nccl -e nvidia libraries || exit 1
    done'
else skip "the binaries need no CUDA library" "ldd"; fi
