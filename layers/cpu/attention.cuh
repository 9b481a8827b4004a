// cpu/attention.cuh: the causal attention of ../attention.cuh, one head at a time, no T x T matrix.
// What differs is where a chain is computed: register tiles of M queries x V vectors of keys (scores, probabilities,
// gradients) or of columns (P V, dQ, dK, dV). Keys are packed transposed, [d][W]; values, queries and dout as [row][W].
// Masked pairs enter no chain: on the diagonal the chains of a tile end, or begin, one row at a time (a triangle).
// Forward: blocks of QUERIES rows of scores; maxima are kept per lane while scores are made. Backward: square blocks of
// BLOCK queries x keys, keys outside, so that dk and dv are finished when their block is left and dq is continued.
#pragma once
#include "../attention.cuh"
#include "matmul.cuh"

namespace cpu {

constexpr int TV = 2, TW = TV * VL;                       // a tile is MR x TV vectors
constexpr int QUERIES = 4 * MR, CHUNK = 32 * MR;          // forward: rows of scores; keys of a piece of P V
constexpr int BLOCK = VL * MR >= 64 ? 16 * MR : 24 * MR;  // backward; a multiple of TW
static_assert(BLOCK % TW == 0, "keys of a block fill whole panels");

template <int M, int V> struct Acc { vec x[M][V]; };
template <int M, int V, class F> INLINE void each(Acc<M, V> &t, F f) {
  UNROLL for (int r = 0; r < M; r++) UNROLL for (int v = 0; v < V; v++) f(r, v, t.x[r][v]);
}
// One step of the chains of rows first..last
template <int M, int V>
INLINE void step(Acc<M, V> &t, const float *a, int64_t lda, const float *b, int first = 0, int last = M - 1) {
  vec y[V];
  UNROLL for (int v = 0; v < V; v++) y[v] = load(b + v * VL);
  UNROLL for (int r = 0; r < M; r++) if (r >= first && r <= last) {
    const vec x = splat(a[r * lda]);
    UNROLL for (int v = 0; v < V; v++) t.x[r][v] = fma(x, y[v], t.x[r][v]);
  }
}
template <int M, int V> INLINE void dots(Acc<M, V> &t, int64_t HS, const float *a, int64_t lda, const float *b) {
  each(t, [](int, int, vec &x) { x = splat(0.f); });
  for (int64_t d = 0; d < HS; d++) step(t, a + d, lda, b + d * TW);
}
// f(M, V) with compile-time M = rows and V = vectors
template <int M = MR, int V = TV, class F> INLINE void pick(int rows, int vectors, F &&f) {
  if constexpr (M > 1)
    if (rows < M) return pick<M - 1, V>(rows, vectors, f);
  if constexpr (V > 1)
    if (vectors < V) return pick<M, V - 1>(rows, vectors, f);
  f(std::integral_constant<int, M>(), std::integral_constant<int, V>());
}
INLINE ivec lane_numbers() {
  ivec x;
  for (int i = 0; i < VL; i++) x[i] = i;
  return x;
}

// s = scale * q.k, or -inf where key > row + ahead; top[row][VL] = the largest of each lane so far
template <int M, int V> NOINLINE void score_tile(int64_t HS, const float *q, int64_t ld, const float *kt, float scale,
                                                 int64_t ahead, float *s, int64_t lds, float *top) {
  Acc<M, V> t;
  dots(t, HS, q, ld, kt);
  each(t, [&](int, int, vec &x) { x = splat(scale) * x; });
  if (V * VL > ahead + 1)
    each(t, [&](int r, int v, vec &x) { x = lane_numbers() > (int)ahead + r - v * VL ? splat(-__builtin_inff()) : x; });
  each(t, [&](int r, int v, vec &x) {
    store(s + r * lds + v * VL, x);
    if (v) t.x[r][0] = larger(x, t.x[r][0]);
  });
  for (int r = 0; r < M; r++) store(top + r * VL, larger(t.x[r][0], load(top + r * VL)));
}
// p = exp(scale * q.k - m) * n
template <int M, int V> NOINLINE void probability_tile(int64_t HS, const float *q, int64_t ld, const float *kt,
                                                       float scale, const float *m, const float *n, float *p,
                                                       int64_t lds) {
  Acc<M, V> t;
  dots(t, HS, q, ld, kt);
  each(t, [&](int r, int v, vec &x) {
    store(p + r * lds + v * VL, exp_neg(splat(scale) * x - splat(m[r])) * splat(n[r]));
  });
}
// g = (p * (dout.v - r)) * scale
template <int M, int V> NOINLINE void gradient_tile(int64_t HS, const float *dout, int64_t ld, const float *vt,
                                                    float scale, const float *rows, const float *p, float *g,
                                                    int64_t lds) {
  Acc<M, V> t;
  dots(t, HS, dout, ld, vt);
  each(t, [&](int r, int v, vec &x) {
    store(g + r * lds + v * VL, (load(p + r * lds + v * VL) * (x - splat(rows[r]))) * splat(scale));
  });
}
// C(M, columns) = (fresh ? 0 : C) + A B, b[k][TW]. A is a[row][k], on the diagonal row r takes k < n + r; or, if TA,
// a[k][row], on the diagonal r <= k < n.
struct Product {
  int64_t n;
  bool diagonal, fresh;
  const float *a;
  int64_t lda;
  const float *b;
  float *c;
  int64_t ldc;
  int columns;
};
// The chains of a tile, from t as it comes in
template <bool TA, int M, int V> INLINE void product_chains(Acc<M, V> &t, const Product &p) {
  const float *a = p.a, *b = p.b;
  const int64_t n = p.n, lda = p.lda;
  int64_t k = 0;
  if (TA && p.diagonal) {
    UNROLL for (int s = 0; s < M - 1; s++) step(t, a + s * lda, 1, b + s * TW, 0, s);
    k = M - 1;
  }
  a += TA ? k * lda : k;
  b += k * TW;
  for (; k < n; k++, a += TA ? lda : 1, b += TW) step(t, a, TA ? 1 : lda, b);
  if (!TA && p.diagonal) UNROLL for (int s = 1; s < M; s++) step(t, a + s - 1, lda, b + (s - 1) * TW, s);
}
template <int M, bool TA> NOINLINE void product_tile(const Product &p) {  // TW columns
  Acc<M, TV> t;
  if (p.fresh)
    each(t, [](int, int, vec &x) { x = splat(0.f); });
  else
    each(t, [&](int r, int v, vec &x) { x = load(p.c + r * p.ldc + v * VL); });
  product_chains<TA>(t, p);
  float *const c = p.c;
  const int64_t ldc = p.ldc;
  each(t, [&](int r, int v, vec &x) { store(c + r * ldc + v * VL, x); });
}
template <int M, int V, bool TA> NOINLINE void product_part(const Product &p) {  // fewer: on a whole copy
  constexpr int W = V * VL;
  alignas(64) float edge[M * W] = {};
  if (!p.fresh)
    for (int r = 0; r < M; r++) std::copy_n(p.c + r * p.ldc, p.columns, edge + r * W);
  Acc<M, V> t;
  each(t, [&](int r, int v, vec &x) { x = load(edge + r * W + v * VL); });
  product_chains<TA>(t, p);
  each(t, [&](int r, int v, vec &x) { store(edge + r * W + v * VL, x); });
  for (int r = 0; r < M; r++) std::copy_n(edge + r * W, p.columns, p.c + r * p.ldc);
}
template <bool TA, int... I> INLINE void product_rows(int rows, const Product &p, std::integer_sequence<int, I...>) {
  typedef void (*Function)(const Product &);
  static constexpr Function table[] = {product_tile<I + 1, TA>...};
  table[rows - 1](p);
}
// A product over all HS columns; b: panels of TW columns, `panel` floats apart
template <bool TA> INLINE void products(int rows, Product p, int64_t panel, int64_t HS) {
  int64_t d = 0;
  for (; d + TW <= HS; d += TW, p.b += panel, p.c += TW)
    product_rows<TA>(rows, p, std::make_integer_sequence<int, MR>());
  if (d == HS) return;
  p.columns = (int)(HS - d);
  pick(rows, (p.columns + VL - 1) / VL, [&](auto M, auto V) { product_part<M, V, TA>(p); });
}

// x[n][HS] into panels of TW columns, [n][TW], zero padded
inline void pack_columns(float *to, int64_t panel, const float *x, int64_t ld, int64_t n, int64_t HS) {
  for (int64_t d = 0; d < HS; d += TW) {
    const int w = (int)std::min<int64_t>(TW, HS - d);
    float *p = to + d / TW * panel;
    for (int64_t i = 0; i < n; i++) {
      const float *from = x + i * ld + d;
      if (w == TW) {
        UNROLL for (int v = 0; v < TV; v++) store(p + i * TW + v * VL, load(from + v * VL));
      } else {
        for (int j = 0; j < TW; j++) p[i * TW + j] = j < w ? from[j] : 0;
      }
    }
  }
}
// x[n][HS] transposed into panels of TW rows, [HS][TW]; rows behind n are zero
inline void pack_rows_transposed(float *to, const float *x, int64_t ld, int64_t n, int64_t HS) {
  for (int64_t j = 0; j < n; j += TW)
    transpose_panel(to + j * HS, x + j * ld, ld, HS, (int)std::min<int64_t>(TW, n - j), TW);
}
// Ask for x[n][HS], which is needed soon
template <bool WRITE = false> inline void fetch(const float *x, int64_t ld, int64_t n, int64_t HS) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t d = 0; d < HS; d += 16) __builtin_prefetch(x + i * ld + d, WRITE, 2);
}

struct HeadShape {
  int64_t T, HS, ld, ldo;  // rows of q, k, v are ld apart, of out ldo
  float scale;
};
// row[0..i] = exp(row - m); the lane sum. The row is -inf behind i up to a whole vector, and becomes +0 there.
NOINLINE inline float exponentials(float *row, int64_t i, float m) {
  Lanes lanes;
  int64_t j = 0;
  for (; j + 32 <= i + 1; j += 32) UNROLL for (int u = 0; u < LV; u++) {
      const vec e = exp_neg(load(row + j + u * VL) - splat(m));
      store(row + j + u * VL, e);
      lanes.x[u] = lanes.x[u] + e;
    }
  if (j <= i) UNROLL for (int u = 0; u < LV; u++) if (j + u * VL <= i) {
      const vec e = exp_neg(load(row + j + u * VL) - splat(m));
      store(row + j + u * VL, e);
      lanes.x[u] = lanes.x[u] + e;
    }
  return lanes.sum();
}
INLINE float largest_lane(
    const float *top) {  // in halves: which of two equal zeros wins is settled by the + 0 behind it
  float x[VL];
  for (int i = 0; i < VL; i++) x[i] = top[i];
  UNROLL for (int step = VL / 2; step > 0; step /= 2) UNROLL for (int i = 0; i < VL; i++) if (i < step) x[i] =
      x[i] > x[i + step] ? x[i] : x[i + step];
  return x[0];
}

// The next head's q, k, v lie `next` floats behind (0: none)
inline void head_forward(float *out, float *m, float *n, const float *q, const float *k, const float *v,
                         const HeadShape &h, int64_t next) {
  const int64_t T = h.T, HS = h.HS, keys = cdiv(T, TW) * TW, wide = cdiv(HS, TW) * TW;
  const int64_t lds = keys + 16;  // rows of one tile in different sets of L1
  float *kt = scratch<3>(keys * HS + T * wide + QUERIES * (lds + VL)), *vp = kt + keys * HS, *s = vp + T * wide;
  float *top = s + QUERIES * lds;
  pack_rows_transposed(kt, k, h.ld, T, HS);
  pack_columns(vp, T * TW, v, h.ld, T, HS);
  for (int64_t q0 = 0; q0 < T; q0 += QUERIES) {
    const int64_t q1 = std::min(T, q0 + QUERIES);
    for (int x = 0; x < QUERIES * VL; x++) top[x] = -__builtin_inff();
    for (int64_t j0 = 0; j0 < q1; j0 += TW)  // a panel of keys at a time
      for (int64_t i0 = q0; i0 < q1; i0 += MR) {
        const int rows = (int)std::min<int64_t>(MR, q1 - i0);
        if (j0 >= i0 + rows) continue;
        if (j0 == 0) {
          fetch<true>(out + i0 * h.ldo, h.ldo, rows, HS);
          if (next)
            for (const float *x : {q, k, v}) fetch(x + next + i0 * h.ld, h.ld, rows, HS);
        }
        pick(rows, (int)cdiv(std::min<int64_t>(TW, i0 + rows - j0), VL), [&](auto M, auto V) {
          score_tile<M, V>(HS, q + i0 * h.ld, h.ld, kt + j0 * HS, h.scale, i0 - j0, s + (i0 - q0) * lds + j0, lds,
                           top + (i0 - q0) * VL);
        });
      }
    for (int64_t i0 = q0; i0 < q1;
         i0 += MR) {  // softmax of a few rows, which stay in L1; three loops, so that rows overlap
      const int64_t i1 = std::min<int64_t>(i0 + MR, q1);
      for (int64_t i = i0; i < i1; i++) m[i] = largest_lane(top + (i - q0) * VL) + 0.f;
      for (int64_t i = i0; i < i1; i++) n[i] = 1.f / exponentials(s + (i - q0) * lds, i, m[i]);
      for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j <= i; j += VL) {
          float *e = s + (i - q0) * lds + j;
          store(e, load(e) * splat(n[i]));
        }
    }
    for (int64_t c0 = 0; c0 < q1; c0 += CHUNK)  // out = P V, a chunk of keys at a time
      for (int64_t i0 = q0; i0 < q1; i0 += MR)
        if (c0 <= i0)
          products<false>((int)std::min<int64_t>(MR, q1 - i0),
                          {std::min<int64_t>(i0 + 1 - c0, CHUNK), i0 < c0 + CHUNK, c0 == 0, s + (i0 - q0) * lds + c0,
                           lds, vp + c0 * TW, out + i0 * h.ldo, h.ldo, 0},
                          T * TW, HS);
  }
}

struct HeadGradients {
  float *dq, *dk, *dv;
};
// The next head's q, k, v lie `next` floats behind, its dout and out `next_out` (0: none)
inline void head_backward(const HeadGradients &to, const float *dout, const float *out, const float *m, const float *n,
                          const float *q, const float *k, const float *v, const HeadShape &h, int64_t next,
                          int64_t next_out) {
  constexpr int lds = BLOCK + 16;
  const int64_t T = h.T, HS = h.HS, ld = h.ld, wide = cdiv(HS, TW) * TW, size = BLOCK * wide, panel = T * TW;
  float *kt = scratch<3>(size * 2 + T * wide * 3 + 2 * BLOCK * lds + T), *vt = kt + size, *kp = vt + size;
  float *qp = kp + T * wide, *op = qp + T * wide, *p = op + T * wide, *g = p + BLOCK * lds, *r = g + BLOCK * lds;
  for (int64_t i = 0; i < T; i++) r[i] = lane_dot(dout + i * h.ldo, out + i * h.ldo, HS);
  pack_columns(kp, panel, k, ld, T, HS);
  pack_columns(qp, panel, q, ld, T, HS);
  pack_columns(op, panel, dout, h.ldo, T, HS);
  for (int64_t k0 = 0; k0 < T; k0 += BLOCK) {
    const int64_t k1 = std::min<int64_t>(T, k0 + BLOCK);
    pack_rows_transposed(kt, k + k0 * ld, ld, k1 - k0, HS);
    pack_rows_transposed(vt, v + k0 * ld, ld, k1 - k0, HS);
    for (int64_t q0 = k0; q0 < T; q0 += BLOCK) {
      const int64_t q1 = std::min<int64_t>(T, q0 + BLOCK);
      const bool diagonal = q0 == k0;
      for (int64_t j0 = k0; j0 < k1; j0 += TW)  // P and G of the block
        for (int64_t i0 = q0; i0 < q1; i0 += MR) {
          const int rows = (int)std::min<int64_t>(MR, q1 - i0);
          const int64_t columns = std::min(k1, i0 + rows) - j0, at = (i0 - q0) * lds + j0 - k0, b = (j0 - k0) * HS;
          if (columns > 0)
            pick(rows, (int)cdiv(std::min<int64_t>(TW, columns), VL), [&](auto M, auto V) {
              probability_tile<M, V>(HS, q + i0 * ld, ld, kt + b, h.scale, m + i0, n + i0, p + at, lds);
              gradient_tile<M, V>(HS, dout + i0 * h.ldo, h.ldo, vt + b, h.scale, r + i0, p + at, g + at, lds);
            });
        }
      for (int64_t i0 = q0; i0 < q1; i0 += MR) {  // dq += G K
        const int rows = (int)std::min<int64_t>(MR, q1 - i0);
        if (diagonal && next) {
          for (const float *x : {q, k, v}) fetch(x + next + i0 * ld, ld, rows, HS);
          for (const float *x : {dout, out}) fetch(x + next_out + i0 * h.ldo, h.ldo, rows, HS);
        }
        products<false>(rows,
                        {diagonal ? i0 + 1 - k0 : k1 - k0, diagonal, k0 == 0, g + (i0 - q0) * lds, lds, kp + k0 * TW,
                         to.dq + i0 * ld, ld, 0},
                        panel, HS);
      }
      for (int64_t j0 = k0; j0 < k1; j0 += MR) {  // dk += G^T Q, dv += P^T dout
        const int rows = (int)std::min<int64_t>(MR, k1 - j0);
        const int64_t from = diagonal ? j0 - q0 : 0, steps = q1 - q0 - from, at = from * lds + j0 - k0,
                      b = (q0 + from) * TW;
        products<true>(rows, {steps, diagonal, diagonal, g + at, lds, qp + b, to.dk + j0 * ld, ld, 0}, panel, HS);
        products<true>(rows, {steps, diagonal, diagonal, p + at, lds, op + b, to.dv + j0 * ld, ld, 0}, panel, HS);
      }
    }
  }
}

inline void attention_forward(float *out, float *m, float *n, const float *qkv, int64_t B, int64_t T, int64_t NH,
                              int64_t HS) {
  const int64_t C = NH * HS;
  const HeadShape h{T, HS, 3 * C, C, 1 / exact::sqrt((float)HS)};
  parallel(B * NH, [&](int64_t i) {
    auto start = [&](int64_t x) { return x / NH * T * 3 * C + x % NH * HS; };
    const float *q = qkv + start(i);
    head_forward(out + i / NH * T * C + i % NH * HS, m + i * T, n + i * T, q, q + C, q + 2 * C, h,
                 i + 1 < B * NH ? start(i + 1) - start(i) : 0);
  });
}
inline void attention_backward(float *dqkv, const float *dout, const float *out, const float *m, const float *n,
                               const float *qkv, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  const int64_t C = NH * HS;
  const HeadShape h{T, HS, 3 * C, C, 1 / exact::sqrt((float)HS)};
  parallel(B * NH, [&](int64_t i) {
    auto start = [&](int64_t x, int64_t ld) { return x / NH * T * ld + x % NH * HS; };
    const int64_t at = start(i, 3 * C), ato = start(i, C);
    const bool more = i + 1 < B * NH;
    const float *q = qkv + at;
    float *dq = dqkv + at;
    head_backward({dq, dq + C, dq + 2 * C}, dout + ato, out + ato, m + i * T, n + i * T, q, q + C, q + 2 * C, h,
                  more ? start(i + 1, 3 * C) - at : 0, more ? start(i + 1, C) - ato : 0);
  });
}
using plain::attention_decode;

}  // namespace cpu
