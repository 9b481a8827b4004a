// cpu/matmul.cuh: the products of ../matmul.cuh. What differs: where a chain is computed. A register tile of M x V
// vectors holds M*V*VL chains; B is packed into panels of V*VL columns, zero padded, one panel resident in L1 while the
// rows of A (a block of them resident in L2) pass by. Long chains are cut into pieces and rest in C in
// between. Each thread computes its own rectangle of the result from private panels: no barriers.
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

// C(m,n) = A(m,K) B(K,n), row strides lda, ldb, ldc
template <bool TRANSPOSED> void rectangle(float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                                          int64_t ldb, int64_t m, int64_t n, int64_t K) {
  const Blocks &most = blocks();
  const int64_t kc = cdiv(K, cdiv(K, most.steps)), nc = std::max<int64_t>(NR, most.packed / kc / NR * NR);
  float *packed = scratch<0>(std::min(cdiv(n, NR) * NR, nc) * kc);
  for (int64_t j0 = 0; j0 < n; j0 += nc)
    for (int64_t k0 = 0; k0 < K; k0 += kc) {
      const int64_t steps = std::min(kc, K - k0), j1 = std::min(n, j0 + nc);
      for (int64_t j = j0; j < j1; j += NR) {
        const int width = (int)std::min<int64_t>(NR, j1 - j), w = (int)cdiv(width, VL) * VL;
        if (TRANSPOSED)
          transpose_panel(packed + (j - j0) * kc, b + j * ldb + k0, ldb, steps, width, w);
        else
          pack_rows(packed + (j - j0) * kc, b + k0 * ldb + j, ldb, steps, width, w);
      }
      for (int64_t i0 = 0; i0 < m; i0 += most.rows) {
        const int64_t rows = std::min(most.rows, m - i0), tiles = cdiv(rows, MR);
        for (int64_t j = j0; j < j1; j += NR)
          for (int64_t r = 0; r < tiles; r++) {  // tiles of nearly equal height
            const int64_t i = i0 + rows * r / tiles, next = i0 + rows * (r + 1) / tiles;
            run((int)(next - i), {steps, a + i * lda + k0, lda, packed + (j - j0) * kc, c + i * ldc + j, ldc,
                                  (int)std::min<int64_t>(NR, j1 - j), k0 == 0, c + next * ldc + j});
          }
      }
    }
}
// Rectangles: rows in `down` parts, columns in threads/down, whichever packs and broadcasts least
template <bool TRANSPOSED> void product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb,
                                        int64_t m, int64_t n, int64_t K) {
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
  parallel(all, [&](int64_t t) {
    const int64_t i0 = m * (t % down) / down, i1 = m * (t % down + 1) / down, j = t / down * w,
                  columns = std::min(w, n - j);
    if (i1 > i0 && columns > 0)
      rectangle<TRANSPOSED>(c + i0 * ldc + j, ldc, a + i0 * lda, lda, b + (TRANSPOSED ? j * ldb : j), ldb, i1 - i0,
                            columns, K);
  });
}

inline void matmul_forward(float *out, int64_t ld, const float *inp, const float *weight, int64_t N, int64_t C,
                           int64_t OC) {
  product<true>(out, ld, inp, C, weight, C, N, OC, C);
}
inline void matmul_backward_dinp(float *dinp, const float *dout, int64_t ld, const float *weight, int64_t N, int64_t C,
                                 int64_t OC) {
  product<false>(dinp, C, dout, ld, weight, C, N, C, OC);
}

}  // namespace cpu
