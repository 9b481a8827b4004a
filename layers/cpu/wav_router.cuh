// cpu/wav_router.cuh: blocks and details of ../../wav_router.cuh. The partial sums of a token are rebuilt from the
// block's updates, a vector of channels and all bases at a time, into rows that stay in L1.
#pragma once
#include "../../wav_router.cuh"
#include "attnres.cuh"

namespace cpu {

template <int BASES> INLINE void sum_updates(float *to, int64_t ld, const BlockPartials<float> &b,
                                             const float *const *coef, int64_t t, int64_t C) {
  over_wide<(BASES > 3 ? 2 : 4)>(
      C, [&](auto width, auto get, auto put, int64_t c) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        vec acc[BASES][W];
        UNROLL for (int d = 0; d < BASES; d++) UNROLL for (int v = 0; v < W; v++) acc[d][v] = splat(0.f);
        for (int k = 0; k < b.updates; k++) {
          vec f[BASES];
          UNROLL for (int d = 0; d < BASES; d++) f[d] = splat(coef[d][k]);
          const float *const row = b.u[k] + t * C + c;
          UNROLL for (int v = 0; v < W; v++) {
            const vec u = in_register(get(row, v));
            UNROLL for (int d = 0; d < BASES; d++) acc[d][v] = fma(f[d], u, acc[d][v]);
          }
        }
        UNROLL for (int d = 0; d < BASES; d++) UNROLL for (int v = 0; v < W; v++) put(to + d * ld + c, v, acc[d][v]);
      });
}
struct CpuBlockReader {
  static constexpr bool details = true;
  const BlockPartials<float> &b;
  int64_t C;
  float *sums;                      // (count,8,C)
  int count = 0, of[MAX_PARTIALS];  // bases with the same coefficients so far (split: in the first half) share a row
  const float *coef[MAX_PARTIALS];  // of each row
  CpuBlockReader(const BlockPartials<float> &b, int64_t C)
      : b(b),
        C(C),
        sums(scratch<7>(b.bases * 8 * C)) {
    for (int d = 0; d < b.count(); d++) {
      const float *f = b.coef + d * b.m;
      for (of[d] = 0; of[d] < count && memcmp(f, coef[of[d]], (size_t)b.updates * sizeof(float));) of[d]++;
      if (of[d] == count) coef[count++] = f;
    }
  }
  void rows(Tokens &x, int64_t t) const {
    x.n = b.count();
    x.rows = count;
    for (int d = 0; d < x.n; d++) {
      x.of[d] = of[d];
      x.row[of[d]] = sums + of[d] * 8 * C;
    }
    counted(count, [&](auto rows) {
      constexpr int n = decltype(rows)::value;
      if constexpr (n > 0)
        for (int i = 0; i < x.tokens; i++) sum_updates<n>(sums + i * C, 8 * C, b, coef, t + i, C);
    });
  }
  // and dot[row] = w . row
  void scales(oct *dot, Tokens &x, const float *w, int64_t) const {
    oct ss[MAX_PARTIALS];
    dots_and_squares(dot, ss, w, x.row, x.rows, x.tokens, C);
    scales_of(x, ss);
  }
  void scales_of(Tokens &x, const oct *ss) const {
    const oct rms0 = rms(ss[of[0]]);
    for (int d = 0; d < x.n; d++) {
      const oct square = ss[of[d]];
      x.c[d] = d == 0 ? all8(1.f) : rms_matching(rms0, rms(square));
      x.r[d] = all8(1.f) / sqrt8(((x.c[d] * x.c[d]) * square) / all8((float)C) + all8((float)b.key_eps));
    }
  }
  oct rms(oct square) const { return sqrt8(square / all8((float)C)); }
  oct rms_matching(oct rms0, oct rms) const {
    const oct ratio = rms0 / (rms + all8((float)b.wav_eps)), rho = all8((float)b.rho);
    return rho < ratio ? rho : ratio;
  }
};
}  // namespace cpu
inline cpu::CpuBlockReader cpu_reader(const BlockPartials<float> &b, int64_t C) { return {b, C}; }
namespace cpu {

inline void close_block(const StoredBlock<float> &to, const BlockPartials<float> &b, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    const auto read = cpu_reader(b, C);
    for (int64_t t = t0; t < t1; t += 8) {
      Tokens x;
      x.tokens = (int)std::min<int64_t>(8, t1 - t);
      oct ss[MAX_PARTIALS];
      read.rows(x, t);
      for (int d = 0; d < x.rows; d++) row_dots(&ss[d], x.row[d], C, &x.row[d], 1, x.tokens, C);
      read.scales_of(x, ss);
      for (int d = 0; d < x.n; d++) {
        store_some(to.r[d] + t, x.tokens, x.r[d]);
        store_some(to.c[d] + t, x.tokens, x.c[d]);
        for (int i = 0; i < x.tokens; i++) {
          const float *from = x.row[x.of[d]] + i * C;
          float *row = to.row[d] + (t + i) * C;
          if (d == 0)
            std::copy_n(from, C, row);
          else
            over(C, [&](auto get, auto put, int64_t ch) { put(row + ch, splat(x.c[d][i]) * get(from + ch)); });
        }
      }
    }
  });
}
inline void close_block_backward(float *const *G, const float *const *c, int bases, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    for (int d = 1; d < bases; d++)
      for (int64_t t = t0; t < t1; t++) {
        float *row = G[d] + t * C;
        over(C, [&](auto get, auto put, int64_t ch) { put(row + ch, splat(c[d][t]) * get(row + ch)); });
      }
  });
}
inline void block_update_backward(const UpdateGradient<float> &to, const float *const *G, const BlockPartials<float> &b,
                                  int i, int64_t B, int64_t T, int64_t C) {
  parallel(B, [&](int64_t s) {
    for (int64_t t = s * T; t < (s + 1) * T; t++) {
      over(C, [&](auto get, auto put, int64_t ch) {
        vec x = get(G[0] + t * C + ch);
        for (int d = 1; d < b.bases; d++) x = fma(splat(b.coef[d * b.m + i]), get(G[d] + t * C + ch), x);
        put(to.du + t * C + ch, x);
      });
      if (to.learned) to.dcoef[s] = to.dcoef[s] + lane_dot(G[to.learned] + t * C, b.u[i] + t * C, C);
    }
  });
}
inline void block_read_backward(const UpdateGradient<float> &last, const ReadGradients<float> &to,
                                const MixRead<float> &of, const BlockPartials<float> &b, int64_t B, int64_t T,
                                int64_t C) {
  float coef[MAX_PARTIALS];
  for (int d = 0; d < b.bases; d++) coef[d] = b.coef[d * b.m + b.updates - 1];
  phase2_backward(last.learned ? nullptr : last.du, coef, to, of, b, B, T, C);
  if (last.learned) block_update_backward(last, to.G, b, b.updates - 1, B, T, C);
}

}  // namespace cpu
