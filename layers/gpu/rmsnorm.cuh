// gpu/rmsnorm.cuh: ../rmsnorm.cuh. A warp per row; the gain's gradient is a thread per (sequence, channel) with its
// chain over t. Backward reads dout and inp before it writes a row of dinp, which may be dout, so the gain goes first.
#pragma once
#include "sums.cuh"

namespace gpu {

__global__ void rmsnorm_apply_kernel(float *out, const float *inp, const float *rstd, const float *gain, int64_t n,
                                     int64_t C) {
  const int64_t i = index_of_thread();
  if (i < n) out[i] = (inp[i] * rstd[i / C]) * gain[i % C];
}
inline void rmsnorm_apply(float *out, const float *inp, const float *rstd, const float *gain, int64_t N, int64_t C) {
  a_thread_each(rmsnorm_apply_kernel, N * C, out, inp, rstd, gain, N * C, C);
}

__global__ void rmsnorm_forward_kernel(float *out, float *rstd, const float *inp, const float *gain, int64_t N,
                                       int64_t C, float eps) {
  const int64_t n = index_of_warp();
  if (n >= N) return;
  const float *x = inp + n * C, r = 1 / exact::sqrt(lane_dot(x, x, C) / (float)C + eps);
  if (lane_id() == 0) rstd[n] = r;
  for (int64_t c = lane_id(); c < C; c += WARP) out[n * C + c] = (x[c] * r) * gain[c];
}
inline void rmsnorm_forward(float *out, float *rstd, const float *inp, const float *gain, int64_t N, int64_t C,
                            double eps) {
  a_warp_each(rmsnorm_forward_kernel, N, out, rstd, inp, gain, N, C, (float)eps);
}

__global__ void rmsnorm_backward_kernel(float *dinp, const float *dout, const float *inp, const float *rstd,
                                        const float *gain, int64_t N, int64_t C) {
  const int64_t n = index_of_warp();
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
  add_sequences(dgain, sum_products(dout, inp, rstd, B, T, C), B, C, carry);
  a_warp_each(rmsnorm_backward_kernel, B * T, dinp, dout, inp, rstd, gain, B * T, C);
}

}  // namespace gpu
