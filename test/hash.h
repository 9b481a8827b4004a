// hash.h: FNV-1a over bit patterns, for tests that pin bits.
#pragma once
#include "check.h"

struct Hash {
  uint64_t value = 14695981039346656037ull;
  void add(uint64_t bits) {
    for (int k = 0; k < 64; k += 8) value = (value ^ (bits >> k & 255)) * 1099511628211ull;
  }
  template <class real> void add(real x) { add(check::pattern(x)); }  // float, double
};
