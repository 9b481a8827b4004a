// gpu/crossentropy.cuh: ../crossentropy.cuh, a warp per row of logits.
#pragma once
#include "launch.cuh"

namespace gpu {

// z[j] = exp_neg(z[j] - m) of the row's own lanes; the lane sum, in every lane. Reads the target's logit first
__device__ inline float softmax_exponentials(float *z, int64_t V, int64_t target, float &m, float &target_logit) {
  float largest = z[0];
  for (int64_t j = lane_id(); j < V; j += WARP) largest = z[j] > largest ? z[j] : largest;
  m = warp_max(largest) + 0.f;
  target_logit = z[target];
  __syncwarp();
  float sum = 0;
  for (int64_t j = lane_id(); j < V; j += WARP) {
    const float e = exact::exp_neg(z[j] - m);
    z[j] = e;
    sum = sum + e;
  }
  return butterfly(sum);
}

// count 0: losses alone; otherwise logits become dlogits
__global__ void crossentropy_kernel(float *losses, float *logits, int64_t ld, const int32_t *targets, int64_t N,
                                    int64_t V, int64_t count) {
  const int64_t n = index_of_warp();
  if (n >= N) return;
  float *z = logits + n * ld, m, target_logit;
  const int64_t target = targets[n];
  const float S = softmax_exponentials(z, V, target, m, target_logit), inverse = 1 / S;
  if (lane_id() == 0) losses[n] = exact::log(S) - (target_logit - m);
  for (int64_t j = lane_id(); j < V && count; j += WARP)
    z[j] = (z[j] * inverse - (j == target ? 1.f : 0.f)) / (float)count;
}
inline void crossentropy_forward(float *losses, float *logits, int64_t ld, const int32_t *targets, int64_t N,
                                 int64_t V) {
  a_warp_each(crossentropy_kernel, N, losses, logits, ld, targets, N, V, (int64_t)0);
}
inline void crossentropy_backward(float *losses, float *logits, int64_t ld, const int32_t *targets, int64_t N,
                                  int64_t V, int64_t count) {
  a_warp_each(crossentropy_kernel, N, losses, logits, ld, targets, N, V, count);
}

}  // namespace gpu
