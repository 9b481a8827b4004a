// cpu/sums.cuh: ../sums.cuh: the counter as a tree over neighbours, which is the same sum, with vectors along the row.
#pragma once
#include "../sums.cuh"
#include "simd.cuh"

namespace cpu {

// Destroys sums. For s = 1, 2, 4, ...: x[b] += x[b+s], b a multiple of 2s
inline void add_sequences(float *out, float *sums, int64_t B, int64_t n, const exact::Carry &carry) {
  for (int64_t s = 1; s < B; s *= 2)
    for (int64_t b = 0; b + s < B; b += 2 * s)
      over(n, [&](auto get, auto put, int64_t i) {
        put(sums + b * n + i, get(sums + b * n + i) + get(sums + (b + s) * n + i));
      });
  for (int s = 0; s < carry.adds; s++)
    over(n, [&](auto get, auto put, int64_t i) { put(sums + i, get(out + carry.offset[s] + i) + get(sums + i)); });
  std::copy_n(sums, n, out);
}

}  // namespace cpu
