// cpu/init.cuh: ../init.cuh; two deviates from each draw, pieces of the array shared out.
#pragma once
#include "../init.cuh"
#include "simd.cuh"

namespace cpu {

inline void normal_fill(float *p, int64_t n, double std, uint64_t key) {
  static_assert(ELEMENTS % 2 == 0, "a pair of deviates stays in one piece");
  parallel_rows(n, ELEMENTS, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i += 2) {
      const rng::Pair pair = rng::normal_pair(key, (uint64_t)i / 2);
      p[i] = (float)(std * pair.even);
      if (i + 1 < to) p[i + 1] = (float)(std * pair.odd);
    }
  });
}

}  // namespace cpu
