#!/bin/sh
# compile.sh FLAVOUR OUT SOURCE [FLAGS...]: compiles a CUDA program for the CPU. FLAVOUR: fibers, asan or checked
# (README.md). The emulator's own objects go to the folder of OUT and are compiled again when their source is newer.
# CXX (g++), CUDA_HOME (/usr/local/cuda: only its headers are used).
here=$(cd "$(dirname "$0")" && pwd)
flavour=$1 out=$2 source=$3
[ $# -ge 3 ] || { echo "usage: compile.sh fibers|asan|checked OUT SOURCE [FLAGS...]" >&2; exit 2; }
shift 3
cxx=${CXX:-g++} headers=${CUDA_HOME:-/usr/local/cuda}/include
if [ ! -f "$headers/cuda_runtime_api.h" ]; then
  echo "compile.sh: no $headers/cuda_runtime_api.h: install CUDA's headers or set CUDA_HOME" >&2
  exit 1
fi
if [ "$($cxx -dumpmachine | cut -d- -f1)" != x86_64 ]; then
  echo "compile.sh: the emulator switches stacks on x86-64 only" >&2
  exit 1
fi
common="-std=c++17 -gdwarf-4 -Wall -Wextra -Wno-unknown-pragmas -I$here -isystem $headers"

objects=$(dirname "$out")/cuda_on_cpu
mkdir -p "$objects" || exit 1
for part in fibers launch checker memory streams message; do
  o=$objects/$part.o
  [ -z "$(find "$here/$part.cpp" "$here/emulator.h" "$here/cuda_runtime.h" -newer "$o" 2>&1)" ] ||
    { $cxx $common -O2 -c "$here/$part.cpp" -o "$o.$$" && mv "$o.$$" "$o"; } || exit 1  # make -j: others compile it too
done

kernels="$common -ffp-contract=off -march=${EMU_ARCH:-x86-64-v3}"
case $flavour in
  fibers) $cxx $kernels -O2 "$@" -x c++ "$source" -x none "$objects"/*.o -o "$out" ;;
  asan) $cxx $kernels -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined "$@" -x c++ "$source" \
    -x none "$objects"/*.o -o "$out" ;;
  checked) # the calls of -fsanitize=thread are answered by checker.cpp, so libtsan must not be linked
    $cxx $kernels -O1 -fsanitize=thread "$@" -c -x c++ "$source" -o "$out.o" &&
      $cxx "$out.o" "$objects"/*.o -o "$out" ;;
  *) echo "compile.sh: no flavour '$flavour': fibers, asan or checked" >&2; exit 2 ;;
esac
