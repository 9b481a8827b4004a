// gpu/init.cuh: ../init.cuh, a thread per draw of two deviates.
#pragma once
#include "../random.cuh"
#include "launch.cuh"

namespace gpu {

__global__ void normal_fill_kernel(float *p, int64_t n, double std, uint64_t key) {
  const int64_t k = index_of_thread();
  if (2 * k >= n) return;
  const rng::Pair pair = rng::normal_pair(key, (uint64_t)k);
  p[2 * k] = (float)(std * pair.even);
  if (2 * k + 1 < n) p[2 * k + 1] = (float)(std * pair.odd);
}
inline void normal_fill(float *p, int64_t n, double std, uint64_t key) {
  a_thread_each(normal_fill_kernel, divide_up(n, 2), p, n, std, key);
}

}  // namespace gpu
