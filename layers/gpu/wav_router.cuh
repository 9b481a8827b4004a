// gpu/wav_router.cuh: blocks and details of ../../wav_router.cuh. A warp takes a token; the partial sums are rebuilt
// from the block's updates wherever they are needed, all of them in one go through the updates, a lane a channel.
#pragma once
#include "attnres.cuh"
#include "embedding.cuh"
#include "../../wav_router.cuh"

namespace gpu {

struct BlockRows {
  static constexpr bool details = true;
  const float *const *u;
  const float *coef;
  int64_t m, C;
  int updates;
  float rho, wav_eps, key_eps;
  __device__ int detail(int i) const { return i; }
  // P_d = chain from +0 of fma(coef_dk, u_k, .)
  template <int n> __device__ void rows(float *P, int64_t t, int64_t ch) const {
    for (int d = 0; d < n; d++) P[d] = 0;
#pragma unroll 4
    for (int i = 0; i < updates; i++) {
      const float x = u[i][t * C + ch];
      for (int d = 0; d < n; d++) P[d] = exact::fma(coef[d * m + i], x, P[d]);
    }
  }
  __device__ float row(int d, int64_t t, int64_t ch) const {
    float P = 0;
#pragma unroll 4
    for (int i = 0; i < updates; i++) P = exact::fma(coef[d * m + i], u[i][t * C + ch], P);
    return P;
  }
  __device__ float rms_matching(float rms0, float rms) const {
    const float ratio = rms0 / (rms + wav_eps);
    return rho < ratio ? rho : ratio;
  }
  // c_d = min(rho, sqrt(ss_0/C) / (sqrt(ss_d/C) + wav_eps)), c_0 = 1;  r_d = 1/sqrt(((c_d*c_d)*ss_d)/C + key_eps)
  __device__ void scales(float &c, float &r, float (&squares)[GROUP], int d, int64_t) const {
    const float ss = butterflies(squares), rms = exact::sqrt(ss / (float)C);
    const float matched = rms_matching(from_lane(rms, 0), rms);  // by every lane: it shuffles
    c = d == 0 ? 1 : matched;
    r = 1 / exact::sqrt(((c * c) * ss) / (float)C + key_eps);
  }
};
inline BlockRows block_rows(const BlockPartials<float> &b, int64_t C) {
  return {table(b.u, b.updates), b.coef, b.m, C, b.updates, (float)b.rho, (float)b.wav_eps, (float)b.key_eps};
}
}  // namespace gpu
inline gpu::BlockRows gpu_rows(const BlockPartials<float> &b, int64_t C) { return gpu::block_rows(b, C); }
namespace gpu {

// Row d = c_d*P_d, with its r and c. Lanes 4d.. are basis d
template <int n> __global__ void close_block_kernel(StoredBlock<float> to, BlockRows b, int64_t N, int64_t C) {
  const int64_t t = index_of_warp();
  if (t >= N) return;
  const int lane = lane_id(), d = lane / PER_PARTIAL < n ? lane / PER_PARTIAL : 0;
  float P[MAX_PARTIALS], scale[MAX_PARTIALS], squares[GROUP] = {}, c, r;
  for (int64_t ch = lane; ch < C; ch += WARP) {
    b.rows<n>(P, t, ch);
    for (int j = 0; j < n; j++) squares[j] = exact::fma(P[j], P[j], squares[j]);
  }
  b.scales(c, r, squares, d, t);
  if (lane == d * PER_PARTIAL) {
    to.r[d][t] = r;
    to.c[d][t] = c;
  }
  for (int j = 0; j < n; j++) scale[j] = from_lane(c, j * PER_PARTIAL);
  for (int64_t ch = lane; ch < C; ch += WARP) {
    b.rows<n>(P, t, ch);
    for (int j = 0; j < n; j++) to.row[j][t * C + ch] = j == 0 ? P[j] : scale[j] * P[j];
  }
}
inline void close_block(const StoredBlock<float> &to, const BlockPartials<float> &b, int64_t N, int64_t C) {
  const int64_t n = b.count();
  const StoredBlock<float> tables{table(to.row, n), table(to.r, n), table(to.c, n)};
  counted(b.count(), [&](auto count) {
    if constexpr (decltype(count)::value > 0)
      a_warp_each(close_block_kernel<decltype(count)::value>, N, tables, block_rows(b, C), N, C);
  });
}

// G_d = c_d*ds_d of the details
__global__ void close_block_backward_kernel(float *const *G, const float *const *c, int bases, int64_t N, int64_t C) {
  const int64_t t = index_of_warp();
  if (t >= N) return;
  for (int d = 1; d < bases; d++) {
    const float scale = c[d][t];
    for (int64_t i = t * C + lane_id(); i < (t + 1) * C; i += WARP) G[d][i] = scale * G[d][i];
  }
}
inline void close_block_backward(float *const *G, const float *const *c, int bases, int64_t N, int64_t C) {
  if (bases > 1) a_warp_each(close_block_backward_kernel, N, table(G, bases), table(c, bases), bases, N, C);
}

// du = G_0, then fma(coef_di, G_d, .), d ascending; dots (N), if a detail is learned: lane(G_d.u_i)
__global__ void block_update_backward_kernel(float *du, float *dots, const float *const *G, const float *coef,
                                             const float *u, int learned, int bases, int64_t m, int64_t N, int64_t C) {
  const int64_t t = index_of_warp();
  if (t >= N) return;
  for (int64_t n = t * C + lane_id(); n < (t + 1) * C; n += WARP) {
    float x = G[0][n];
    for (int d = 1; d < bases; d++) x = exact::fma(coef[d * m], G[d][n], x);
    du[n] = x;
  }
  if (!learned) return;
  const float dot = lane_dot(G[learned] + t * C, u + t * C, C);
  if (lane_id() == 0) dots[t] = dot;
}
inline void block_update_backward(const UpdateGradient<float> &to, const float *const *G, const BlockPartials<float> &b,
                                  int i, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T;
  float *dots = to.learned ? scratch<float>(N) : nullptr;
  a_warp_each(block_update_backward_kernel, N, to.du, dots, table(G, b.bases), b.coef + i, b.u[i], to.learned, b.bases,
              b.m, N, C);
  if (to.learned) a_warp_each(sum_tokens_kernel, B, to.dcoef, dots, true, B, T);
}

inline void block_read_backward(const UpdateGradient<float> &last, const ReadGradients<float> &to,
                                const MixRead<float> &of, const BlockPartials<float> &b, int64_t B, int64_t T,
                                int64_t C) {
  mix_phase2_backward(to, of, b, B, T, C);
  block_update_backward(last, to.G, b, b.updates - 1, B, T, C);
}

}  // namespace gpu
