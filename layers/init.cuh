// init.cuh: initial values. p[i] = std * (normal deviate i of the key), formed in double and rounded once.
#pragma once
#include "random.cuh"

namespace plain {

template <class real> void normal_fill(real *p, int64_t n, double std, uint64_t key) {
  for (int64_t i = 0; i < n; i++) p[i] = (real)(std * rng::normal(key, (uint64_t)i));
}

}  // namespace plain
