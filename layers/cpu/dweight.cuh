// cpu/dweight.cuh: the weight gradient of ../matmul.cuh. One chain per sequence gives T steps to a tile; the sums of
// sequences meet in the counter while they are still in registers: the tile of sequence b adds the levels set in b and
// goes to the first level not set, or, for the last sequence, adds every level, then those of earlier passes, and is
// the result.
//   dweight[o,c]: o runs over columns of dout, copied in strips to [t][SH]; c over panels of inp, packed to [t][w].
#pragma once
#include "matmul.cuh"

namespace cpu {

constexpr int SH = 2 * MR;  // rows of dweight in a strip

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
      for (int i = 0; i < SH; i += 16) __builtin_prefetch(a + AHEAD * t.lda + i);
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
// Tiles of less than MR rows move nothing on the way: a third of all tiles need not be compiled
template <int V, int... I> INLINE void outer_rows(int rows, const OuterTile &t, std::integer_sequence<int, I...>) {
  typedef void (*Function)(const OuterTile &);
  static constexpr Function table[] = {outer_tile<I + 1, V, false, false>...};
  static constexpr Function moving[2][2] = {{outer_tile<MR, V, false, false>, outer_tile<MR, V, false, true>},
                                            {outer_tile<MR, V, true, false>, outer_tile<MR, V, true, true>}};
  (rows < MR ? table[rows - 1] : moving[t.strip != nullptr][t.from != nullptr])(t);
}
template <int V = NV> INLINE void outer_run(int rows, const OuterTile &t) {
  if constexpr (V > 1)
    if (t.columns <= (V - 1) * VL) return outer_run<V - 1>(rows, t);
  outer_rows<V>(rows, t, std::make_integer_sequence<int, MR>());
}

// Rows o0..o1, columns j0..j1 of dweight: what one thread computes
struct OuterBlock {
  float *dweight;
  const float *dout, *inp;
  int64_t B, T, C, ld;  // dout (B,T,ld), inp (B,T,C)
  int64_t o0, o1, j0, j1;
  int64_t wide, level_floats;     // columns in whole panels; floats of a level
  float *packed, *strip, *level;  // scratch
  const exact::Carry &carry;
  const float *panel(int64_t b, int64_t j) const { return inp + b * T * C + j; }
};
INLINE int first_rows(int64_t height) { return (int)(height > MR ? (height + 1) / 2 : height); }

// Panels that no tile packs on the way: of columns that are no whole vectors, or where no tile has MR rows
INLINE void pack_panels(const OuterBlock &s, int64_t b) {
  const bool all = first_rows(std::min<int64_t>(SH, s.o1 - s.o0)) < MR;
  for (int64_t j = s.j0; j < s.j1; j += NR) {
    const int width = (int)std::min<int64_t>(NR, s.j1 - j), w = (int)cdiv(width, VL) * VL;
    if (all || width % VL) pack_rows(s.packed + (j - s.j0) * s.T, s.panel(b, j), s.C, s.T, width, w);
  }
}
// The strip that comes next, a share of it with every panel
struct Coming {
  const float *from;
  int64_t share;
  bool more;
  int64_t lines;  // of the cache, that a row of the strip lies in
  INLINE Coming(const OuterBlock &s, const float *rows, int64_t o, bool last)
      : from(o + SH < s.o1 ? rows + SH : rows + s.T * s.ld - (o - s.o0)),
        share(cdiv(s.T * NR, s.wide)),
        more(o + SH < s.o1 || !last),
        lines(((int64_t)((uintptr_t)from % 64) + SH * 4 + 63) / 64) {}
  INLINE void fetch(const OuterBlock &s, int64_t panel) const {
    if (!more) return;
    for (int64_t t = panel * share, end = std::min(s.T, t + share); t < end; t++)
      for (int64_t l = 0; l < lines; l++) __builtin_prefetch(from + t * s.ld + std::min<int64_t>(16 * l, SH - 1), 0, 2);
  }
};
// Where the tile of rows o.. and columns j.. ends, and what is added to it: the counter over sequences, then the passes
INLINE void outer_sums(OuterTile &t, Level *add, const OuterBlock &s, const exact::CounterStep &step, int64_t o,
                       int64_t j) {
  const int64_t at = (o - s.o0) * s.wide + j - s.j0;
  for (int l = 0; l < step.adds; l++) add[t.adds++] = {s.level + step.level[l] * s.level_floats + at, s.wide};
  if (step.to == exact::CounterStep::RESULT) {
    t.c = s.dweight + o * s.C + j;
    t.ldc = s.C;
    for (int n = 0; n < s.carry.adds; n++) add[t.adds++] = {t.c + s.carry.offset[n], s.C};
  } else {
    t.c = s.level + step.to * s.level_floats + at;
    t.ldc = s.wide;
  }
}
// Rows o.. of sequence b: a strip
INLINE void outer_strip(const OuterBlock &s, const exact::CounterStep &step, int64_t b, int64_t o) {
  const int height = (int)std::min<int64_t>(SH, s.o1 - o), first = first_rows(height);
  const float *rows_of = s.dout + b * s.T * s.ld + o;
  if (height < SH)
    for (int64_t t = 0; t < s.T; t++)
      for (int i = 0; i < height; i++) s.strip[t * SH + i] = rows_of[t * s.ld + i];
  const Coming coming(s, rows_of, o, b + 1 == s.B);
  for (int64_t j = s.j0; j < s.j1; j += NR) {
    coming.fetch(s, (j - s.j0) / NR);
    for (int i = 0, rows = first; i < height; i += rows, rows = height - first) {
      Level add[80];
      OuterTile t{};
      t.steps = s.T;
      t.a = s.strip + i;
      t.lda = SH;
      t.b = s.packed + (j - s.j0) * s.T;
      t.ldfrom = s.C;
      t.columns = (int)std::min<int64_t>(NR, s.j1 - j);
      t.add = add;
      if (j == s.j0 && i == 0 && height == SH) {
        t.a = rows_of;
        t.lda = s.ld;
        t.strip = s.strip;
      }
      if (o == s.o0 && i == 0 && rows == MR && t.columns % VL == 0) t.from = s.panel(b, j);
      outer_sums(t, add, s, step, o + i, j);
      outer_run(rows, t);
    }
  }
}
inline void dweight_block(OuterBlock s) {
  s.wide = cdiv(s.j1 - s.j0, NR) * NR;
  s.level_floats = (s.o1 - s.o0) * s.wide;
  s.packed = scratch<0>(s.T * s.wide);
  s.strip = scratch<1>(s.T * SH);
  s.level = scratch<2>(exact::counter_levels(s.B) * s.level_floats);
  for (int64_t b = 0; b < s.B; b++) {
    pack_panels(s, b);
    const exact::CounterStep step = exact::counter_step(b, b + 1 == s.B);
    for (int64_t o = s.o0; o < s.o1; o += SH) outer_strip(s, step, b, o);
  }
}

inline void matmul_backward_dweight(float *dweight, const float *dout, int64_t ld, const float *inp, int64_t B,
                                    int64_t T, int64_t C, int64_t OC, const exact::Carry &carry) {
  const int64_t all = threads(), widest = std::max<int64_t>(NR, blocks().panels / T / NR * NR);
  // blocks of columns of equal width; each is cut into as many strips of rows as there are threads to share, or, when C
  // is the longer side, blocks go to threads whole
  const int64_t blocks = cdiv(C, widest), by_columns = cdiv(blocks, all) * all;
  const bool columns = C > OC && C >= all * NR;
  const int64_t nb = columns ? by_columns : blocks, w = cdiv(cdiv(C, nb), NR) * NR, parts = columns ? 1 : all;
  parallel(nb * parts, [&](int64_t i) {
    const int64_t part = columns ? 0 : i / nb, block = i % nb, strips = cdiv(OC, SH);
    const int64_t o0 = strips * part / parts * SH, o1 = std::min(OC, strips * (part + 1) / parts * SH);
    const int64_t j0 = block * w, j1 = std::min(C, j0 + w);
    if (o0 < o1 && j0 < j1)
      dweight_block({dweight, dout, inp, B, T, C, ld, o0, o1, j0, j1, 0, 0, nullptr, nullptr, nullptr, carry});
  });
}

}  // namespace cpu
