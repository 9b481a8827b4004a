#!/bin/sh
# spills.sh REPORT NVCC ARGUMENTS...: runs nvcc, whose arguments must hold -Xptxas -v, and reads its report: a kernel
# that spills registers or uses local memory is refused, unless a comment `spills: KERNEL: why` in layers/gpu names it.
# REPORT keeps the whole output. Prints the number of kernels and the largest number of registers; exit 1 if refused.
report=$1
shift
"$@" >"$report" 2>&1 || { grep -v '^ptxas info' "$report" | tail -n 40 >&2; exit 1; }
grep -v '^ptxas info\|^ *[0-9]* bytes stack frame\|^$' "$report"
allowed=$(sed -n 's/.*spills: \([a-z0-9_]*\): .*/\1/p' "$(dirname "$0")"/../layers/gpu/*.cuh | tr '\n' ' ')
awk -v allowed="$allowed" '
  BEGIN { n = split(allowed, list, " "); for (i = 1; i <= n; i++) free[list[i]] = 1 }
  /Compiling entry function/ { name = $7; arch = $9; gsub(/\047/, "", name); gsub(/\047/, "", arch) }
  /bytes stack frame/ {
    kernels++
    if ($1 == 0 && $5 == 0 && $9 == 0) next
    for (k in free) if (index(name, k)) { print "spills: " arch " " k ": allowed by its comment (" $0 ")"; next }
    print "spills: " arch " " name ":" $0
    refused++
  }
  /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) + 0 > most) most = $(i + 1) + 0 }
  END {
    if (!kernels) { print "spills: no kernel in the report; is -Xptxas -v missing?"; exit 1 }
    printf "spills: %d kernels (all architectures), at most %d registers, %d refused\n", kernels, most, refused
    exit refused > 0
  }' "$report"
