// cpu/dweight.cuh: the weight gradient of ../matmul.cuh. One chain per sequence gives T steps to a tile; the sums of
// sequences meet in the counter while they are still in registers: the tile of sequence b adds the levels set in b and
// goes to the first level not set, or, for the last sequence, adds every level, then those of earlier passes, and is
// the result.
//   dweight[o,c]: o runs over columns of dout, copied in strips to [t][SH]; c over panels of inp, packed to [t][w].
#pragma once
#include "matmul.cuh"

namespace cpu {

constexpr int SH = 2 * MR;                   // rows of dweight in a strip
constexpr int64_t PANEL_FLOATS = 56 * 1024;  // packed inp of one sequence, resident in L2

constexpr int AHEAD = 24;  // rows of dout and inp that are asked for in advance

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

struct Level {
  const float *p;
  int64_t ld;
};
struct OuterTile {
  int64_t steps;
  const float *a;  // [t][lda]: the strip, or, where `strip` is given, dout itself, copied to the strip on the way
  int64_t lda;
  float *strip;
  float *b;  // [t][V*VL]: the panel; where `from` is given, filled from inp on the way
  const float *from;
  int64_t ldfrom;
  float *c;
  int64_t ldc;
  int columns, adds;
  const Level *add;
};

template <int M, int V, bool COPY, bool PACK> NOINLINE void outer_tile(const OuterTile &t) {
  constexpr int W = V * VL;
  vec acc[M][V];
  UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) acc[i][v] = splat(0.f);
  for (int i = 0; i < M; i++) {
    __builtin_prefetch(t.c + i * t.ldc, 1);
    for (int s = 0; s < t.adds; s++) __builtin_prefetch(t.add[s].p + i * t.add[s].ld);
  }
  const float *a = t.a, *from = t.from;
  float *b = t.b, *strip = t.strip;
  for (int64_t k = 0; k < t.steps; k++, a += COPY ? t.lda : SH, b += W) {
    if (COPY) {
      for (int i = 0; i < SH; i += 4) *(quad *)(strip + i) = *(const quad *)(a + i);
      __builtin_prefetch(a + AHEAD * t.lda);
      __builtin_prefetch(a + AHEAD * t.lda + SH - 1);
      strip += SH;
    }
    vec y[V];
    UNROLL for (int v = 0; v < V; v++) y[v] = load((PACK ? from : b) + v * VL);
    if (PACK) {
      UNROLL for (int v = 0; v < V; v++) store(b + v * VL, y[v]);
      __builtin_prefetch(from + AHEAD * t.ldfrom);
      __builtin_prefetch(from + AHEAD * t.ldfrom + W - 1);
      from += t.ldfrom;
    } else {
      __builtin_prefetch(b + 8 * W);
    }
    UNROLL for (int i = 0; i < M; i++) {
      const vec x = splat(a[i]);
      UNROLL for (int v = 0; v < V; v++) acc[i][v] = fma(x, y[v], acc[i][v]);
    }
  }
  if (t.columns < W) {  // a partial tile goes through a whole copy
    alignas(64) float edge[M * W];
    UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) store(edge + i * W + v * VL, acc[i][v]);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < t.columns; j++) {
        float sum = edge[i * W + j];
        for (int s = 0; s < t.adds; s++) sum = t.add[s].p[i * t.add[s].ld + j] + sum;
        t.c[i * t.ldc + j] = sum;
      }
    return;
  }
  for (int s = 0; s < t.adds; s++)
    UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) acc[i][v] =
        load(t.add[s].p + i * t.add[s].ld + v * VL) + acc[i][v];
  UNROLL for (int i = 0; i < M; i++) UNROLL for (int v = 0; v < V; v++) store(t.c + i * t.ldc + v * VL, acc[i][v]);
}
template <int V, bool COPY, bool PACK, int... I>
INLINE void outer_rows(int rows, const OuterTile &t, std::integer_sequence<int, I...>) {
  typedef void (*Function)(const OuterTile &);
  static constexpr Function table[] = {outer_tile<I + 1, V, COPY, PACK>...};
  table[rows - 1](t);
}
template <int V = NV> INLINE void outer_run(int rows, const OuterTile &t) {
  if constexpr (V > 1)
    if (t.columns <= (V - 1) * VL) return outer_run<V - 1>(rows, t);
  constexpr auto heights = std::make_integer_sequence<int, MR>();
  if (t.strip)
    t.from ? outer_rows<V, true, true>(rows, t, heights) : outer_rows<V, true, false>(rows, t, heights);
  else
    t.from ? outer_rows<V, false, true>(rows, t, heights) : outer_rows<V, false, false>(rows, t, heights);
}

struct OuterShape {
  int64_t B, T, C, OC, ld;
};

// Rows o0..o1, columns j0..j1 of dweight
inline void dweight_block(float *dweight, const float *dout, const float *inp, const OuterShape &s, int64_t o0,
                          int64_t o1, int64_t j0, int64_t j1, const exact::Carry &carry) {
  const int64_t wide = cdiv(j1 - j0, NR) * NR, level_floats = (o1 - o0) * wide;
  int levels = 0;
  while ((s.B - 1) >> levels) levels++;
  float *packed = scratch<0>(s.T * wide), *strip = scratch<1>(s.T * SH), *level = scratch<2>(levels * level_floats);
  for (int64_t b = 0; b < s.B; b++) {
    const bool last = b + 1 == s.B;
    for (int64_t j = j0; j < j1; j += NR) {
      const int width = (int)std::min<int64_t>(NR, j1 - j), w = (int)cdiv(width, VL) * VL;
      if (width % VL) pack_rows(packed + (j - j0) * s.T, inp + b * s.T * s.C + j, s.C, s.T, width, w);
    }
    for (int64_t o = o0; o < o1; o += SH) {
      const int height = (int)std::min<int64_t>(SH, o1 - o), first = height > MR ? (height + 1) / 2 : height;
      const float *rows_of = dout + b * s.T * s.ld + o;
      if (height < SH)
        for (int64_t t = 0; t < s.T; t++)
          for (int i = 0; i < height; i++) strip[t * SH + i] = rows_of[t * s.ld + i];
      const float *coming =
          o + SH < o1 ? rows_of + SH : rows_of + s.T * s.ld - (o - o0);  // of the strip that comes next
      const bool more = o + SH < o1 || !last, two_lines = (uintptr_t)coming % 64 > 64 - SH * 4;
      const int64_t share = cdiv(s.T * NR, wide);
      for (int64_t j = j0; j < j1; j += NR) {
        for (int64_t t = (j - j0) / NR * share, end = std::min(s.T, t + share); more && t < end; t++) {
          __builtin_prefetch(coming + t * s.ld, 0, 2);
          if (two_lines) __builtin_prefetch(coming + t * s.ld + SH - 1, 0, 2);
        }
        for (int i = 0, rows = first; i < height; i += rows, rows = height - first) {
          const int64_t at = (o + i - o0) * wide + j - j0;
          Level add[80];
          OuterTile t{s.T,     strip + i, SH,      nullptr, packed + (j - j0) * s.T,
                      nullptr, s.C,       nullptr, 0,       (int)std::min<int64_t>(NR, j1 - j),
                      0,       add};
          if (j == j0 && i == 0 && height == SH) {
            t.a = rows_of;
            t.lda = s.ld;
            t.strip = strip;
          }
          if (o == o0 && i == 0 && t.columns % VL == 0) t.from = inp + b * s.T * s.C + j;
          for (int l = 0; b >> l; l++) {
            if (b >> l & 1)
              add[t.adds++] = {level + l * level_floats + at, wide};
            else if (!last)
              break;
          }
          if (last) {
            t.c = dweight + (o + i) * s.C + j;
            t.ldc = s.C;
            for (int n = 0; n < carry.adds; n++) add[t.adds++] = {t.c + carry.offset[n], s.C};
          } else {
            t.c = level + __builtin_ctzll(~(unsigned long long)b) * level_floats + at;
            t.ldc = wide;
          }
          outer_run(rows, t);
        }
      }
    }
  }
}

inline void matmul_backward_dweight(float *dweight, const float *dout, int64_t ld, const float *inp, int64_t B,
                                    int64_t T, int64_t C, int64_t OC, const exact::Carry &carry) {
  const OuterShape s{B, T, C, OC, ld};
  const int64_t all = threads(), widest = std::max<int64_t>(NR, PANEL_FLOATS / T / NR * NR);
  // blocks of columns of equal width; each is cut into as many strips of rows as there are threads to share, or, when C
  // is the longer side, blocks go to threads whole
  const int64_t blocks = cdiv(C, widest), by_columns = cdiv(blocks, all) * all;
  const bool columns = C > OC && C >= all * NR;
  const int64_t nb = columns ? by_columns : blocks, w = cdiv(cdiv(C, nb), NR) * NR, parts = columns ? 1 : all;
  parallel(nb * parts, [&](int64_t i) {
    const int64_t part = columns ? 0 : i / nb, block = i % nb, strips = cdiv(OC, SH);
    const int64_t o0 = strips * part / parts * SH, o1 = std::min(OC, strips * (part + 1) / parts * SH);
    const int64_t j0 = block * w, j1 = std::min(C, j0 + w);
    if (o0 < o1 && j0 < j1) dweight_block(dweight, dout, inp, s, o0, o1, j0, j1, carry);
  });
}

}  // namespace cpu
