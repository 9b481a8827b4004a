// cpu/crossentropy.cuh: ../crossentropy.cuh with vectors along a row of logits.
#pragma once
#include "../crossentropy.cuh"
#include "simd.cuh"

namespace cpu {

// z[j] = exp(z[j] - m), m = the largest; returns the lane sum of the exponentials
INLINE float softmax_exponentials(float *z, int64_t V, float &m) {
  float largest = z[0];
  int64_t j = 0;
  if (V >= VL) {
    vec top = load(z);
    for (j = VL; j + VL <= V; j += VL) top = larger(load(z + j), top);
    for (int i = 0; i < VL; i++) largest = top[i] > largest ? top[i] : largest;
  }
  for (; j < V; j++) largest = z[j] > largest ? z[j] : largest;
  m = largest + 0.f;
  Lanes lanes;
  for (j = 0; j + 32 <= V; j += 32) UNROLL for (int u = 0; u < LV; u++) {
      const vec e = exp_neg(load(z + j + u * VL) - splat(m));
      store(z + j + u * VL, e);
      lanes.x[u] = lanes.x[u] + e;
    }
  lane_tail(lanes, j, V, [&](float lane, int64_t i) {
    z[i] = exact::exp_neg(z[i] - m);
    return lane + z[i];
  });
  return lanes.sum();
}
inline void crossentropy_forward(float *losses, float *logits, int64_t ld, const int32_t *targets, int64_t N,
                                 int64_t V) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) {
      float *z = logits + n * ld, m;
      const float target = z[targets[n]], S = softmax_exponentials(z, V, m);
      losses[n] = exact::log(S) - (target - m);
    }
  });
}
inline void crossentropy_backward(float *losses, float *logits, int64_t ld, const int32_t *targets, int64_t N,
                                  int64_t V, int64_t count) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) {
      float *z = logits + n * ld, m;
      const float target = z[targets[n]], S = softmax_exponentials(z, V, m), inverse = 1 / S;
      losses[n] = exact::log(S) - (target - m);
      const float correct = (z[targets[n]] * inverse - 1) / (float)count;
      over(V, [&](auto get, auto put, int64_t j) {
        put(z + j, (get(z + j) * splat(inverse) - splat(0.f)) / splat((float)count));
      });
      z[targets[n]] = correct;
    }
  });
}

}  // namespace cpu
