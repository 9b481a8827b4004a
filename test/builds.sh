# builds.sh: read by runs.sh. The same source by other compilers, for other instruction sets,
# at another optimisation level, with sanitizers, for another processor: every build must have the pinned bits of every
# method; those that have other vectors or another compiler also pass test_bits and test_mixer_bits.
machine=$(uname -m)
native=-march=native
[ "$machine" = x86_64 ] || native=-mcpu=native
built() {  # MAKE ARGUMENTS, the last ones targets
  make -C "$root" -j2 OUT="$PWD/build" "$@" >make.log 2>&1 && return
  echo "make $*:" && tail -n 20 make.log
  return 1
}
bits() {  # PROGRAM:HOW_MUCH...
  for program in $(echo "$*" | tr : +); do
    program=$(echo $program | tr + ' ')
    $under build/$program >bits.log && grep -q '^[1-9][0-9]* passed, 0 failed' bits.log && continue
    tail -n 20 bits.log
    return 1
  done
}
# other NAME ROWS "plain PROGRAM:HOW_MUCH..." MAKE_ARGUMENTS: these pins or all; plain too, and these programs
other() {
  name=$1 rows=$2 parts=$3
  shift 3
  arguments=
  for a in "$@"; do arguments="$arguments \"$a\""; done
  check "$name: the pinned bits" '
    other_plain=build/train_gpt_plain other_cpu=build/train_gpt_cpu targets=cpu programs=
    for part in $parts; do
      case $part in plain) targets="$targets plain" ;;
        *) programs="$programs $part" targets="$targets \$PWD/build/${part%:*}" ;; esac
    done
    eval built "$arguments" "$targets" && pins other_cpu $rows || exit 1
    case $targets in *plain*) pins other_plain $rows || exit 1 ;; esac
    bits $programs'
}

# Where nothing but the bits is asked for, and nobody trains with the build, -O1: it compiles in half the time
if [ "$machine" = x86_64 ]; then
  other "ARCH=wide (16-wide vectors on AVX2), -O1" "" "test_bits:essential test_mixer_bits:quick" ARCH=wide EXTRA=-O1
  if grep -q avx512f /proc/cpuinfo; then  # the build of the reference
    other "ARCH=avx2" "" "test_bits:essential test_mixer_bits:quick" ARCH=avx2
  else
    check "ARCH=avx512 compiles" 'built ARCH=avx512 EXTRA=-O1 cpu'
    skip "ARCH=avx512 runs" "this processor has no AVX-512"
  fi
fi
# the register tiles that this width does not use (layers/cpu/tiles.cuh)
other "the second tile of this width, -O1" "$(pinned_methods | head -n 1)" "test_bits:quick" "EXTRA=-O1 -DTILE=1"
[ "$machine" != x86_64 ] || other "the second tile of 16-wide vectors, -O1" "$(pinned_methods | head -n 1)" \
  "test_bits:quick" ARCH=wide "EXTRA=-O1 -DTILE=1"
other "ARCH=generic, -O1" "" "test_bits:quick test_mixer_bits:quick" ARCH=generic EXTRA=-O1

if command -v clang++ >/dev/null; then
  other "clang++" "" "plain test_bits:essential test_mixer_bits:quick" CXX=clang++
else
  skip "clang++: the pinned bits" "clang++"
fi

if echo 'int main() {}' | ${CXX:-g++} -fsanitize=address,undefined -x c++ - -o "$work/probe" 2>/dev/null &&
  "$work/probe"; then
  check "-O1, AddressSanitizer and UBSan: the pinned bits, every test program, training, evaluation, sampling" '
    sanitized=build/train_gpt_cpu tests=$(cd "$out" && ls | grep "^test_[a-z_]*\$")
    built "EXTRA=-fsanitize=address,undefined -fno-sanitize-recover=all" "FLAGS_native=$native -O1" cpu \
      $(for t in $tests; do echo "$PWD/build/$t"; done) || exit 1
    pins sanitized && train sanitized s --router wav && run sanitized eval s && run sanitized sample s --tokens 50 &&
      run sanitized show s && run sanitized routes s && run sanitized compare s s &&
      bits test_bits:quick test_mixer_bits:quick && SANITIZED=1 sh "$here/bad_inputs.sh" build/train_gpt_cpu || exit 1
    for t in $tests; do
      [ $t = test_bits ] || [ $t = test_mixer_bits ] || (cd "$root" && "$OLDPWD/build/$t") >$t.log 2>&1 ||
        { echo $t; grep -v "^  ok" $t.log | tail -n 20; exit 1; }
    done'
else
  skip "AddressSanitizer and UBSan" "the sanitizers of ${CXX:-g++}"
fi

if echo 'int main() {}' | ${CXX:-g++} -fsanitize=thread -x c++ - -o "$work/probe" 2>/dev/null && "$work/probe"; then
  check "-O1, ThreadSanitizer: the threads of the cpu build, training with 3 of them" '
    raced=build/train_gpt_cpu
    built "EXTRA=-fsanitize=thread" "FLAGS_native=$native -O1" cpu "$PWD/build/test_team" && bits test_team &&
      train raced t --router wav --threads 3'
else
  skip "ThreadSanitizer" "the sanitizer of ${CXX:-g++}"
fi

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
if [ "$machine" = aarch64 ]; then :
elif [ -n "$qemu" ] && command -v aarch64-linux-gnu-g++ >/dev/null; then
  under=$qemu
  other "aarch64 under qemu" "$(pinned_methods)" "plain test_bits:quick test_mixer_bits:quick" \
    CXX=aarch64-linux-gnu-g++ ARCH=neon EXTRA=-static
  under=
else
  skip "aarch64: the pinned bits" "qemu-user or g++-aarch64-linux-gnu"
fi
