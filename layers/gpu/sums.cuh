// gpu/sums.cuh: ../sums.cuh as a tree over neighbours, the same sum; and what it adds: chains over the tokens of a
// sequence, of scalars (sum_tokens_kernel) and of products (sum_products).
#pragma once
#include "launch.cuh"

namespace gpu {

// ---- add_sequences: a thread per element. Destroys sums: for s = 1, 2, 4, ...: x[b] += x[b+s], b a multiple of 2s
__global__ void add_sequences_kernel(float *out, float *sums, int64_t B, int64_t n, exact::Carry carry) {
  const int64_t i = index_of_thread();
  if (i >= n) return;
  float *x = sums + i;
  for (int64_t s = 1; s < B; s *= 2)
    for (int64_t b = 0; b + s < B; b += 2 * s) x[b * n] = x[b * n] + x[(b + s) * n];
  out[i] = exact::carried(out, i, x[0], carry);
}
inline void add_sequences(float *out, float *sums, int64_t B, int64_t n, const exact::Carry &carry) {
  a_thread_each(add_sequences_kernel, n, out, sums, B, n, carry);
}

// ---- sums (B) of x (N), from +0 or going on: a warp brings 32 tokens of its sequence and adds one after the other
__global__ void sum_tokens_kernel(float *sums, const float *x, bool go_on, int64_t B, int64_t T) {
  const int64_t b = index_of_warp();
  if (b >= B) return;
  float sum = go_on ? sums[b] : 0;
  for (int64_t t = 0; t < T; t += WARP) {
    const float mine = t + lane_id() < T ? x[b * T + t + lane_id()] : 0;
    for (int i = 0; i < WARP && t + i < T; i++) sum = sum + from_lane(mine, i);
  }
  __syncwarp();  // every lane has read sums
  if (lane_id() == 0) sums[b] = sum;
}

// ---- sums (B,C) of fma(dout, x*r, .), r (N), or without r of fma(dout, x, .): a thread per (sequence, channel). They
// are few and their chains long: blocks of one warp spread them over the multiprocessors. The result is scratch
__global__ void sum_products_kernel(float *sums, const float *dout, const float *x, const float *r, int64_t B,
                                    int64_t T, int64_t C) {
  const int64_t i = index_of_thread();
  if (i >= B * C) return;
  float sum = 0;
  for (int64_t n = i / C * T; n < (i / C + 1) * T; n++) {
    const float at = x[n * C + i % C];
    sum = exact::fma(dout[n * C + i % C], r ? at * r[n] : at, sum);
  }
  sums[i] = sum;
}
inline float *sum_products(const float *dout, const float *x, const float *r, int64_t B, int64_t T, int64_t C) {
  float *sums = scratch<float>(B * C);
  launch(sum_products_kernel, blocks_of(B * C, WARP), dim3(WARP), 0, context().stream, sums, dout, x, r, B, T, C);
  return sums;
}

}  // namespace gpu
