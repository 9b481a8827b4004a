# builds.sh: read by runs.sh. The same source by other compilers, for other instruction sets, with and without OpenMP,
# at another optimisation level, with sanitizers, for another processor: every build must write the same checkpoints as
# OUT/train_gpt_cpu, for every method; those that have other vectors or another compiler also pass test_bits and
# test_mixer_bits.
root=$(dirname "$here")
machine=$(uname -m)
native=-march=native
[ "$machine" = x86_64 ] || native=-mcpu=native
passes="--steps 5 --batch 6 --micro-batch 2 --router layerscale --channels 40 --heads 4 --context 20"
small="--steps 3 --batch 6 --micro-batch 2 --layers 6 --channels 40 --heads 4 --context 20"
# METHOD or METHOD+OPTION+VALUE..., one word each
methods="rezero attnres delta block+--block+5 delta-block+--block+4 wav+--block+4 haares+--block+10
  block+--details+random,duplicate,learned+--block+4"

built() {  # MAKE ARGUMENTS, the last ones targets
  make -C "$root" -j2 OUT="$PWD/build" "$@" >make.log 2>&1 && return
  echo "make $*:" && tail -n 20 make.log
  return 1
}
train_method() { train $1 "$2_$3" $small --router $(echo $3 | tr + ' '); }  # BUILD FOLDER METHOD
as_reference() {  # BUILD
  train $1 $1 && cmp $1/step_20.safetensors "$work/reference/step_20.safetensors" && train $1 $1_passes $passes &&
    cmp $1_passes/step_5.safetensors "$work/reference_passes/step_5.safetensors" || return
  for m in $methods; do
    train_method $1 $1 $m && cmp "$1_$m/step_3.safetensors" "$work/reference_$m/step_3.safetensors" || return
  done
}
bits() {  # PROGRAM:HOW_MUCH...
  for program in $(echo "$*" | tr : +); do
    program=$(echo $program | tr + ' ')
    $under build/$program >bits.log && grep -q '^[1-9][0-9]* passed, 0 failed' bits.log && continue
    tail -n 20 bits.log
    return 1
  done
}
# other NAME "plain PROGRAM:HOW_MUCH..." MAKE_ARGUMENTS: plain too, and these programs
other() {
  name=$1 parts=$2
  shift 2
  arguments=
  for a in "$@"; do arguments="$arguments \"$a\""; done
  check "$name: the same files, the same bits" '
    other_plain=build/train_gpt_plain other_cpu=build/train_gpt_cpu targets=cpu programs=
    for part in $parts; do
      case $part in plain) targets="$targets plain" ;;
        *) programs="$programs $part" targets="$targets \$PWD/build/${part%:*}" ;; esac
    done
    eval built "$arguments" "$targets" && as_reference other_cpu || exit 1
    case $targets in *plain*) as_reference other_plain || exit 1 ;; esac
    bits $programs'
}

# steps the reference takes: they must not be those of a build that is checked
(cd "$work" && train cpu reference && train cpu reference_passes $passes &&
  for m in $methods; do train_method cpu reference $m || exit; done) || failed=$((failed + 1))

if [ "$machine" = x86_64 ]; then
  other "ARCH=wide (16-wide vectors on AVX2)" "test_bits:essential test_mixer_bits:quick" ARCH=wide
  if grep -q avx512f /proc/cpuinfo; then  # the build of the reference
    other "ARCH=avx2" "test_bits:essential test_mixer_bits:quick" ARCH=avx2
  else
    check "ARCH=avx512 compiles" 'built ARCH=avx512 cpu'
    skip "ARCH=avx512 runs" "this processor has no AVX-512"
  fi
fi
other "ARCH=generic, OPENMP=0" "test_bits:quick test_mixer_bits:quick" ARCH=generic OPENMP=0

if command -v clang++ >/dev/null; then
  openmp=0
  echo 'int main() {}' | clang++ -fopenmp -x c++ - -o "$work/probe" 2>/dev/null && openmp=1
  other "clang++, OPENMP=$openmp" "plain test_bits:essential test_mixer_bits:quick" CXX=clang++ OPENMP=$openmp
else
  skip "clang++: the same files, the same bits" "clang++"
fi

if echo 'int main() {}' | ${CXX:-g++} -fsanitize=address,undefined -x c++ - -o "$work/probe" 2>/dev/null &&
  "$work/probe"; then
  check "-O1, AddressSanitizer and UBSan: the same files, every test program, training, evaluation, sampling" '
    sanitized=build/train_gpt_cpu tests=$(cd "$out" && ls | grep "^test_[a-z_]*\$")
    built "EXTRA=-fsanitize=address,undefined -fno-sanitize-recover=all" "FLAGS_native=$native -O1" cpu \
      $(for t in $tests; do echo "$PWD/build/$t"; done) || exit 1
    as_reference sanitized && run sanitized eval sanitized && run sanitized sample sanitized --tokens 50 &&
      run sanitized show sanitized && run sanitized compare sanitized sanitized &&
      bits test_bits:quick test_mixer_bits:quick || exit 1
    for t in $tests; do
      [ $t = test_bits ] || [ $t = test_mixer_bits ] || (cd "$root" && "$OLDPWD/build/$t") >$t.log 2>&1 ||
        { echo $t; grep -v "^  ok" $t.log | tail -n 20; exit 1; }
    done'
else
  skip "AddressSanitizer and UBSan" "the sanitizers of ${CXX:-g++}"
fi

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
if [ "$machine" = aarch64 ]; then :
elif [ -n "$qemu" ] && command -v aarch64-linux-gnu-g++ >/dev/null; then
  under=$qemu
  other "aarch64 under qemu" "plain test_bits:quick test_mixer_bits:quick" CXX=aarch64-linux-gnu-g++ ARCH=neon EXTRA=-static
  under=
else
  skip "aarch64: the same files, the same bits" "qemu-user or g++-aarch64-linux-gnu"
fi
