// gpu/residual.cuh: ../residual.cuh. Elements: a thread each; gradients of the scales: a warp per token and one per
// sequence (rezero), or a thread per (sequence, channel) (layerscale), then the counter.
#pragma once
#include "sums.cuh"

namespace gpu {

__global__ void residual_forward_kernel(float *out, const float *x, const float *u, int64_t n) {
  const int64_t i = index_of_thread();
  if (i < n) out[i] = x[i] + u[i];
}
inline void residual_forward(float *out, const float *x, const float *u, int64_t n) {
  a_thread_each(residual_forward_kernel, n, out, x, u, n);
}

// scale[i % period]: rezero has one, layerscale one a channel
__global__ void scaled_update_kernel(float *out, const float *x, const float *u, const float *scale, int64_t period,
                                     int64_t n) {
  const int64_t i = index_of_thread();
  if (i < n) out[i] = exact::fma(scale[i % period], u[i], x[i]);
}
inline void rezero_forward(float *out, const float *x, const float *u, const float *a, int64_t N, int64_t C) {
  a_thread_each(scaled_update_kernel, N * C, out, x, u, a, (int64_t)1, N * C);
}
inline void layerscale_forward(float *out, const float *x, const float *u, const float *l, int64_t N, int64_t C) {
  a_thread_each(scaled_update_kernel, N * C, out, x, u, l, C, N * C);
}
__global__ void scaled_gradient_kernel(float *du, const float *dx, const float *scale, int64_t period, int64_t n) {
  const int64_t i = index_of_thread();
  if (i < n) du[i] = scale[i % period] * dx[i];
}

// dots (N): lane(dx.u) of every token
__global__ void token_dot_kernel(float *dots, const float *dx, const float *u, int64_t N, int64_t C) {
  const int64_t n = index_of_warp();
  if (n >= N) return;
  const float dot = lane_dot(dx + n * C, u + n * C, C);
  if (lane_id() == 0) dots[n] = dot;
}
inline void rezero_backward(float *du, float *da, const float *dx, const float *u, const float *a, int64_t B, int64_t T,
                            int64_t C, const exact::Carry &carry) {
  const int64_t N = B * T;
  float *dots = scratch<float>(N + B), *sums = dots + N;
  a_warp_each(token_dot_kernel, N, dots, dx, u, N, C);
  a_warp_each(sum_tokens_kernel, B, sums, dots, false, B, T);
  a_thread_each(scaled_gradient_kernel, N * C, du, dx, a, (int64_t)1, N * C);
  add_sequences(da, sums, B, 1, carry);
}

inline void layerscale_backward(float *du, float *dl, const float *dx, const float *u, const float *l, int64_t B,
                                int64_t T, int64_t C, const exact::Carry &carry) {
  const int64_t n = B * T * C;
  add_sequences(dl, sum_products(dx, u, nullptr, B, T, C), B, C, carry);
  a_thread_each(scaled_gradient_kernel, n, du, dx, l, C, n);
}

}  // namespace gpu
