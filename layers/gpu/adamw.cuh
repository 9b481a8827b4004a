// gpu/adamw.cuh: ../adamw.cuh. The norm: a warp per chunk, whose sums the host adds ascending;
// chunks are few, and blocks of one warp spread them over the multiprocessors. The update: a thread per element.
#pragma once
#include "../adamw.cuh"
#include "launch.cuh"

namespace gpu {

__global__ void chunk_of_squares_kernel(double *sums, const float *g, int64_t n) {
  const int64_t first = (int64_t)blockIdx.x * NORM_CHUNK, end = first + NORM_CHUNK < n ? first + NORM_CHUNK : n;
  double sum = 0;
  for (int64_t i = first + lane_id(); i < end; i += WARP) sum = exact::fma((double)g[i], (double)g[i], sum);
  sum = butterfly(sum);
  if (lane_id() == 0) sums[blockIdx.x] = sum;
}
inline double sum_of_squares(const float *g, int64_t n) {
  const int64_t chunks = divide_up(n, NORM_CHUNK);
  double *sums = scratch<double>(chunks), sum = 0;
  launch(chunk_of_squares_kernel, dim3((unsigned)chunks), dim3(WARP), 0, context().stream, sums, g, n);
  for (double chunk : on_host(sums, chunks)) sum = sum + chunk;
  return sum;
}

struct AdamWFloats {
  float lr, b1, b2, rest1, rest2, eps, decay, c1, c2, scale;
};
__global__ void adamw_update_kernel(float *p, const float *g, float *m, float *v, int64_t n, AdamWFloats h) {
  const int64_t i = index_of_thread();
  if (i >= n) return;
  const float G = h.scale * g[i], mean = exact::fma(h.b1, m[i], h.rest1 * G),
              square = exact::fma(h.b2, v[i], h.rest2 * (G * G)),
              u = (mean / h.c1) / (exact::sqrt(square / h.c2) + h.eps);
  m[i] = mean;
  v[i] = square;
  p[i] = exact::fma(-h.lr, exact::fma(h.decay, p[i], u), p[i]);
}
inline void adamw_update(float *p, const float *g, float *m, float *v, int64_t n, const AdamW &h) {
  const AdamWFloats f{(float)h.lr,  (float)h.beta1, (float)h.beta2,       (float)(1 - h.beta1), (float)(1 - h.beta2),
                      (float)h.eps, (float)h.decay, (float)h.correction1, (float)h.correction2, (float)h.scale};
  a_thread_each(adamw_update_kernel, n, p, g, m, v, n, f);
}

}  // namespace gpu
