#!/bin/sh
# tutorial.sh [check]: the pages docs/adding_a_router.md and docs/adding_a_layer.md, so that they cannot rot.
#   check   within a second: each patch applies to this tree, and every line of code on its page is a line of the patch
#   (none)  also applies each to a copy of the tree, builds it and runs what the page promises: finite differences, equal
#           files of the plain and the cpu build, equal bits; then faults planted in the patched copies must be found
# One line per check, then the sum. Where a patch no longer applies: apply it by hand to a copy, then `git add -N .` and
# `git diff -U1 >docs/adding_a_NAME.patch` there.
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
case $#,$1 in
  0, | 1,check) ;;
  *) echo "usage: test/tutorial.sh [check]" >&2 && exit 2 ;;
esac
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE  # of a hook that runs this
. "$here/runs_check.sh"

# TREE PATCH [--check]. The tree may have no .git, and may lie in a repository that is not its own
apply_patch() {
  if command -v git >/dev/null; then GIT_CEILING_DIRECTORIES=$(dirname "$1") git -C "$1" apply $3 "$2"
  else patch -p1 -F0 -s ${3:+--dry-run} -d "$1" <"$2"; fi
}
# PAGE PATCH: the lines in its ```cpp fences are lines that the patch adds
quotes() {
  awk '/^```/ { code = /^```cpp/; next } code && NF' "$1" >quoted
  sed -n 's/^+//p' "$2" >added
  [ -s quoted ] || { echo "no code in $1" && return 1; }
  grep -vxFf added quoted >strange || return 0
  echo "lines of ${1##*/} that ${2##*/} does not add:" && cat strange
  return 1
}
for name in router layer; do
  page=$root/docs/adding_a_$name.md patch=$root/docs/adding_a_$name.patch
  check "docs/adding_a_$name.patch applies to the tree" 'apply_patch "$root" "$patch" --check'
  check "docs/adding_a_$name.md quotes its patch" 'quotes "$page" "$patch"'
done
if [ "$1" = check ]; then report; exit; fi

native=-march=native
[ "$(uname -m)" = x86_64 ] || native=-mcpu=native
# FOLDER PATCH: what the repository holds, with the patch
copy() {
  mkdir "$1" && cd "$root" || return
  if [ -e .git ] && command -v git >/dev/null; then
    git ls-files -co --exclude-standard | while read -r f; do [ ! -f "$f" ] || echo "$f"; done >"$work/files"
  else
    find . -name build -prune -o -name runs -prune -o -type f -size -4096k -print >"$work/files"
  fi
  tar -cf - -T "$work/files" | tar -xf - -C "$1" && apply_patch "$1" "$2"
}
built() {  # TREE LEVEL TARGET...: targets with $out/ are programs of tests
  tree=$1 out=$1/build level=$2
  shift 2
  make -C "$tree" -j2 OUT="$out" ARCH=native "FLAGS_native=$native $level" "$@" >make.log 2>&1 && return
  echo "make $*:" && { grep -m 5 error make.log || tail -n 5 make.log; }
  return 1
}
result() { (cd "$1" && shift && "$@") >result 2>&1; }  # TREE PROGRAM ARGS, from where test/golden is found
passes() {  # CASE...: each is in the result, as passed
  for case in "$@"; do
    grep -F -e "  ok   $case" result >/dev/null || { echo "not passed: $case" && tail -n 15 result && return 1; }
  done
}
# fault WHAT TREE LEVEL PROGRAM ARGS CASE FILE OLD NEW: with NEW instead of OLD in FILE, this case of PROGRAM must fail
fault() {
  what=$1 tree=$2 level=$3 program=$4 args=$5 case=$6 file=$2/$7 old=$8 new=$9
  check "planted: $what -> $program: $case" '
    cp "$file" original && OLD=$old NEW=$new awk '\''
      { at = index($0, ENVIRON["OLD"]) }
      at { $0 = substr($0, 1, at - 1) ENVIRON["NEW"] substr($0, at + length(ENVIRON["OLD"])) }
      { print }'\'' original >"$file"
    if cmp -s original "$file"; then echo "not in ${file##*/}: $old"; code=2
    else
      built "$tree" $level "$tree/build/$program" && result "$tree" "build/$program" $args
      code=$?
    fi
    cp original "$file"
    grep -F -e "  FAIL $case" result >/dev/null && exit 0
    echo "code $code; it should fail" && tail -n 5 result
    exit 1'
}

# ---- adding_a_router
tree=$work/router
plain=$tree/build/train_gpt_plain cpu=$tree/build/train_gpt_cpu
check "two-streams: a copy with the patch builds" '
  copy "$tree" "$root/docs/adding_a_router.patch" && cd "$work" && built "$tree" -O1 "$tree/build/test_model" plain cpu'
check "two-streams: finite differences, passes, ranks, decoding, evaluation" '
  result "$tree" build/test_model two-streams
  for part in finite "the gradient" passes shares decoding evaluation; do passes "two-streams: $part" || exit; done'
check "two-streams: plain and cpu write the same file after 5 steps" '
  for build in plain cpu; do
    train $build $build --router two-streams --layers 3 --steps 5 --batch 6 --micro-batch 4 || exit
  done
  same plain cpu 5'
check "two-streams: methods, --help and show know it" '
  run cpu methods && says stdout "^two-streams " && run cpu --help && says stdout "|two-streams" &&
    train cpu a --router two-streams --steps 1 && run cpu show a && says stdout "router.final.p"'
router() { fault "$1" "$tree" -O1 test_model two-streams "two-streams: $2" routers/two_streams.cuh "$3" "$4"; }
router "a wrong sign in the backward of a read" "finite differences" \
  "add(db, part, pass);" "for (int64_t i = 0; i < pass.N() * config.C; i++) db[i] = db[i] - part[i];"
router "streams that start equal" "the gradient of no row" \
  "write_scalar_name(j), 1, Init::constant, 0)" "write_scalar_name(j), 1, Init::constant, 1)"

# ---- adding_a_layer
tree=$work/layer
check "relu2: a copy with the patch builds" '
  copy "$tree" "$root/docs/adding_a_layer.patch" && cd "$work" && built "$tree" -O1 "$tree/build/test_layers" &&
    built "$tree" -O0 "$tree/build/test_bits"'
check "relu2: finite differences" 'result "$tree" build/test_layers; passes "relu2: finite differences"'
bits="relu2_forward and relu2_backward"
check "relu2: cpu has the bits of plain" 'result "$tree" build/test_bits quick; passes "$bits"'
cuda=${CUDA_HOME:-/usr/local/cuda}/include/cuda_runtime_api.h
if [ ! -f "$cuda" ]; then
  skip "relu2: the CUDA kernels have the bits of plain" "$cuda"
else
  check "relu2: the CUDA kernels, under the emulator, have the bits of plain" '
    built "$tree" -O1 "$tree/build/emulated_bits" && result "$tree" build/emulated_bits emulated; passes "$bits"'
fi
fault "a factor left out" "$tree" -O1 test_layers "" "relu2: finite differences" layers/relu2.cuh "(2 * m)" "m"
fault "a zero of the wrong sign" "$tree" -O0 test_bits quick "$bits" layers/cpu/relu2.cuh \
  "larger(get(x + from + i), splat(0.f))" "larger(splat(0.f), get(x + from + i))"
report
