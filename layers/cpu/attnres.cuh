// cpu/attnres.cuh: the depth mixer of ../../attnres.cuh. The 8 reads of a group, or up to 7 partials, are the 8 lanes
// of an `oct`: their lane sums end in one transposing reduction. Forward shares out tokens, backward sequences (dw and
// db are chains over the tokens of one). Lanes that are no reads compute on zeros and are not looked at.
#pragma once
#include "../../attnres.cuh"
#include "embedding.cuh"

namespace cpu {

using plain::query_backward;
using plain::query_forward;

typedef float oct __attribute__((vector_size(32)));
typedef float loose_oct __attribute__((vector_size(32), aligned(4), may_alias));
typedef unsigned uoct __attribute__((vector_size(32), may_alias));
INLINE oct load8(const float *p) { return (oct) * (const loose_oct *)p; }
INLINE void store8(float *p, oct x) { *(loose_oct *)p = (loose_oct)x; }
INLINE oct all8(float x) { return oct{x, x, x, x, x, x, x, x}; }
INLINE oct larger8(oct a, oct b) { return a > b ? a : b; }
#if defined __AVX2__
INLINE oct fma8(oct a, oct b, oct c) { return (oct)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE oct sqrt8(oct a) { return (oct)_mm256_sqrt_ps((__m256)a); }
#else
INLINE oct fma8(oct a, oct b, oct c) {
  for (int i = 0; i < 8; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
INLINE oct sqrt8(oct a) {
  for (int i = 0; i < 8; i++) a[i] = __builtin_sqrtf(a[i]);
  return a;
}
#endif
INLINE oct exp8(oct x) {  // exact::exp_neg, lane by lane
  const oct magic = all8(12582912.f), t = fma8(x, all8(0x1.715476p+0f), magic), n = t - magic;
  oct r = fma8(n, all8(-0x1.62e400p-1f), x);
  r = fma8(n, all8(-0x1.7f7d1cp-20f), r);
  oct p = all8(0x1.6a23cep-10f);
  p = fma8(p, r, all8(0x1.123a20p-7f));
  p = fma8(p, r, all8(0x1.5558f2p-5f));
  p = fma8(p, r, all8(0x1.555492p-3f));
  p = fma8(p, r, all8(0x1.fffffcp-2f));
  p = fma8(p, r, all8(1.f));
  p = fma8(p, r, all8(1.f));
  return x < all8(-87.f) ? all8(0.f) : p * (oct)(((uoct)t + 127u) << 23);
}

// ---- lane sums, eight at a time
template <class Vector> INLINE oct fold(const Vector *a) {  // butterfly 16 and 8: 32 lanes to 8
  if constexpr (sizeof(Vector) == sizeof(oct)) {
    return (oct)((a[0] + a[2]) + (a[1] + a[3]));
  } else {
    alignas(64) float x[32];
    for (int u = 0; u < LV; u++) store(x + u * VL, a[u]);
    return (load8(x) + load8(x + 16)) + (load8(x + 8) + load8(x + 24));
  }
}
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
INLINE oct reduce8(const oct *v) {  // lane k = butterfly 4, 2, 1 of v[k]
  oct x[4], y[2];
  UNROLL for (int k = 0; k < 4; k++) x[k] =
      MIX(v[k], v[k + 4], 0, 1, 2, 3, 8, 9, 10, 11) + MIX(v[k], v[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  UNROLL for (int k = 0; k < 2; k++) y[k] =
      MIX(x[2 * k], x[2 * k + 1], 0, 1, 8, 9, 4, 5, 12, 13) + MIX(x[2 * k], x[2 * k + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  return MIX(y[0], y[1], 0, 2, 8, 10, 4, 6, 12, 14) + MIX(y[0], y[1], 1, 3, 9, 11, 5, 7, 13, 15);
}
#undef MIX
// lane k = lane_dot of a and row[k], k < n; other lanes +0. GET: row[k] = rows + k*ld, or *rows[k]
template <int G> INLINE void dots_of(oct *v, const float *a, const float *const *row, int64_t C) {
  constexpr int H = LV > 2 ? LV / 2 : LV;  // lanes in two passes over the rows where registers are few
  vec acc[G][LV];
  const int64_t whole = C / 32 * 32;
  UNROLL for (int first = 0; first < LV; first += H) {
    vec x[G][H];
    UNROLL for (int g = 0; g < G; g++) UNROLL for (int u = 0; u < H; u++) x[g][u] = splat(0.f);
    for (int64_t c = first * VL; c < whole; c += 32) UNROLL for (int u = 0; u < H; u++) {
        const vec y = load(a + c + u * VL);
        UNROLL for (int g = 0; g < G; g++) x[g][u] = fma(y, load(row[g] + c + u * VL), x[g][u]);
      }
    UNROLL for (int g = 0; g < G; g++) UNROLL for (int u = 0; u < H; u++) acc[g][first + u] = x[g][u];
  }
  if (whole < C)
    for (int g = 0; g < G; g++) {
      Lanes lanes;
      for (int u = 0; u < LV; u++) lanes.x[u] = acc[g][u];
      lane_tail(lanes, whole, C, [&](float x, int64_t i) { return exact::fma(a[i], row[g][i], x); });
      for (int u = 0; u < LV; u++) acc[g][u] = lanes.x[u];
    }
  UNROLL for (int g = 0; g < G; g++) v[g] = fold(acc[g]);
}
INLINE oct dots(const float *a, const float *const *row, int n, int64_t C) {
  constexpr int G = VL == 16 ? 8 : 4;
  oct v[8] = {};
  int k = 0;
  for (; k + G <= n; k += G) dots_of<G>(v + k, a, row + k, C);
  for (; k < n; k++) dots_of<1>(v + k, a, row + k, C);
  return reduce8(v);
}

inline void source_scale(float *r, const float *s, int64_t N, int64_t C, double key_eps) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++)
      r[t] = 1 / exact::sqrt(lane_dot(s + t * C, s + t * C, C) / (float)C + (float)key_eps);
  });
}

// ---- phase 1
// out[k] = chain over i of fma(E[i][k], s_i, .), for K reads, all sources of one token
template <int K> void weighted_rows(const MixGroup<float> &g, const oct *E, int64_t t, int64_t N, int64_t C) {
  const size_t n = g.sources.size();
  over(C, [&](auto get, auto put, int64_t c) {
    vec o[K];
    UNROLL for (int k = 0; k < K; k++) o[k] = splat(0.f);
    for (size_t i = 0; i < n; i++) {
      const vec s = get(g.sources[i].s + t * C + c);
      const float *e = (const float *)&E[i];
      UNROLL for (int k = 0; k < K; k++) o[k] = fma(splat(e[k]), s, o[k]);
    }
    UNROLL for (int k = 0; k < K; k++) put(g.o + (k * N + t) * C + c, o[k]);
  });
}
INLINE oct bias_lanes(const MixGroup<float> &g, int detail) {
  oct b = all8(0.f);
  for (int k = g.begin(); k < g.K; k++) b[k] = g.bias_of(k)[detail];
  return b;
}
inline void mix_phase1(const MixGroup<float> &g, int64_t N, int64_t C) {
  const int64_t n = (int64_t)g.sources.size();
  if (g.begin() >= g.K) return;
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    oct *E = (oct *)scratch<5>(8 * n + 16), bias[1 + 8];
    E = (oct *)(((uintptr_t)E + 31) / 32 * 32);
    const float *w[GROUP];
    for (int k = 0; k < GROUP; k++) w[k] = g.w + k * C;
    for (int d = 0; d <= g.details; d++) bias[d] = bias_lanes(g, d);
    for (int64_t t = t0; t < t1; t++) {
      float *z = g.z + t * n * GROUP;
      oct mx = all8(0.f), l = all8(0.f);
      for (int64_t i = 0; i < n; i++) {
        const Source<float> &s = g.sources[i];
        for (int64_t c = 0; c < C; c += 16) __builtin_prefetch(s.s + (t + 2) * C + c, 0, 2);
        const oct x = fma8(dots(s.s + t * C, w, g.K, C), all8(s.r[t]), bias[s.detail]);
        store8(z + i * GROUP, x);
        mx = i == 0 ? x : larger8(x, mx);
      }
      for (int64_t i = 0; i < n; i++) E[i] = exp8(load8(z + i * GROUP) - mx), l = l + E[i];
      store8(g.mx + t * GROUP, mx), store8(g.l + t * GROUP, l);
      if (g.K > 6)
        weighted_rows<8>(g, E, t, N, C);
      else if (g.K > 4)
        weighted_rows<6>(g, E, t, N, C);
      else if (g.K > 2)
        weighted_rows<4>(g, E, t, N, C);
      else if (g.K > 1)
        weighted_rows<2>(g, E, t, N, C);
      else
        weighted_rows<1>(g, E, t, N, C);
    }
  });
}

// ---- phase 2. A Partials reader fills rows, scales and details of one token into an OctRows
struct OctRows {
  int n = 0;
  const float *row[8];
  oct c, r;
};
struct CpuUpdateReader {
  const UpdatePartials<float> &p;
  int64_t C;
  void rows(OctRows &x, int64_t t) const {
    x.n = p.n;
    for (int d = 0; d < p.n; d++) x.row[d] = p.updates[d].s + t * C;
  }
  void scales(OctRows &x, int64_t t) const {
    x.c = all8(1.f), x.r = all8(0.f);
    for (int d = 0; d < p.n; d++) x.r[d] = p.updates[d].r[t];
  }
};
}  // namespace cpu
// Found through the type of the partials (argument-dependent lookup)
inline cpu::CpuUpdateReader cpu_reader(const UpdatePartials<float> &p, int64_t C) { return {p, C}; }
namespace cpu {
INLINE oct partial_bias(const MixGroup<float> &g, int k, int n, bool details) {
  oct b = all8(0.f);
  for (int d = 1; d < n && details; d++) b[d] = g.bias_of(k)[d];
  return b;
}

template <class Partials> void mix_phase2(float *h, float *saved, const MixGroup<float> &g, int k,
                                          const Partials &partials, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    const auto read = cpu_reader(partials, C);
    const oct bias = partial_bias(g, k, partials.count(), Partials::details);
    for (int64_t t = t0; t < t1; t++) {
      OctRows p;
      read.rows(p, t);
      float &mx = g.mx[t * GROUP + k], &l = g.l[t * GROUP + k], *to = h + t * C;
      const float *o = g.o + (k * N + t) * C, mx1 = mx;
      float f[8], first;
      if (p.n) {
        read.scales(p, t);
        const oct z = fma8(p.c * dots(g.w + k * C, p.row, p.n, C), p.r, bias);
        for (int d = 0; d < p.n; d++) {
          mx = z[d] > mx ? z[d] : mx;
          float *save = saved + (t * p.n + d) * 3;
          save[0] = z[d], save[1] = p.r[d], save[2] = p.c[d];
        }
        oct x = z - all8(mx);
        x[7] = mx1 - mx;
        const oct E = exp8(x);
        l = E[7] * l;
        for (int d = 0; d < p.n; d++) l = l + E[d];
        l = 1 / l, first = E[7] * l;
        store8(f, (E * all8(l)) * p.c);
      } else {
        l = 1 / l, first = l;
      }
      over(C, [&](auto get, auto put, int64_t c) {
        vec x = splat(first) * get(o + c);
        for (int d = 0; d < p.n; d++) x = fma(splat(f[d]), get(p.row[d] + c), x);
        put(to + c, x);
      });
    }
  });
}

template <class Partials> void mix_phase2_backward(float *const *G, float *dw, float *db, const float *h,
                                                   const float *saved, const MixGroup<float> &g, int k,
                                                   const Partials &partials, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T;
  parallel(B, [&](int64_t b) {
    const auto read = cpu_reader(partials, C);
    const oct bias = partial_bias(g, k, partials.count(), Partials::details);
    const float *w = g.w + k * C;
    float *sum = dw + b * C, A[8], Be[8], Gm[8];
    for (int64_t t = b * T; t < (b + 1) * T; t++) {
      OctRows x;
      read.rows(x, t);
      const float *dh = g.dh + (k * N + t) * C;
      x.row[x.n] = h + t * C;
      const oct y = dots(dh, x.row, x.n + 1, C);
      const float D = y[x.n];
      g.D[t * GROUP + k] = D;
      if (!x.n) continue;
      oct z = all8(0.f), r = z, c = z;
      for (int d = 0; d < x.n; d++) {
        const float *save = saved + (t * x.n + d) * 3;
        z[d] = save[0], r[d] = save[1], c[d] = save[2];
      }
      const oct p = exp8(z - all8(g.mx[t * GROUP + k])) * all8(g.l[t * GROUP + k]), dz = p * (c * y - all8(D));
      const oct be = (dz * c) * r;
      store8(A, p * c), store8(Be, be), store8(Gm, -(((be * (z - bias)) * (c * r)) / all8((float)C)));
      over(C, [&](auto get, auto put, int64_t i) {
        const vec dhv = get(dh + i), wv = get(w + i);
        vec acc = get(sum + i);
        for (int d = 0; d < x.n; d++) {
          const vec P = get(x.row[d] + i);
          float *to = G[d] + t * C + i;
          put(to, fma(splat(Gm[d]), P, fma(splat(Be[d]), wv, fma(splat(A[d]), dhv, get(to)))));
          acc = fma(splat(Be[d]), P, acc);
        }
        put(sum + i, acc);
      });
      for (int d = 1; d < x.n && Partials::details; d++) {
        float &bias_sum = db[b * g.details + d - 1];
        bias_sum = bias_sum + dz[d];
      }
    }
  });
}

// ---- backward of phase 1, one token: p, be, gamma of every source; then ds source by source, dw read by read
struct SourceBackward {
  float p[8], be[8], gamma;
};
inline void phase1_scalars(SourceBackward *to, float *db, const oct *bias, const MixGroup<float> &g, int64_t t,
                           int64_t b, int64_t B, const float *const *dh, int64_t C) {
  const int64_t n = (int64_t)g.sources.size();
  const oct mx = load8(g.mx + t * GROUP), inv = load8(g.l + t * GROUP), D = load8(g.D + t * GROUP);
  uoct live;
  for (int k = 0; k < 8; k++) live[k] = k >= g.begin() && k < g.K ? ~0u : 0u;
  for (int64_t i = 0; i < n; i++) {
    const Source<float> &s = g.sources[i];
    for (int64_t c = 0; c < C; c += 16) __builtin_prefetch(s.s + (t + 2) * C + c, 0, 2);
    const oct z = load8(g.z + (t * n + i) * GROUP);
    const oct p = (oct)((uoct)(exp8(z - mx) * inv) & live);
    const oct dz = (oct)((uoct)(p * (dots(s.s + t * C, dh, g.K, C) - D)) & live), be = dz * all8(s.r[t]);
    const oct K = (oct)((uoct)(dz * (z - bias[s.detail])) & live);
    store8(to[i].p, p), store8(to[i].be, be);
    if (g.first == g.copy) to[i].p[0] = 1;
    const float sum = ((K[0] + K[4]) + (K[2] + K[6])) + ((K[1] + K[5]) + (K[3] + K[7]));
    to[i].gamma = sum * (s.r[t] * s.r[t]) / (float)C;
    for (int k = g.begin(); k < g.K && s.detail; k++) {
      float &x = db[(k * B + b) * g.details + s.detail - 1];
      x = x + dz[k];
    }
  }
}
// Columns c.. of S sources, W vectors wide: every row of dh and w is loaded once for all of them
template <int S, int W> INLINE void phase1_ds(const SourceBackward *x, const MixGroup<float> &g, size_t i, int64_t t,
                                              const float *const *dh, int64_t C, int64_t c) {
  const int from_p = g.first == g.none ? 1 : 0, from_w = g.begin();
  vec d[S][W];
  UNROLL for (int s = 0; s < S; s++) UNROLL for (int v = 0; v < W; v++) d[s][v] =
      load(g.sources[i + s].ds + t * C + c + v * VL);
  auto add = [&](const float *row, const float *factor) __attribute__((always_inline)) {
    vec y[W];
    UNROLL for (int v = 0; v < W; v++) y[v] = load(row + v * VL);
    UNROLL for (int s = 0; s < S; s++) {
      const vec f = splat(factor[s * (sizeof(SourceBackward) / sizeof(float))]);
      UNROLL for (int v = 0; v < W; v++) d[s][v] = fma(f, y[v], d[s][v]);
    }
  };
  for (int k = from_p; k < g.K; k++) add(dh[k] + c, &x[i].p[k]);
  for (int k = from_w; k < g.K; k++) add(g.w + k * C + c, &x[i].be[k]);
  UNROLL for (int s = 0; s < S; s++) UNROLL for (int v = 0; v < W; v++) {
    const int64_t at = t * C + c + v * VL;
    store(g.sources[i + s].ds + at, fma(splat(-x[i + s].gamma), load(g.sources[i + s].s + at), d[s][v]));
  }
}
template <int K> void phase1_rows(float *dw, const SourceBackward *x, const MixGroup<float> &g, int64_t t, int64_t b,
                                  int64_t B, const float *const *dh, int64_t C) {
  constexpr int W = VL == 16 ? 2 : 4;
  const size_t n = g.sources.size();
  const int from_p = g.first == g.none ? 1 : 0, from_w = g.begin();
  for (size_t i = 0; i < n; i += 2) {
    int64_t c = 0;
    for (; c + W * VL <= C; c += W * VL)
      if (i + 1 < n)
        phase1_ds<2, W>(x, g, i, t, dh, C, c);
      else
        phase1_ds<1, W>(x, g, i, t, dh, C, c);
    for (size_t j = i; j < std::min(n, i + 2); j++) {
      const float *s = g.sources[j].s + t * C + c;
      float *ds = g.sources[j].ds + t * C + c;
      over(C - c, [&](auto get, auto put, int64_t rest) {
        vec d = get(ds + rest);
        for (int k = from_p; k < g.K; k++) d = fma(splat(x[j].p[k]), get(dh[k] + c + rest), d);
        for (int k = from_w; k < g.K; k++) d = fma(splat(x[j].be[k]), get(g.w + k * C + c + rest), d);
        put(ds + rest, fma(splat(-x[j].gamma), get(s + rest), d));
      });
    }
  }
  over(C, [&](auto get, auto put, int64_t c) {
    vec acc[K];
    UNROLL for (int k = 0; k < K; k++) acc[k] = k < g.K ? get(dw + (k * B + b) * C + c) : splat(0.f);
    for (size_t i = 0; i < n; i++) {
      const vec s = get(g.sources[i].s + t * C + c);
      UNROLL for (int k = 0; k < K; k++) acc[k] = fma(splat(x[i].be[k]), s, acc[k]);
    }
    UNROLL for (int k = 0; k < K; k++) if (k >= from_w && k < g.K) put(dw + (k * B + b) * C + c, acc[k]);
  });
}
inline void mix_phase1_backward(float *dw, float *db, const MixGroup<float> &g, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T, n = (int64_t)g.sources.size();
  parallel(B, [&](int64_t b) {
    SourceBackward *x = (SourceBackward *)scratch<6>(n * (int64_t)(sizeof(SourceBackward) / sizeof(float)));
    oct bias[1 + 8];
    for (int d = 0; d <= g.details; d++) bias[d] = bias_lanes(g, d);
    for (int64_t t = b * T; t < (b + 1) * T; t++) {
      const float *dh[GROUP];
      for (int k = 0; k < GROUP; k++) dh[k] = g.dh + ((k < g.K ? k : 0) * N + t) * C;
      phase1_scalars(x, db, bias, g, t, b, B, dh, C);
      if (g.K == 1)
        phase1_rows<1>(dw, x, g, t, b, B, dh, C);
      else if (g.K <= 4)
        phase1_rows<4>(dw, x, g, t, b, B, dh, C);
      else
        phase1_rows<8>(dw, x, g, t, b, B, dh, C);
    }
  });
}

}  // namespace cpu
