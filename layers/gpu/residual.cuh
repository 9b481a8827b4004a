// gpu/residual.cuh: ../residual.cuh. Elements: a thread each; gradients of the scales: a warp per token and a thread
// per sequence (rezero), or a thread per (sequence, channel) (layerscale), then the counter.
#pragma once
#include "embedding.cuh"

namespace gpu {

__global__ void residual_forward_kernel(float *out, const float *x, const float *u, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + u[i];
}
inline void residual_forward(float *out, const float *x, const float *u, int64_t n) {
  launch(residual_forward_kernel, blocks_of(n, THREADS), dim3(THREADS), 0, context().stream, out, x, u, n);
}

// scale[i % period]: rezero has one, layerscale one a channel
__global__ void scaled_update_kernel(float *out, const float *x, const float *u, const float *scale, int64_t period,
                                     int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = exact::fma(scale[i % period], u[i], x[i]);
}
inline void rezero_forward(float *out, const float *x, const float *u, const float *a, int64_t N, int64_t C) {
  launch(scaled_update_kernel, blocks_of(N * C, THREADS), dim3(THREADS), 0, context().stream, out, x, u, a, (int64_t)1,
         N * C);
}
inline void layerscale_forward(float *out, const float *x, const float *u, const float *l, int64_t N, int64_t C) {
  launch(scaled_update_kernel, blocks_of(N * C, THREADS), dim3(THREADS), 0, context().stream, out, x, u, l, C, N * C);
}
__global__ void scaled_gradient_kernel(float *du, const float *dx, const float *scale, int64_t period, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) du[i] = scale[i % period] * dx[i];
}

// dots (N): lane(dx.u) of every token; then sums (B): chain over t
__global__ void token_dot_kernel(float *dots, const float *dx, const float *u, int64_t N, int64_t C) {
  const int64_t n = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp_id();
  if (n >= N) return;
  const float dot = lane_dot(dx + n * C, u + n * C, C);
  if (lane_id() == 0) dots[n] = dot;
}
__global__ void sum_tokens_kernel(float *sums, const float *dots, int64_t B, int64_t T) {
  const int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= B) return;
  float sum = 0;
  for (int64_t n = b * T; n < (b + 1) * T; n++) sum = sum + dots[n];
  sums[b] = sum;
}
inline void rezero_backward(float *du, float *da, const float *dx, const float *u, const float *a, int64_t B, int64_t T,
                            int64_t C, const exact::Carry &carry) {
  const int64_t N = B * T;
  float *dots = scratch<float>(N + B), *sums = dots + N;
  const cudaStream_t stream = context().stream;
  launch(token_dot_kernel, blocks_of(N, THREADS / WARP), dim3(THREADS), 0, stream, dots, dx, u, N, C);
  launch(sum_tokens_kernel, blocks_of(B, WARP), dim3(WARP), 0, stream, sums, dots, B, T);
  launch(scaled_gradient_kernel, blocks_of(N * C, THREADS), dim3(THREADS), 0, stream, du, dx, a, (int64_t)1, N * C);
  add_sequences(da, sums, B, 1, carry);
}

__global__ void layerscale_sums_kernel(float *sums, const float *dx, const float *u, int64_t B, int64_t T, int64_t C) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= B * C) return;
  float sum = 0;
  for (int64_t n = i / C * T; n < (i / C + 1) * T; n++) sum = exact::fma(dx[n * C + i % C], u[n * C + i % C], sum);
  sums[i] = sum;
}
inline void layerscale_backward(float *du, float *dl, const float *dx, const float *u, const float *l, int64_t B,
                                int64_t T, int64_t C, const exact::Carry &carry) {
  const int64_t n = B * T * C;
  float *sums = scratch<float>(B * C);
  const cudaStream_t stream = context().stream;
  launch(layerscale_sums_kernel, blocks_of(B * C, WARP), dim3(WARP), 0, stream, sums, dx, u, B, T, C);
  launch(scaled_gradient_kernel, blocks_of(n, THREADS), dim3(THREADS), 0, stream, du, dx, l, C, n);
  add_sequences(dl, sums, B, C, carry);
}

}  // namespace gpu
