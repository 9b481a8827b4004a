// cpu/matmul.cuh: the products of ../matmul.cuh. What differs: where a chain is computed. A register tile of M x V
// vectors holds M*V*VL chains; B is packed into panels of V*VL columns, zero padded, one panel resident in L1 while the
// rows of A (a block of them resident in L2) pass by. Long chains are cut into pieces and rest in C in between. Each
// thread computes rectangles of the result from private panels: no barriers.
#pragma once
#include "../matmul.cuh"
#include "tiles.cuh"

namespace cpu {

struct Tile {
  int64_t steps;
  const float *a;
  int64_t lda;     // A is a[row*lda + k]
  const float *b;  // [k][V*VL]
  float *c;
  int64_t ldc;
  int columns;          // valid ones
  bool fresh;           // chains start at +0, else at c
  const float *next_c;  // of the tile that comes next: fetched in time
};

template <int M, int V> NOINLINE void tile(const Tile &t) {
  constexpr int W = V * VL;
  alignas(64) float edge[M * W];
  const bool part = t.columns < W;  // works on a whole copy
  float *c = part ? edge : t.c;
  const int64_t ldc = part ? W : t.ldc, lda = t.lda;
  if (part && !t.fresh)
    for (int i = 0; i < M; i++)
      for (int j = 0; j < W; j++) edge[i * W + j] = j < t.columns ? t.c[i * t.ldc + j] : 0;
  vec acc[M][V];
  UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) acc[i][v] =
      t.fresh ? splat(0.f) : load(c + i * ldc + v * VL);
  UNROLL for (int i = 0; i < M; i++) __builtin_prefetch(t.next_c + i * t.ldc, 1);
  const float *a = t.a, *b = t.b;
  for (int64_t k = 0; k < t.steps; k++, a++, b += W) {
    vec y[V];
    UNROLL for (int v = 0; v < V; v++) y[v] = load(b + v * VL);
    UNROLL for (int i = 0; i < M; i++) {
      const vec x = splat(a[i * lda]);
      UNROLL for (int v = 0; v < V; v++) acc[i][v] = fma(x, y[v], acc[i][v]);
    }
  }
  UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) store(c + i * ldc + v * VL, acc[i][v]);
  if (part)
    for (int i = 0; i < M; i++) std::copy_n(edge + i * W, t.columns, t.c + i * t.ldc);
}
template <int V, int... I> INLINE void run_rows(int rows, const Tile &t, std::integer_sequence<int, I...>) {
  typedef void (*Function)(const Tile &);
  static constexpr Function table[] = {tile<I + 1, V>...};
  table[rows - 1](t);
}
template <int V = NV> INLINE void run(int rows, const Tile &t) {
  if constexpr (V > 1)
    if (t.columns <= (V - 1) * VL) return run<V - 1>(rows, t);
  run_rows<V>(rows, t, std::make_integer_sequence<int, MR>());
}

// Rows k..k+steps of the columns j..j+n of B into [k][w]. B[k][j] is b[k*ldb + j], or transposed b[j*ldb + k].
inline void pack_rows(float *to, const float *b, int64_t ldb, int64_t steps, int n, int w) {
  for (int64_t k = 0; k < steps; k++) {
    for (int j = 0; j < n; j++) to[k * w + j] = b[k * ldb + j];
    for (int j = n; j < w; j++) to[k * w + j] = 0;
  }
}
// One panel: rows j = 0..n-1 of b, elements k = 0..steps-1, into to[k*w + j], zero where j >= n. 8 x 8 floats at a time
// through registers: three rounds of shuffles.
INLINE void transpose8(float *to, int64_t ldto, const float *from, int64_t ldfrom) {
  typedef float f8 __attribute__((vector_size(32)));
  typedef float u8 __attribute__((vector_size(32), aligned(4), may_alias));
  f8 r[8], s[8];
  UNROLL for (int u = 0; u < 8; u++) r[u] = (f8) * (const u8 *)(from + u * ldfrom);
  UNROLL for (int u = 0; u < 8; u += 2) {
    s[u] = __builtin_shufflevector(r[u], r[u + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[u + 1] = __builtin_shufflevector(r[u], r[u + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  UNROLL for (int u = 0; u < 8; u += 4) UNROLL for (int h = 0; h < 2; h++) {
    r[u + 2 * h] = __builtin_shufflevector(s[u + h], s[u + h + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    r[u + 2 * h + 1] = __builtin_shufflevector(s[u + h], s[u + h + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  UNROLL for (int u = 0; u < 4; u++) {
    *(u8 *)(to + u * ldto) = __builtin_shufflevector(r[u], r[u + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(u8 *)(to + (u + 4) * ldto) = __builtin_shufflevector(r[u], r[u + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
inline void transpose_panel(float *to, const float *b, int64_t ldb, int64_t steps, int n, int w) {
  const int n8 = n / 8 * 8;
  const int64_t k8 = steps / 8 * 8;
  for (int64_t k = 0; k < k8; k += 8)
    for (int j = 0; j < n8; j += 8) transpose8(to + k * w + j, w, b + j * ldb + k, ldb);
  for (int64_t k = 0; k < steps; k++) {
    for (int j = k < k8 ? n8 : 0; j < n; j++) to[k * w + j] = b[j * ldb + k];
    for (int j = n; j < w; j++) to[k * w + j] = 0;
  }
}

// C(m,n) = A(m,K) B(K,n), row strides lda, ldb, ldc; B[k][j] is b[k*ldb + j], or, TRANSPOSED, b[j*ldb + k]
struct Matrices {
  float *c;
  int64_t ldc;
  const float *a;
  int64_t lda;
  const float *b;
  int64_t ldb, K;
};
// What a thread has packed: columns j0..j1 and steps k0..k1 of B, cut into pieces of `steps` of at most the L1 panel;
// of each piece one panel behind the other
struct PackedPart {
  uint64_t number = 0;  // of the product
  int64_t j0 = 0, j1 = 0, k0 = 0, k1 = 0, steps = 0;
  bool operator==(const PackedPart &o) const {
    return number == o.number && j0 == o.j0 && j1 == o.j1 && k0 == o.k0 && k1 == o.k1;
  }
};
template <bool TRANSPOSED> void pack(float *to, const Matrices &x, const PackedPart &p) {
  for (int64_t k = p.k0; k < p.k1; k += p.steps) {
    const int64_t n = std::min(p.steps, p.k1 - k);
    for (int64_t j = p.j0; j < p.j1; j += NR, to += n * NR) {
      const int width = (int)std::min<int64_t>(NR, p.j1 - j), w = (int)cdiv(width, VL) * VL;
      if (TRANSPOSED)
        transpose_panel(to, x.b + j * x.ldb + k, x.ldb, n, width, w);
      else
        pack_rows(to, x.b + k * x.ldb + j, x.ldb, n, width, w);
    }
  }
}
// Rows i0..i1, a piece of the chains after the other: what rests in C is still in L2 when the next piece goes on
INLINE void block_of_rows(const Matrices &x, const float *packed, const PackedPart &p, int64_t i0, int64_t i1) {
  const int64_t rows = i1 - i0, tiles = cdiv(rows, MR);
  for (int64_t k = p.k0; k < p.k1; k += p.steps) {
    const int64_t n = std::min(p.steps, p.k1 - k);
    for (int64_t j = p.j0; j < p.j1; j += NR, packed += n * NR)
      for (int64_t t = 0; t < tiles; t++) {  // tiles of nearly equal height
        const int64_t i = i0 + rows * t / tiles, next = i0 + rows * (t + 1) / tiles;
        run((int)(next - i), {n, x.a + i * x.lda + k, x.lda, packed, x.c + i * x.ldc + j, x.ldc,
                              (int)std::min<int64_t>(NR, p.j1 - j), k == 0, x.c + next * x.ldc + j});
      }
  }
}
struct Rectangle {
  int64_t i0, i1, j0, j1;
};
// Of product `number`; a thread that takes several pieces of the same columns packs them once
template <bool TRANSPOSED> void rectangle(const Matrices &x, const Rectangle &r, uint64_t number) {
  static thread_local PackedPart held;
  const Blocks &most = blocks();
  const int64_t steps = cdiv(x.K, cdiv(x.K, most.steps)), wide = std::max<int64_t>(NR, most.packed / steps / NR * NR);
  for (int64_t j0 = r.j0; j0 < r.j1; j0 += wide) {
    const int64_t j1 = std::min(r.j1, j0 + wide), width = cdiv(j1 - j0, NR) * NR;
    const int64_t deep = std::max<int64_t>(1, most.packed / width / steps) * steps;
    float *packed = scratch<0>(width * std::min(deep, x.K));
    for (int64_t k0 = 0; k0 < x.K; k0 += deep) {
      const PackedPart part{number, j0, j1, k0, std::min(x.K, k0 + deep), steps};
      if (!(held == part)) pack<TRANSPOSED>(packed, x, part);
      held = part;
      for (int64_t i = r.i0; i < r.i1; i += most.rows) block_of_rows(x, packed, part, i, std::min(r.i1, i + most.rows));
    }
  }
}
// Columns in as many parts as pack and broadcast least; rows in pieces, several for every thread where a thread can hold
// its columns packed, so that others can help one that is held up
template <bool TRANSPOSED> void product(const Matrices &x, int64_t m, int64_t n) {
  const int64_t all = threads();
  int64_t down = 1;
  double best = 1e300;
  for (int64_t d = 1; d <= all; d++)
    if (all % d == 0) {
      const double rows = (double)cdiv(m, d), columns = (double)(cdiv(cdiv(n, all / d), NR) * NR);
      const double cost = columns * (rows + (TRANSPOSED ? 32 : 12)) + 16 * rows;
      if (cost < best) {
        best = cost;
        down = d;
      }
    }
  const int64_t across = all / down, w = cdiv(cdiv(n, across), NR) * NR;
  const bool holds = all > 1 && w * x.K <= blocks().packed;
  const int64_t pieces = down * (holds ? std::clamp<int64_t>(m / down / (2 * blocks().rows), 1, 4) : 1);
  static std::atomic<uint64_t> numbers{0};
  const uint64_t number = ++numbers;
  parallel(across * pieces, [&](int64_t i) {
    const int64_t p = i % pieces, j = i / pieces * w;
    const Rectangle r{m * p / pieces, m * (p + 1) / pieces, j, std::min(n, j + w)};
    if (r.i1 > r.i0 && r.j1 > r.j0) rectangle<TRANSPOSED>(x, r, number);
  });
}

inline void matmul_forward(float *out, int64_t ld, const float *inp, const float *weight, int64_t N, int64_t C,
                           int64_t OC) {
  product<true>({out, ld, inp, C, weight, C, C}, N, OC);
}
inline void matmul_backward_dinp(float *dinp, const float *dout, int64_t ld, const float *weight, int64_t N, int64_t C,
                                 int64_t OC) {
  product<false>({dinp, C, dout, ld, weight, C, OC}, N, C);
}

}  // namespace cpu
