// cpu/wav_router.cuh: blocks and details of ../../wav_router.cuh. The partial sums of a token are rebuilt from the
// block's updates, a vector of channels and all bases at a time, into rows that stay in L1.
#pragma once
#include "../../wav_router.cuh"
#include "attnres.cuh"

namespace cpu {

template <int BASES> INLINE void sum_updates(float *to, const BlockPartials<float> &b, int64_t t, int64_t C) {
  over(C, [&](auto get, auto put, int64_t c) {
    vec acc[BASES];
    UNROLL for (int d = 0; d < BASES; d++) acc[d] = splat(0.f);
    for (int k = 0; k < b.updates; k++) {
      const vec u = get(b.u[k] + t * C + c);
      UNROLL for (int d = 0; d < BASES; d++) acc[d] = fma(splat(b.coef[d * b.m + k]), u, acc[d]);
    }
    UNROLL for (int d = 0; d < BASES; d++) put(to + d * C + c, acc[d]);
  });
}
struct CpuBlockReader {
  const BlockPartials<float> &b;
  int64_t C;
  float *sums;
  void rows(OctRows &x, int64_t t) const {
    x.n = b.count();
    if (!x.n) return;
    switch (b.bases) {
      case 1:
        sum_updates<1>(sums, b, t, C);
        break;
      case 2:
        sum_updates<2>(sums, b, t, C);
        break;
      case 3:
        sum_updates<3>(sums, b, t, C);
        break;
      case 4:
        sum_updates<4>(sums, b, t, C);
        break;
      case 5:
        sum_updates<5>(sums, b, t, C);
        break;
      default:
        sum_updates<6>(sums, b, t, C);
    }
    for (int d = 0; d < x.n; d++) x.row[d] = sums + d * C;
  }
  void scales(OctRows &x, int64_t) const {
    oct v[8] = {};
    for (int d = 0; d < x.n; d++) dots_of<1>(v + d, x.row[d], x.row + d, C);
    const oct ss = reduce8(v), rms = sqrt8(ss / all8((float)C)), ratio = all8(rms[0]) / (rms + all8((float)b.wav_eps));
    x.c = all8((float)b.rho) < ratio ? all8((float)b.rho) : ratio;
    x.c[0] = 1;
    x.r = all8(1.f) / sqrt8(((x.c * x.c) * ss) / all8((float)C) + all8((float)b.key_eps));
  }
};
}  // namespace cpu
inline cpu::CpuBlockReader cpu_reader(const BlockPartials<float> &b, int64_t C) {
  return {b, C, cpu::scratch<7>(b.bases * C)};
}
namespace cpu {

inline void close_block(float *const *rows, float *const *r, float *const *c, const BlockPartials<float> &b, int64_t N,
                        int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    const auto read = cpu_reader(b, C);
    for (int64_t t = t0; t < t1; t++) {
      OctRows x;
      read.rows(x, t), read.scales(x, t);
      for (int d = 0; d < x.n; d++) {
        const float scale = x.c[d];
        r[d][t] = x.r[d], c[d][t] = scale;
        float *to = rows[d] + t * C;
        if (d == 0)
          std::copy_n(x.row[0], C, to);
        else
          over(C, [&](auto get, auto put, int64_t i) { put(to + i, splat(scale) * get(x.row[d] + i)); });
      }
    }
  });
}
inline void close_block_backward(float *const *G, const float *const *c, int bases, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    for (int d = 1; d < bases; d++)
      for (int64_t t = t0; t < t1; t++)
        over(C, [&](auto get, auto put, int64_t i) { put(G[d] + t * C + i, splat(c[d][t]) * get(G[d] + t * C + i)); });
  });
}
inline void block_update_backward(float *du, float *dcoef, int learned, const float *const *G,
                                  const BlockPartials<float> &b, int k, int64_t B, int64_t T, int64_t C) {
  parallel(B, [&](int64_t s) {
    for (int64_t t = s * T; t < (s + 1) * T; t++) {
      over(C, [&](auto get, auto put, int64_t i) {
        vec x = get(G[0] + t * C + i);
        for (int d = 1; d < b.bases; d++) x = fma(splat(b.coef[d * b.m + k]), get(G[d] + t * C + i), x);
        put(du + t * C + i, x);
      });
      if (learned) dcoef[s] = dcoef[s] + lane_dot(G[learned] + t * C, b.u[k] + t * C, C);
    }
  });
}

}  // namespace cpu
