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

constexpr int TV = 2, TW = TV * VL;                       // a tile is AR x TV vectors
constexpr int QUERIES = 4 * AR, CHUNK = 32 * AR;          // forward: rows of scores; keys of a piece of P V
constexpr int BLOCK = VL * AR >= 64 ? 16 * AR : 24 * AR;  // backward; a multiple of TW
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
// f(M, V) with compile-time M = rows and V = vectors. The last rows of a sequence, fewer than AR, take V = TV: what
// they compute too much is masked or never read, and a third of the tiles need not be compiled.
template <int M = AR, int V = TV, class F> INLINE void pick(int rows, int vectors, F &&f) {
  if constexpr (M == AR && V > 1)
    if (rows == AR && vectors < V) return pick<M, V - 1>(rows, vectors, f);
  if constexpr (M > 1 && V == TV)
    if (rows < M) return pick<M - 1, V>(rows, vectors, f);
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
// C(M, V*VL columns) = (fresh ? 0 : C) + A B, b[k][TW]. A is a[row][k], on the diagonal row r takes k < n + r; or, if
// TA, a[k][row], on the diagonal r <= k < n.
struct Product {
  int64_t n;
  bool diagonal, fresh;
  const float *a;
  int64_t lda;
  const float *b;
  float *c;
  int64_t ldc;
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
template <int M, int V, bool TA> NOINLINE void product_tile(const Product &p) {
  Acc<M, V> t;
  if (p.fresh)
    each(t, [](int, int, vec &x) { x = splat(0.f); });
  else
    each(t, [&](int r, int v, vec &x) { x = load(p.c + r * p.ldc + v * VL); });
  product_chains<TA>(t, p);
  float *const c = p.c;
  const int64_t ldc = p.ldc;
  each(t, [&](int r, int v, vec &x) { store(c + r * ldc + v * VL, x); });
}
typedef void (*ProductTile)(const Product &);
template <bool TA, int... I> INLINE ProductTile product_of(int rows, int columns, std::integer_sequence<int, I...>) {
  static constexpr ProductTile table[] = {product_tile<I + 1, TV, TA>...};
  if (rows == AR && columns <= VL) return product_tile<AR, 1, TA>;
  return table[rows - 1];
}
// Columns that are no whole vectors: on a whole copy
NOINLINE inline void product_part(ProductTile tile, int rows, int columns, const Product &p) {
  alignas(64) float edge[AR * TW] = {};
  Product whole = p;
  whole.c = edge;
  whole.ldc = TW;
  if (!p.fresh)
    for (int r = 0; r < rows; r++) std::copy_n(p.c + r * p.ldc, columns, edge + r * TW);
  tile(whole);
  for (int r = 0; r < rows; r++) std::copy_n(edge + r * TW, columns, p.c + r * p.ldc);
}
// A product over all HS columns; b: panels of TW columns, `panel` floats apart
template <bool TA> INLINE void products(int rows, Product p, int64_t panel, int64_t HS) {
  constexpr auto heights = std::make_integer_sequence<int, AR>();
  int64_t d = 0;
  for (; d + TW <= HS; d += TW, p.b += panel, p.c += TW) product_of<TA>(rows, TW, heights)(p);
  const int left = (int)(HS - d);
  if (left) product_part(product_of<TA>(rows, left, heights), rows, left, p);
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
// In halves: which of two equal zeros wins is settled by the + 0 behind it
INLINE float largest_lane(const float *top) {
  float x[VL];
  for (int i = 0; i < VL; i++) x[i] = top[i];
  UNROLL for (int step = VL / 2; step > 0; step /= 2) UNROLL for (int i = 0; i < VL; i++) if (i < step) x[i] =
      x[i] > x[i + step] ? x[i] : x[i + step];
  return x[0];
}

// One head: its rows, and how far behind them the next head's lie (0: none), in q, k, v and in out, dout
struct HeadRows {
  const float *q, *k, *v;
  int64_t next, next_out;
};

// ---- forward
struct Scores {
  float *s, *top;  // of row i at s + i*lds, top + i*VL
  int64_t lds;
};
// Of queries q0..q1-1, a panel of keys at a time
INLINE void head_scores(const Scores &x, const float *out, const HeadRows &r, const float *kt, const HeadShape &h,
                        int64_t q0, int64_t q1) {
  for (int i = 0; i < QUERIES * VL; i++) x.top[i] = -__builtin_inff();
  for (int64_t j0 = 0; j0 < q1; j0 += TW)
    for (int64_t i0 = q0; i0 < q1; i0 += AR) {
      const int rows = (int)std::min<int64_t>(AR, q1 - i0);
      if (j0 >= i0 + rows) continue;
      if (j0 == 0) {
        fetch<true>(out + i0 * h.ldo, h.ldo, rows, h.HS);
        if (r.next)
          for (const float *p : {r.q, r.k, r.v}) fetch(p + r.next + i0 * h.ld, h.ld, rows, h.HS);
      }
      pick(rows, (int)cdiv(std::min<int64_t>(TW, i0 + rows - j0), VL), [&](auto M, auto V) {
        score_tile<M, V>(h.HS, r.q + i0 * h.ld, h.ld, kt + j0 * h.HS, h.scale, i0 - j0, x.s + (i0 - q0) * x.lds + j0,
                         x.lds, x.top + (i0 - q0) * VL);
      });
    }
}
// Of a few rows, which stay in L1; three loops, so that rows overlap
INLINE void head_softmax(float *m, float *n, const Scores &x, int64_t q0, int64_t i0, int64_t i1) {
  for (int64_t i = i0; i < i1; i++) m[i] = largest_lane(x.top + (i - q0) * VL) + 0.f;
  for (int64_t i = i0; i < i1; i++) n[i] = 1.f / exponentials(x.s + (i - q0) * x.lds, i, m[i]);
  for (int64_t i = i0; i < i1; i++)
    for (int64_t j = 0; j <= i; j += VL) {
      float *e = x.s + (i - q0) * x.lds + j;
      store(e, load(e) * splat(n[i]));
    }
}
inline void head_forward(float *out, float *m, float *n, const HeadRows &r, const HeadShape &h) {
  const int64_t T = h.T, HS = h.HS, keys = cdiv(T, TW) * TW, wide = cdiv(HS, TW) * TW;
  const int64_t lds = keys + 16;  // rows of one tile in different sets of L1
  float *kt = scratch<3>(keys * HS + T * wide + QUERIES * (lds + VL)), *vp = kt + keys * HS, *s = vp + T * wide;
  const Scores x{s, s + QUERIES * lds, lds};
  pack_rows_transposed(kt, r.k, h.ld, T, HS);
  pack_columns(vp, T * TW, r.v, h.ld, T, HS);
  for (int64_t q0 = 0; q0 < T; q0 += QUERIES) {
    const int64_t q1 = std::min(T, q0 + QUERIES);
    head_scores(x, out, r, kt, h, q0, q1);
    for (int64_t i0 = q0; i0 < q1; i0 += AR) head_softmax(m, n, x, q0, i0, std::min<int64_t>(i0 + AR, q1));
    for (int64_t c0 = 0; c0 < q1; c0 += CHUNK)  // out = P V, a chunk of keys at a time
      for (int64_t i0 = q0; i0 < q1; i0 += AR)
        if (c0 <= i0)
          products<false>((int)std::min<int64_t>(AR, q1 - i0),
                          {std::min<int64_t>(i0 + 1 - c0, CHUNK), i0 < c0 + CHUNK, c0 == 0, s + (i0 - q0) * lds + c0,
                           lds, vp + c0 * TW, out + i0 * h.ldo, h.ldo},
                          T * TW, HS);
  }
}

// ---- backward
struct HeadGradients {
  float *dq, *dk, *dv;
};
struct HeadOutputs {
  const float *dout, *out, *m, *n;
};
constexpr int BLOCK_LD = BLOCK + 16;
// Scratch: keys and values of a block, transposed; k, q, dout of the head in panels; P and G of a block; r
struct Packed {
  float *kt, *vt, *kp, *qp, *op, *p, *g, *r;
  int64_t panel;
};
struct Square {  // queries q0..q1-1 x keys k0..k1-1
  int64_t q0, q1, k0, k1;
  bool diagonal() const { return q0 == k0; }
};
// P and G
INLINE void block_weights(const Packed &x, const HeadRows &r, const HeadOutputs &o, const HeadShape &h,
                          const Square &b) {
  for (int64_t j0 = b.k0; j0 < b.k1; j0 += TW)
    for (int64_t i0 = b.q0; i0 < b.q1; i0 += AR) {
      const int rows = (int)std::min<int64_t>(AR, b.q1 - i0);
      const int64_t columns = std::min(b.k1, i0 + rows) - j0;
      if (columns <= 0) continue;
      const int64_t at = (i0 - b.q0) * BLOCK_LD + j0 - b.k0, from = (j0 - b.k0) * h.HS;
      pick(rows, (int)cdiv(std::min<int64_t>(TW, columns), VL), [&](auto M, auto V) {
        probability_tile<M, V>(h.HS, r.q + i0 * h.ld, h.ld, x.kt + from, h.scale, o.m + i0, o.n + i0, x.p + at,
                               BLOCK_LD);
        gradient_tile<M, V>(h.HS, o.dout + i0 * h.ldo, h.ldo, x.vt + from, h.scale, x.r + i0, x.p + at, x.g + at,
                            BLOCK_LD);
      });
    }
}
// dq += G K
INLINE void block_dq(float *dq, const Packed &x, const HeadRows &r, const HeadOutputs &o, const HeadShape &h,
                     const Square &b) {
  for (int64_t i0 = b.q0; i0 < b.q1; i0 += AR) {
    const int rows = (int)std::min<int64_t>(AR, b.q1 - i0);
    if (b.diagonal() && r.next) {
      for (const float *p : {r.q, r.k, r.v}) fetch(p + r.next + i0 * h.ld, h.ld, rows, h.HS);
      for (const float *p : {o.dout, o.out}) fetch(p + r.next_out + i0 * h.ldo, h.ldo, rows, h.HS);
    }
    products<false>(rows,
                    {b.diagonal() ? i0 + 1 - b.k0 : b.k1 - b.k0, b.diagonal(), b.k0 == 0, x.g + (i0 - b.q0) * BLOCK_LD,
                     BLOCK_LD, x.kp + b.k0 * TW, dq + i0 * h.ld, h.ld},
                    x.panel, h.HS);
  }
}
// dk += G^T Q, dv += P^T dout
INLINE void block_dk_dv(const HeadGradients &to, const Packed &x, const HeadShape &h, const Square &b) {
  const bool diagonal = b.diagonal();
  for (int64_t j0 = b.k0; j0 < b.k1; j0 += AR) {
    const int rows = (int)std::min<int64_t>(AR, b.k1 - j0);
    const int64_t from = diagonal ? j0 - b.q0 : 0, steps = b.q1 - b.q0 - from;
    const int64_t at = from * BLOCK_LD + j0 - b.k0, row = (b.q0 + from) * TW;
    products<true>(rows, {steps, diagonal, diagonal, x.g + at, BLOCK_LD, x.qp + row, to.dk + j0 * h.ld, h.ld}, x.panel,
                   h.HS);
    products<true>(rows, {steps, diagonal, diagonal, x.p + at, BLOCK_LD, x.op + row, to.dv + j0 * h.ld, h.ld}, x.panel,
                   h.HS);
  }
}
inline void head_backward(const HeadGradients &to, const HeadRows &r, const HeadOutputs &o, const HeadShape &h) {
  const int64_t T = h.T, HS = h.HS, wide = cdiv(HS, TW) * TW, size = BLOCK * wide;
  Packed x;
  x.panel = T * TW;
  x.kt = scratch<3>(size * 2 + T * wide * 3 + 2 * BLOCK * BLOCK_LD + T);
  x.vt = x.kt + size;
  x.kp = x.vt + size;
  x.qp = x.kp + T * wide;
  x.op = x.qp + T * wide;
  x.p = x.op + T * wide;
  x.g = x.p + BLOCK * BLOCK_LD;
  x.r = x.g + BLOCK * BLOCK_LD;
  for (int64_t i = 0; i < T; i++) x.r[i] = lane_dot(o.dout + i * h.ldo, o.out + i * h.ldo, HS);
  pack_columns(x.kp, x.panel, r.k, h.ld, T, HS);
  pack_columns(x.qp, x.panel, r.q, h.ld, T, HS);
  pack_columns(x.op, x.panel, o.dout, h.ldo, T, HS);
  for (int64_t k0 = 0; k0 < T; k0 += BLOCK) {
    const int64_t k1 = std::min<int64_t>(T, k0 + BLOCK);
    pack_rows_transposed(x.kt, r.k + k0 * h.ld, h.ld, k1 - k0, HS);
    pack_rows_transposed(x.vt, r.v + k0 * h.ld, h.ld, k1 - k0, HS);
    for (int64_t q0 = k0; q0 < T; q0 += BLOCK) {
      const Square b{q0, std::min<int64_t>(T, q0 + BLOCK), k0, k1};
      block_weights(x, r, o, h, b);
      block_dq(to.dq, x, r, o, h, b);
      block_dk_dv(to, x, h, b);
    }
  }
}

// ---- all heads of all sequences
template <class F> INLINE void each_head(int64_t B, int64_t NH, const HeadShape &h, const float *qkv, F f) {
  const int64_t C = NH * h.HS;
  parallel(B * NH, [&](int64_t i) {
    auto start = [&](int64_t x, int64_t ld) { return x / NH * h.T * ld + x % NH * h.HS; };
    const int64_t at = start(i, h.ld), ato = start(i, h.ldo);
    const bool more = i + 1 < B * NH;
    const float *q = qkv + at;
    HeadRows rows{q, q + C, q + 2 * C, 0, 0};
    if (more) {
      rows.next = start(i + 1, h.ld) - at;
      rows.next_out = start(i + 1, h.ldo) - ato;
    }
    f(rows, i * h.T, at, ato);
  });
}
inline void attention_forward(float *out, float *m, float *n, const float *qkv, int64_t B, int64_t T, int64_t NH,
                              int64_t HS) {
  const int64_t C = NH * HS;
  const HeadShape h{T, HS, 3 * C, C, 1 / exact::sqrt((float)HS)};
  each_head(B, NH, h, qkv, [&](const HeadRows &rows, int64_t row, int64_t, int64_t ato) {
    head_forward(out + ato, m + row, n + row, rows, h);
  });
}
inline void attention_backward(float *dqkv, const float *dout, const float *out, const float *m, const float *n,
                               const float *qkv, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  const int64_t C = NH * HS;
  const HeadShape h{T, HS, 3 * C, C, 1 / exact::sqrt((float)HS)};
  each_head(B, NH, h, qkv, [&](const HeadRows &rows, int64_t row, int64_t at, int64_t ato) {
    float *dq = dqkv + at;
    head_backward({dq, dq + C, dq + 2 * C}, rows, {dout + ato, out + ato, m + row, n + row}, h);
  });
}
using plain::attention_decode;

}  // namespace cpu
