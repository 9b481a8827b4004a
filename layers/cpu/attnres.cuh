// cpu/attnres.cuh: the depth mixer of ../../attnres.cuh. The 8 reads of a group, or up to 7 partials, are the 8 lanes
// of an `oct`: their lane sums end in one transposing reduction. Forward shares out tokens, backward sequences (dw and
// dbias are chains over the tokens of one). Lanes that are no reads compute on zeros and are not looked at.
#pragma once
#include "../../attnres.cuh"
#include "oct.cuh"
#include "sums.cuh"

namespace cpu {

using plain::query_backward;
using plain::query_forward;

// v[r] = the 32 lanes of a.b[r], folded to 8
NOINLINE inline void odd_dots(oct *v, const float *a, const float *const *b, int n,
                              int64_t C) {  // C not a multiple of 32
  for (int r = 0; r < n; r++) v[r] = fold(dot_lanes(a, b[r], C));
}
template <int R> INLINE void tile_dots(oct *v, const float *a, const float *const *b, int64_t C) {
  constexpr int H = LV / 2;  // half of the lanes at a time: all would not fit in registers
  const float *row[R];
  UNROLL for (int r = 0; r < R; r++) row[r] = b[r];
  vec half[R][H];
  UNROLL for (int first = 0; first < LV; first += H) {
    vec x[R][H];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int u = 0; u < H; u++) x[r][u] = splat(0.f);
    for (int64_t c = first * VL; c < C; c += 32) UNROLL for (int u = 0; u < H; u++) {
        const vec y = load(a + c + u * VL);
        UNROLL for (int r = 0; r < R; r++) x[r][u] = fma(y, load(row[r] + c + u * VL), x[r][u]);
      }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int u = 0; u < H; u++) half[r][u] =
        first ? half[r][u] + x[r][u] : x[r][u];
  }
  UNROLL for (int r = 0; r < R; r++) v[r] = fold(half[r]);
}
constexpr int G = VL == 16 ? 8 : 4;  // rows of a tile
INLINE void some_dots(oct *v, const float *a, const float *const *b, int n, int64_t C) {
  if (C % 32) return odd_dots(v, a, b, n, C);
  int k = 0;
  for (; k + G <= n; k += G) tile_dots<G>(v + k, a, b + k, C);
  for (; k + 2 <= n; k += 2) tile_dots<2>(v + k, a, b + k, C);
  if (k < n) tile_dots<1>(v + k, a, b + k, C);
}
// lane k = a.b[k] for k < n, other lanes +0
INLINE oct dots(const float *a, const float *const *b, int n, int64_t C) {
  oct v[8];
  for (int k = n; k < 8; k++) v[k] = all8(0.f);
  some_dots(v, a, b, n, C);
  return reduce8(v);
}
// to[d], d < n <= 8: lane i = row i of a . row i of b[d]; rows are lda and C apart. Token by token: all of a token is in L1
INLINE void row_dots(oct *to, const float *a, int64_t lda, const float *const *b, int n, int tokens, int64_t C) {
  oct v[8][8], x[8];
  for (int d = 0; d < n; d++)
    for (int i = tokens; i < 8; i++) v[d][i] = all8(0.f);
  for (int i = 0; i < tokens; i++) {
    const float *row[8];
    for (int d = 0; d < n; d++) row[d] = b[d] + i * C;
    some_dots(x, a + i * lda, row, n, C);
    for (int d = 0; d < n; d++) v[d][i] = x[d];
  }
  for (int d = 0; d < n; d++) to[d] = reduce8(v[d]);
}

// dot[d], d < n: lane i = a . row i of b[d]; square[d]: row i of b[d] . itself. Rows are C apart
INLINE void dots_and_squares(oct *dot, oct *square, const float *a, const float *const *b, int n, int tokens,
                             int64_t C) {
  oct v[2][8];
  for (int d = 0; d < n; d++) {
    for (int i = 0; i < 8; i++) v[0][i] = v[1][i] = all8(0.f);
    for (int i = 0; i < tokens; i++) {
      const float *row = b[d] + i * C;
      Lanes x, y;
      int64_t c = 0;
      for (; c + 32 <= C; c += 32) UNROLL for (int u = 0; u < LV; u++) {
          const vec r = load(row + c + u * VL);
          x.x[u] = fma(load(a + c + u * VL), r, x.x[u]);
          y.x[u] = fma(r, r, y.x[u]);
        }
      lane_tail(x, c, C, [&](float sum, int64_t j) { return exact::fma(a[j], row[j], sum); });
      lane_tail(y, c, C, [&](float sum, int64_t j) { return exact::fma(row[j], row[j], sum); });
      v[0][i] = fold(x);
      v[1][i] = fold(y);
    }
    dot[d] = reduce8(v[0]);
    square[d] = reduce8(v[1]);
  }
}

// ---- columns: body(width, get, put, c) over tiles of W vectors, then single ones
template <int N> using Int = std::integral_constant<int, N>;
template <int W, class F> INLINE void over_wide(int64_t n, F body) {
  int64_t i = 0;
  for (; i + W * VL <= n; i += W * VL)
    body(
        Int<W>(), [](const float *p, int v) { return load(p + v * VL); },
        [](float *p, int v, vec x) { store(p + v * VL, x); }, i);
  over(n - i, [&](auto get, auto put, int64_t rest) {
    body(
        Int<1>(), [&](const float *p, int) { return get(p); }, [&](float *p, int, vec x) { put(p, x); }, i + rest);
  });
}
// body(Int<n>()) for a count of partials
template <int N = 0, class F> INLINE void counted(int n, F &&body) {
  if constexpr (N < MAX_PARTIALS)
    if (n != N) return counted<N + 1>(n, body);
  body(Int<N>());
}

inline void source_scale(float *r, const float *s, int64_t N, int64_t C, double key_eps) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    for (int64_t t = t0; t < t1; t++)
      r[t] = 1 / exact::sqrt(lane_dot(s + t * C, s + t * C, C) / (float)C + (float)key_eps);
  });
}

// ---- phase 1: lanes are the reads of the group
constexpr int NEXT = 2;  // tokens: how far ahead rows are asked for
INLINE void ask_next(const float *row, int64_t C) {
  for (int64_t c = 0; c < C; c += 16) __builtin_prefetch(row + NEXT * C + c, 0, 2);
}
INLINE oct bias_lanes(const MixGroup<float> &g, int detail) {
  oct b = all8(0.f);
  for (int k = g.begin(); k < g.reads; k++) b[k] = g.bias_of(k)[detail];
  return b;
}
// o of reads k.. = chain over i of fma(E[i], s_i, .), R reads of one token at a time
template <int R> INLINE void weighted_sums(const MixGroup<float> &g, const oct *E, int k, int64_t t, int64_t C) {
  const size_t n = g.sources.size();
  const float *e = (const float *)E + k;
  over_wide<2>(
      C, [&](auto width, auto get, auto put, int64_t c) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        vec o[R][W];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < W; v++) o[r][v] = splat(0.f);
        for (size_t i = 0; i < n; i++) {
          vec s[W];
          UNROLL for (int v = 0; v < W; v++) s[v] = get(g.sources[i].s + t * C + c, v);
          UNROLL for (int r = 0; r < R; r++) {
            const vec x = splat(e[i * 8 + r]);
            UNROLL for (int v = 0; v < W; v++) o[r][v] = fma(x, s[v], o[r][v]);
          }
        }
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < W; v++)
            put(g.o + (k + r) * g.stride + t * C + c, v, o[r][v]);
      });
}
inline void mix_phase1(const MixGroup<float> &g, int64_t N, int64_t C) {
  const int64_t n = (int64_t)g.sources.size();
  if (g.begin() >= g.reads) return;
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    oct *E = (oct *)scratch<5>(8 * n), bias[1 + 8];
    const float *w[GROUP];
    for (int k = 0; k < GROUP; k++) w[k] = g.w + k * C;
    for (int d = 0; d <= g.details; d++) bias[d] = bias_lanes(g, d);
    for (int64_t t = t0; t < t1; t++) {
      float *z = g.z + t * n * GROUP;
      oct mx = all8(0.f), l = all8(0.f);
      for (int64_t i = 0; i < n; i++) {
        const Source<float> &s = g.sources[i];
        ask_next(s.s + t * C, C);
        const oct x = fma8(dots(s.s + t * C, w, g.reads, C), all8(s.r[t]), bias[s.detail]);
        store8(z + i * GROUP, x);
        mx = i == 0 ? x : larger8(x, mx);
      }
      for (int64_t i = 0; i < n; i++) {
        E[i] = exp8(load8(z + i * GROUP) - mx);
        l = l + E[i];
      }
      store8(g.mx1 + t * GROUP, mx);
      store8(g.l1 + t * GROUP, l);
      int k = 0;
      for (; k + 4 <= g.reads; k += 4) weighted_sums<4>(g, E, k, t, C);
      for (; k < g.reads; k++) weighted_sums<1>(g, E, k, t, C);
    }
  });
}

// ---- phase 2: lanes are 8 tokens. Row d of token i is row[d] + i*C; a reader fills rows, then scales
struct Tokens {
  int n, tokens, rows;                 // partials; tokens; rows: equal partials share one
  const float *row[1 + MAX_PARTIALS];  // and room for one more
  int of[MAX_PARTIALS];                // the row of a partial
  oct c[MAX_PARTIALS], r[MAX_PARTIALS];
};
INLINE oct gather8(const float *p, int64_t stride, int n) {
  oct x = all8(0.f);
  for (int i = 0; i < n; i++) x[i] = p[i * stride];
  return x;
}
INLINE void scatter8(float *p, int64_t stride, int n, oct x) {
  for (int i = 0; i < n; i++) p[i * stride] = x[i];
}
INLINE oct load_some(const float *p, int n) { return n == 8 ? load8(p) : gather8(p, 1, n); }
INLINE void store_some(float *p, int n, oct x) {
  if (n == 8)
    store8(p, x);
  else
    scatter8(p, 1, n, x);
}
struct CpuUpdateReader {
  static constexpr bool details = false;
  const UpdatePartials<float> &p;
  int64_t C;
  void rows(Tokens &x, int64_t t) const {
    x.n = x.rows = p.n;
    for (int d = 0; d < p.n; d++) {
      x.row[d] = p.updates[d].s + t * C;
      x.of[d] = d;
    }
  }
  void scales(oct *dot, Tokens &x, const float *w, int64_t t) const {
    row_dots(dot, w, 0, x.row, x.rows, x.tokens, C);
    for (int d = 0; d < p.n; d++) {
      x.c[d] = all8(1.f);
      x.r[d] = load_some(p.updates[d].r + t, x.tokens);
    }
  }
};
}  // namespace cpu
// Found through the type of the partials (argument-dependent lookup)
inline cpu::CpuUpdateReader cpu_reader(const UpdatePartials<float> &p, int64_t C) { return {p, C}; }
namespace cpu {

// The factors of o (row 0) and of each partial in the mix, lane by token; leaves mx, inv and what backward needs
template <class Reader> INLINE void phase2_factors(float (*f)[8], const MixRead<float> &to, const Reader &read,
                                                   Tokens &p, int64_t t, int64_t N, int64_t C) {
  const MixGroup<float> &g = to.group;
  const int64_t at = t * GROUP + to.k;
  const oct mx1 = gather8(g.mx1 + at, GROUP, p.tokens);
  oct mx = mx1, l = gather8(g.l1 + at, GROUP, p.tokens), z[MAX_PARTIALS], dot[MAX_PARTIALS], first = all8(1.f);
  if (p.n) {
    read.scales(dot, p, to.w(C), t);
    for (int d = 0; d < p.n; d++) {
      z[d] = fma8(p.c[d] * dot[p.of[d]], p.r[d], all8(to.bias(Reader::details ? d : 0)));
      mx = larger8(z[d], mx);
      float *save = to.saved + d * 3 * N + t;
      store_some(save, p.tokens, z[d]);
      store_some(save + N, p.tokens, p.r[d]);
      store_some(save + 2 * N, p.tokens, p.c[d]);
    }
    first = exp8(mx1 - mx);
    l = first * l;
    for (int d = 0; d < p.n; d++) {
      z[d] = exp8(z[d] - mx);
      l = l + z[d];
    }
  }
  const oct inv = all8(1.f) / l;
  store8(f[0], p.n ? first * inv : inv);
  for (int d = 0; d < p.n; d++) store8(f[1 + d], (z[d] * inv) * p.c[d]);
  scatter8(g.mx + at, GROUP, p.tokens, mx);
  scatter8(g.inv + at, GROUP, p.tokens, inv);
}
// h of up to 8 tokens, n partials
template <int n>
INLINE void phase2_mix(const MixRead<float> &to, const float (*f)[8], const Tokens &p, int64_t t, int64_t C) {
  for (int i = 0; i < p.tokens; i++) {
    const float *o = to.group.o + to.k * to.group.stride + (t + i) * C, *row[n + 1];
    UNROLL for (int d = 0; d < n; d++) row[d] = p.row[p.of[d]] + i * C;
    float *h = to.h + (t + i) * C;
    vec factor[n + 1];
    UNROLL for (int d = 0; d <= n; d++) factor[d] = splat(f[d][i]);
    over(
        C, [&](auto get, auto put, int64_t ch) __attribute__((always_inline)) {
          vec x = factor[0] * get(o + ch);
          UNROLL for (int d = 0; d < n; d++) x = fma(factor[1 + d], get(row[d] + ch), x);
          put(h + ch, x);
        });
  }
}
template <class Partials> void mix_phase2(const MixRead<float> &to, const Partials &partials, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t t0, int64_t t1) {
    const auto read = cpu_reader(partials, C);
    for (int64_t t = t0; t < t1; t += 8) {
      Tokens p;
      p.tokens = (int)std::min<int64_t>(8, t1 - t);
      read.rows(p, t);
      float f[1 + MAX_PARTIALS][8];
      phase2_factors(f, to, read, p, t, N, C);
      counted(
          p.n, [&](auto n) __attribute__((always_inline)) { phase2_mix<decltype(n)::value>(to, f, p, t, C); });
    }
  });
}

// ---- backward of phase 2
// Of 8 tokens, per partial: the factors of dh, w and P in its gradient, and dz
struct PartialFactors {
  float of_dh[MAX_PARTIALS][8], of_w[MAX_PARTIALS][8], of_P[MAX_PARTIALS][8], dz[MAX_PARTIALS][8];
};
template <bool DETAILS> INLINE void phase2_backward_factors(PartialFactors &f, const MixRead<float> &of, Tokens &x,
                                                            int64_t t, int64_t N, int64_t C) {
  const MixGroup<float> &g = of.group;
  const int64_t at = t * GROUP + of.k;
  oct y[1 + MAX_PARTIALS];
  x.row[x.rows] = of.h + t * C;
  row_dots(y, g.dh + of.k * g.stride + t * C, C, x.row, x.rows + 1, x.tokens, C);
  const oct D = y[x.rows];
  scatter8(g.D + at, GROUP, x.tokens, D);
  const oct mx = gather8(g.mx + at, GROUP, x.tokens), inv = gather8(g.inv + at, GROUP, x.tokens);
  for (int d = 0; d < x.n; d++) {
    const float *save = of.saved + d * 3 * N + t, bias = of.bias(DETAILS ? d : 0);
    const oct z = load_some(save, x.tokens), r = load_some(save + N, x.tokens), c = load_some(save + 2 * N, x.tokens);
    const oct p = exp8(z - mx) * inv, dz = p * (c * y[x.of[d]] - D), be = (dz * c) * r;
    store8(f.of_dh[d], p * c);
    store8(f.of_w[d], be);
    store8(f.of_P[d], -(((be * (z - all8(bias))) * (c * r)) / all8((float)C)));
    store8(f.dz[d], dz);
  }
}
// One token, n partials: G, dw and, if du is not null, du = G_0, then fma(coef[d], G_d, .), of G as it comes out
template <int n, bool DETAILS> INLINE void phase2_backward_rows(float *du, const float *coef, float *dw, float **G,
                                                                const float *dh, const float *w, const float **row,
                                                                const PartialFactors &x, int i, int64_t C) {
  vec of_dh[n + 1], of_w[n + 1], of_P[n + 1], f[n + 1];
  UNROLL for (int d = 0; d < n; d++) {
    of_dh[d] = splat(x.of_dh[d][i]);
    of_w[d] = splat(x.of_w[d][i]);
    of_P[d] = splat(x.of_P[d][i]);
    f[d] = splat(DETAILS ? coef[d] : 0.f);
  }
  over_wide<2>(
      C, [&](auto width, auto get, auto put, int64_t ch) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        vec acc[W], u[W], wv[W], dhv[W];
        UNROLL for (int v = 0; v < W; v++) {
          acc[v] = get(dw + ch, v);
          u[v] = splat(0.f);
          wv[v] = in_register(get(w + ch, v));
          dhv[v] = in_register(get(dh + ch, v));
        }
        UNROLL for (int d = 0; d < n; d++) {
          UNROLL for (int v = 0; v < W; v++) {
            const vec P = get(row[d] + ch, v);
            const vec y = fma(of_P[d], P, fma(of_w[d], wv[v], fma(of_dh[d], dhv[v], get(G[d] + ch, v))));
            put(G[d] + ch, v, y);
            acc[v] = fma(of_w[d], P, acc[v]);
            if (DETAILS) u[v] = d == 0 ? y : fma(f[d], y, u[v]);
          }
        }
        UNROLL for (int v = 0; v < W; v++) {
          put(dw + ch, v, acc[v]);
          if (DETAILS && du) put(du + ch, v, u[v]);
        }
      });
}
// du may be null
template <class Partials> void phase2_backward(float *du, const float *coef, const ReadGradients<float> &to,
                                               const MixRead<float> &of, const Partials &partials, int64_t B, int64_t T,
                                               int64_t C) {
  constexpr bool DETAILS = Partials::details;
  const MixGroup<float> &g = of.group;
  parallel(B, [&](int64_t b) {
    const auto read = cpu_reader(partials, C);
    PartialFactors f;
    for (int64_t t = b * T; t < (b + 1) * T; t += 8) {
      Tokens x;
      x.tokens = (int)std::min<int64_t>(8, (b + 1) * T - t);
      read.rows(x, t);
      phase2_backward_factors<DETAILS>(f, of, x, t, B * T, C);
      counted(
          x.n, [&](auto count) __attribute__((always_inline)) {
            constexpr int n = decltype(count)::value;
            for (int i = 0; i < x.tokens && n; i++) {
              const float *row[n + 1];
              float *G[n + 1];
              UNROLL for (int d = 0; d < n; d++) {
                row[d] = x.row[x.of[d]] + i * C;
                G[d] = to.G[d] + (t + i) * C;
              }
              phase2_backward_rows<n, DETAILS>(du ? du + (t + i) * C : nullptr, coef, to.dw + b * C, G,
                                               g.dh + of.k * g.stride + (t + i) * C, of.w(C), row, f, i, C);
            }
          });
      for (int d = 1; d < x.n && DETAILS; d++)
        for (int i = 0; i < x.tokens; i++) {
          float &sum = to.dbias[b * g.details + d - 1];
          sum = sum + f.dz[d][i];
        }
    }
  });
}

template <class Partials> void mix_phase2_backward(const ReadGradients<float> &to, const MixRead<float> &of,
                                                   const Partials &partials, int64_t B, int64_t T, int64_t C) {
  const float coef[MAX_PARTIALS] = {};
  phase2_backward(nullptr, coef, to, of, partials, B, T, C);
}

// ---- backward of phase 1, one token, 8 sources at a time so that all rows stay in L1: p, be, gamma of each; then ds
// source by source, dw read by read
struct SourceBackward {
  float p[8], be[8], gamma;
};
// Of sources from..to-1, to - from <= 8. bias, and the sums dbias of this sequence: one oct per detail
INLINE void phase1_scalars(SourceBackward *x, oct *dbias, const oct *bias, uoct live, const MixGroup<float> &g,
                           int64_t from, int64_t to, int64_t t, const float *const *dh, int64_t C) {
  const int64_t n = (int64_t)g.sources.size();
  const oct mx = load8(g.mx + t * GROUP), inv = load8(g.inv + t * GROUP), D = load8(g.D + t * GROUP);
  oct K[8], r = all8(0.f);
  for (int64_t i = from; i < to; i++, x++) {
    const Source<float> &s = g.sources[i];
    ask_next(s.s + t * C, C);
    const oct z = load8(g.z + (t * n + i) * GROUP), y = dots(s.s + t * C, dh, g.reads, C);
    const oct p = (oct)((uoct)(exp8(z - mx) * inv) & live), dz = (oct)((uoct)(p * (y - D)) & live);
    store8(x->p, p);
    store8(x->be, dz * all8(s.r[t]));
    if (g.first == FirstLane::copy) x->p[0] = 1;
    K[i - from] = (oct)((uoct)(dz * (z - bias[s.detail])) & live);
    r[i - from] = s.r[t];
    if (s.detail) dbias[s.detail] = dbias[s.detail] + dz;
  }
  for (int64_t i = to - from; i < 8; i++) K[i] = all8(0.f);
  const oct gamma = reduce8(K) * (r * r) / all8((float)C);
  for (int64_t i = to - from; i > 0; i--) (--x)->gamma = gamma[i - 1];
}
// ds of S sources: every row of dh and w is loaded once for all of them
template <int S> INLINE void phase1_ds(const SourceBackward *x, const MixGroup<float> &g, int64_t i, int64_t t,
                                       const float *const *dh, int64_t C) {
  const int from_p = g.first == FirstLane::none ? 1 : 0, from_w = g.begin();
  constexpr int WIDE = VL == 16 ? 2 : 4, SCALARS = sizeof(SourceBackward) / sizeof(float);
  over_wide<WIDE>(
      C, [&](auto width, auto get, auto put, int64_t c) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        vec d[S][W];
        UNROLL for (int s = 0; s < S; s++) {
          const Source<float> &source = g.sources[i + s];
          UNROLL for (int v = 0; v < W; v++) d[s][v] = source.fresh ? splat(0.f) : get(source.ds + t * C + c, v);
        }
        const auto add = [&](const float *row, int64_t ld, const float *factor, int n) __attribute__((always_inline)) {
          ROLLED for (int k = 0; k < n; k++, row += ld) {
            vec y[W];
            UNROLL for (int v = 0; v < W; v++) y[v] = in_register(get(row, v));
            UNROLL for (int s = 0; s < S; s++) {
              const vec f = splat(factor[s * SCALARS + k]);
              UNROLL for (int v = 0; v < W; v++) d[s][v] = fma(f, y[v], d[s][v]);
            }
          }
        };
        add(dh[from_p] + c, g.stride, x->p + from_p, g.reads - from_p);
        add(g.w + from_w * C + c, C, x->be + from_w, g.reads - from_w);
        UNROLL for (int s = 0; s < S; s++) UNROLL for (int v = 0; v < W; v++) {
          const int64_t at = t * C + c;
          if ((v * VL) % 16 == 0) __builtin_prefetch(g.sources[i + s].ds + at + v * VL + NEXT * C, 1, 2);
          put(g.sources[i + s].ds + at, v, fma(splat(-x[s].gamma), get(g.sources[i + s].s + at, v), d[s][v]));
        }
      });
}
template <int R> INLINE void phase1_dw(float *dw, int64_t ld, const SourceBackward *x, const MixGroup<float> &g,
                                       int64_t from, int64_t to, int k, int64_t t, int64_t C) {
  over_wide<2>(
      C, [&](auto width, auto get, auto put, int64_t c) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        vec acc[R][W];
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < W; v++) acc[r][v] = get(dw + (k + r) * ld + c, v);
        for (int64_t i = from; i < to; i++) {
          vec s[W];
          UNROLL for (int v = 0; v < W; v++) s[v] = get(g.sources[i].s + t * C + c, v);
          UNROLL for (int r = 0; r < R; r++) {
            const vec be = splat(x[i - from].be[k + r]);
            UNROLL for (int v = 0; v < W; v++) acc[r][v] = fma(be, s[v], acc[r][v]);
          }
        }
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < W; v++) put(dw + (k + r) * ld + c, v, acc[r][v]);
      });
}
inline void mix_phase1_backward(float *dw, float *dbias, const MixGroup<float> &g, int64_t B, int64_t T, int64_t C) {
  const int64_t n = (int64_t)g.sources.size(), details = g.details;
  parallel(B, [&](int64_t b) {
    SourceBackward x[8];
    oct bias[1 + 8], sums[1 + 8];
    uoct live;
    for (int k = 0; k < 8; k++) live[k] = k >= g.begin() && k < g.reads ? ~0u : 0u;
    for (int d = 0; d <= details; d++) bias[d] = bias_lanes(g, d);
    for (int d = 1; d <= details; d++) sums[d] = gather8(dbias + b * details + d - 1, B * details, g.reads);
    for (int64_t t = b * T; t < (b + 1) * T; t++) {
      const float *dh[GROUP];
      for (int k = 0; k < GROUP; k++) dh[k] = g.dh + (k < g.reads ? k : 0) * g.stride + t * C;
      for (int64_t from = 0; from < n; from += 8) {
        const int64_t to = std::min(n, from + 8);
        phase1_scalars(x, sums, bias, live, g, from, to, t, dh, C);
        int64_t i = from;
        for (; i + 2 <= to; i += 2) phase1_ds<2>(x + (i - from), g, i, t, dh, C);
        if (i < to) phase1_ds<1>(x + (i - from), g, i, t, dh, C);
        int k = g.begin();
        for (; k + 4 <= g.reads; k += 4) phase1_dw<4>(dw + b * C, B * C, x, g, from, to, k, t, C);
        for (; k < g.reads; k++) phase1_dw<1>(dw + b * C, B * C, x, g, from, to, k, t, C);
      }
    }
    for (int d = 1; d <= details; d++)
      for (int k = g.begin(); k < g.reads; k++) dbias[(k * B + b) * details + d - 1] = sums[d][k];
  });
}

}  // namespace cpu
