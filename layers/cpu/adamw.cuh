// cpu/adamw.cuh: ../adamw.cuh; pieces of the flat arrays are shared out. The update is the definition's loop, which the
// compiler vectorizes and memory bounds.
#pragma once
#include "../adamw.cuh"
#include "simd.cuh"
#include <vector>

namespace cpu {

inline double chunk_of_squares(const float *g, int64_t n) {
  double lane[32] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int l = 0; l < 32; l++) lane[l] = exact::fma((double)g[i + l], (double)g[i + l], lane[l]);
  for (; i < n; i++) lane[i % 32] = exact::fma((double)g[i], (double)g[i], lane[i % 32]);
  return exact::butterfly(lane);
}
inline double sum_of_squares(const float *g, int64_t n) {
  std::vector<double> sums(cdiv(n, NORM_CHUNK));
  parallel_rows(n, NORM_CHUNK,
                [&](int64_t from, int64_t to) { sums[from / NORM_CHUNK] = chunk_of_squares(g + from, to - from); });
  double sum = 0;
  for (double s : sums) sum = sum + s;
  return sum;
}
inline void adamw_update(float *p, const float *g, float *m, float *v, int64_t n, const AdamW &h) {
  parallel_rows(n, ELEMENTS,
                [&](int64_t i, int64_t to) { plain::adamw_update(p + i, g + i, m + i, v + i, to - i, h); });
}

}  // namespace cpu
