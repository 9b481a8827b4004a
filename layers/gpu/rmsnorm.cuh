// gpu/rmsnorm.cuh: ../rmsnorm.cuh. A warp per row; the gain's gradient is a thread per (sequence, channel) with its
// chain over t. Backward reads dout and inp before it writes a row of dinp, which may be dout, so the gain goes first.
#pragma once
#include "embedding.cuh"

namespace gpu {

constexpr int NORM_ROWS = 4;  // warps of a block, one row each

__global__ void rmsnorm_apply_kernel(float *out, const float *inp, const float *rstd, const float *gain, int64_t n,
                                     int64_t C) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (inp[i] * rstd[i / C]) * gain[i % C];
}
inline void rmsnorm_apply(float *out, const float *inp, const float *rstd, const float *gain, int64_t N, int64_t C) {
  launch(rmsnorm_apply_kernel, blocks_of(N * C, THREADS), dim3(THREADS), 0, context().stream, out, inp, rstd, gain,
         N * C, C);
}

__global__ void rmsnorm_forward_kernel(float *out, float *rstd, const float *inp, const float *gain, int64_t N,
                                       int64_t C, float eps) {
  const int64_t n = (int64_t)blockIdx.x * NORM_ROWS + warp_id();
  if (n >= N) return;
  const float *x = inp + n * C, r = 1 / exact::sqrt(lane_dot(x, x, C) / (float)C + eps);
  if (lane_id() == 0) rstd[n] = r;
  for (int64_t c = lane_id(); c < C; c += WARP) out[n * C + c] = (x[c] * r) * gain[c];
}
inline void rmsnorm_forward(float *out, float *rstd, const float *inp, const float *gain, int64_t N, int64_t C,
                            double eps) {
  launch(rmsnorm_forward_kernel, blocks_of(N, NORM_ROWS), dim3(NORM_ROWS * WARP), 0, context().stream, out, rstd, inp,
         gain, N, C, (float)eps);
}

// sums (B,C): chain over t of fma(dout, xhat, .)
__global__ void rmsnorm_gain_kernel(float *sums, const float *dout, const float *inp, const float *rstd, int64_t B,
                                    int64_t T, int64_t C) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= B * C) return;
  float sum = 0;
  for (int64_t n = i / C * T; n < (i / C + 1) * T; n++)
    sum = exact::fma(dout[n * C + i % C], inp[n * C + i % C] * rstd[n], sum);
  sums[i] = sum;
}
__global__ void rmsnorm_backward_kernel(float *dinp, const float *dout, const float *inp, const float *rstd,
                                        const float *gain, int64_t N, int64_t C) {
  const int64_t n = (int64_t)blockIdx.x * NORM_ROWS + warp_id();
  if (n >= N) return;
  const float r = rstd[n];
  float dot = 0;
  for (int64_t c = lane_id(); c < C; c += WARP) dot = exact::fma(dout[n * C + c] * gain[c], inp[n * C + c] * r, dot);
  const float k = butterfly(dot) / (float)C;
  for (int64_t c = lane_id(); c < C; c += WARP)
    dinp[n * C + c] = r * exact::fma(-(inp[n * C + c] * r), k, dout[n * C + c] * gain[c]);
}
inline void rmsnorm_backward(float *dinp, float *dgain, const float *dout, const float *inp, const float *rstd,
                             const float *gain, int64_t B, int64_t T, int64_t C, const exact::Carry &carry) {
  float *sums = scratch<float>(B * C);
  launch(rmsnorm_gain_kernel, blocks_of(B * C, WARP), dim3(WARP), 0, context().stream, sums, dout, inp, rstd, B, T, C);
  launch(rmsnorm_backward_kernel, blocks_of(B * T, NORM_ROWS), dim3(NORM_ROWS * WARP), 0, context().stream, dinp, dout,
         inp, rstd, gain, B * T, C);
  add_sequences(dgain, sums, B, C, carry);
}

}  // namespace gpu
