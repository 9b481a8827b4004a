// gpu/attention.cuh: the causal attention of ../attention.cuh, a block of 8 warps for 32 rows of one head.
// What differs is where a chain is computed. A block meets the other side (keys of its queries, queries of its keys) a
// tile of 32 at a time, in two products, through 32 x 32 pieces in shared memory; a warp has 4 of the block's rows:
//   dots      s = a.b        lane = row of the other side; chains over d
//   combine   acc += w x     lane = d; chains over the other side, continued from tile to tile in registers
// Masked pairs enter no chain. Forward: three walks over the keys (maximum, sum, output), because softmax takes the
// maximum first and p needs the whole sum; the scores stay in shared memory where T is short and are made again where
// it is long, so T has no limit. Backward: r; dq (rows are queries); dk and dv (rows are keys); p is made from m and n.
// Every thread of a block reaches every __syncthreads: what surrounds one depends on the block, never on the warp.
#pragma once
#include "launch.cuh"

namespace gpu {
namespace attention {

constexpr int TILE = 32, ROWS = TILE / WARPS;
static_assert(TILE == WARP, "a lane has one row or one column of a tile");

// Rows of 36 floats: 16-byte aligned, and 8 lanes that read four floats each of their own row touch all banks once
struct alignas(16) Tile {
  float x[TILE][TILE + 4];
};
struct Heads {
  int64_t T, tiles;       // tiles: of 32 rows, in T
  int NH, HS, C, number;  // C = NH*HS, number = B*NH
  float scale;
  Heads(int64_t B, int64_t T, int64_t NH, int64_t HS)
      : T(T),
        tiles(divide_up(T, TILE)),
        NH((int)NH),
        HS((int)HS),
        C((int)(NH * HS)),
        number((int)(B * NH)),
        scale(1 / exact::sqrt((float)HS)) {}
  __device__ int64_t start(int head, int64_t ld) const { return head / NH * T * ld + head % NH * HS; }
};
// Rows of one head from some row on, ld apart: a tile, or the `rows` that are left. Inside it offsets fit an int.
struct Slice {
  const float *x;
  int ld, rows;
};
__device__ inline int rows_of_tile(int64_t left) { return left < TILE ? (int)left : TILE; }

// Columns d.. of a slice, zero outside, by N warps, between two barriers. All loads are under way before one is used.
template <int N = WARPS> __device__ inline void load(Tile &to, const Slice &s, int d, int HS) {
  const int warp = warp_id(), lane = lane_id(), rows = d + lane < HS ? s.rows : 0;
  const float *const x = s.x + warp * s.ld + d + lane;
  float v[TILE / N];
#pragma unroll
  for (int u = 0; u < TILE / N; u++) v[u] = warp + u * N < rows ? x[u * N * s.ld] : 0;
#pragma unroll
  for (int u = 0; u < TILE / N; u++) to.x[warp + u * N][lane] = v[u];
}
// acc[r] = the chain over d of a's row (warp's first + r) and b's row (lane)
__device__ inline void dots(float (&acc)[ROWS], Tile &ta, Tile &tb, const Slice &a, const Slice &b, int HS) {
  const int row = warp_id() * ROWS, lane = lane_id();
  const auto step = [&](int d) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) acc[r] = exact::fma(ta.x[row + r][d], tb.x[lane][d], acc[r]);
  };
#pragma unroll
  for (int r = 0; r < ROWS; r++) acc[r] = 0;
  for (int d0 = 0; d0 < HS; d0 += TILE) {
    __syncthreads();
    load(ta, a, d0, HS);
    load(tb, b, d0, HS);
    __syncthreads();
    const int columns = HS - d0 < TILE ? HS - d0 : TILE;
    int d = 0;
#pragma unroll 1
    for (; d + 4 <= columns; d += 4) {
      step(d);
      step(d + 1);
      step(d + 2);
      step(d + 3);
    }
#pragma unroll 1
    for (; d < columns; d++) step(d);
  }
}
// acc[r][c] continues its chain over the rows j of x, weighted w[warp's first + r][j]; lane = column of x. Pairs that
// are not inside(r, j) are skipped, none where `whole`.
template <int D, class F>
__device__ inline void combine(float (&acc)[ROWS][D], int c, const Tile &w, const Tile &x, bool whole, F inside) {
  const int row = warp_id() * ROWS, lane = lane_id();
  if (whole) {
#pragma unroll 4
    for (int j = 0; j < TILE; j++)
#pragma unroll
      for (int r = 0; r < ROWS; r++) acc[r][c] = exact::fma(w.x[row + r][j], x.x[j][lane], acc[r][c]);
  } else {
#pragma unroll 4
    for (int j = 0; j < TILE; j++)
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (inside(r, j)) acc[r][c] = exact::fma(w.x[row + r][j], x.x[j][lane], acc[r][c]);
  }
}
// The same for all columns from d0 on, x = a tile of keys, on the diagonal unless `whole`
template <int D> __device__ inline void combine_keys(float (&acc)[ROWS][D], const Tile &w, Tile &tx, const Slice &x,
                                                     int d0, int HS, bool whole) {
  const int row = warp_id() * ROWS;
#pragma unroll
  for (int c = 0; c < D; c++) {
    if (d0 + c * TILE >= HS) break;
    __syncthreads();
    load(tx, x, d0 + c * TILE, HS);
    __syncthreads();
    combine(acc, c, w, tx, whole, [&](int r, int j) { return j <= row + r; });
  }
}
// The warp's rows, of `rows` in the block, to `to`, ld apart
template <int D>
__device__ inline void store(float *to, int64_t ld, int rows, const float (&acc)[ROWS][D], int d0, int HS) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < D; c++) {
      const int i = warp_id() * ROWS + r, d = d0 + c * TILE + lane_id();
      if (i < rows && d < HS) to[i * ld + d] = acc[r][c];
    }
}
// f(D): how many times 32 columns of its rows a warp keeps in registers. Two blocks on a multiprocessor leave 128
// registers; the unroll counts above are such that no kernel spills, on sm_80 to sm_120.
template <class F> void pick(int64_t HS, F &&f) {
  if (HS <= TILE)
    f(std::integral_constant<int, 1>());
  else if (HS <= 2 * TILE)
    f(std::integral_constant<int, 2>());
  else
    f(std::integral_constant<int, 4>());
}

// The lane sums of the warp's rows, from row i on, become their inverses; they and the maxima are kept for backward
__device__ inline void finish_sums(float (&sum)[ROWS], const float (&largest)[ROWS], float *m, float *n, int64_t i,
                                   int64_t T) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    sum[r] = 1 / butterfly(sum[r]);
    if (lane_id() == 0 && i + r < T) {
      m[i + r] = largest[r];
      n[i + r] = sum[r];
    }
  }
}
// ---- forward. Long rows start first, so that the last blocks to end are short. keep: floats of a row of kept scores,
// or 0: none are kept.
template <int D> __global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(float *out, float *m, float *n, const float *qkv, Heads h, int64_t keep) {
  DYNAMIC_SHARED(Tile, tiles);
  Tile &ta = tiles[0], &tb = tiles[1], &p = tiles[2];
  const int row = warp_id() * ROWS, lane = lane_id();
  float *const kept = (float *)(tiles + 3) + row * keep + lane;
  const int head = blockIdx.x % h.number;
  const int64_t i0 = (h.tiles - 1 - blockIdx.x / h.number) * TILE, i = i0 + row;
  const int ld = 3 * h.C, rows = rows_of_tile(h.T - i0);
  const float *const q = qkv + h.start(head, ld), *const k = q + h.C, *const v = k + h.C;
  const auto slice = [&](const float *x, int64_t j0) { return Slice{x + j0 * ld, ld, rows_of_tile(h.T - j0)}; };
  float s[ROWS], largest[ROWS], sum[ROWS];

  const auto scores = [&](int64_t j0) {
    dots(s, ta, tb, slice(q, i0), slice(k, j0), h.HS);
#pragma unroll
    for (int r = 0; r < ROWS; r++) s[r] = h.scale * s[r];
  };
  const auto scores_again = [&](int64_t j0) {
    if (!keep) return scores(j0);
#pragma unroll
    for (int r = 0; r < ROWS; r++) s[r] = kept[r * keep + j0];
  };
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    largest[r] = -HUGE_VALF;
    sum[r] = 0;
  }
  for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
    scores(j0);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      if (keep) kept[r * keep + j0] = s[r];
      if (j0 + lane <= i + r) largest[r] = s[r] > largest[r] ? s[r] : largest[r];
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) largest[r] = warp_max(largest[r]) + 0.f;

  for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
    scores_again(j0);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (j0 + lane <= i + r) sum[r] = sum[r] + exact::exp_neg(s[r] - largest[r]);
  }
  finish_sums(sum, largest, m + head * h.T, n + head * h.T, i, h.T);

  for (int d0 = 0; d0 < h.HS; d0 += D * TILE) {
    float acc[ROWS][D] = {};
    for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
      scores_again(j0);
      __syncwarp();  // the warp has read its rows of p
#pragma unroll
      for (int r = 0; r < ROWS; r++) p.x[row + r][lane] = exact::exp_neg(s[r] - largest[r]) * sum[r];
      combine_keys(acc, p, tb, slice(v, j0), d0, h.HS, j0 < i0);
    }
    store(out + h.start(head, h.C) + i0 * h.C, h.C, rows, acc, d0, h.HS);
  }
}

// ---- backward
__global__ void dout_dot_out_kernel(float *r, const float *dout, const float *out, Heads h) {
  const int64_t i = index_of_warp();
  if (i >= h.number * h.T) return;
  const int64_t at = h.start((int)(i / h.T), h.C) + i % h.T * h.C;
  const float dot = lane_dot(dout + at, out + at, h.HS);
  if (lane_id() == 0) r[i] = dot;
}

struct Backward {
  float *dqkv;
  const float *dout, *m, *n, *r, *qkv;
};
template <int D> __global__ void __launch_bounds__(THREADS, 2) dq_kernel(Backward t, Heads h) {
  __shared__ Tile ta, tb, g;
  const int row = warp_id() * ROWS, lane = lane_id();
  const int head = blockIdx.x % h.number;
  const int64_t i0 = (h.tiles - 1 - blockIdx.x / h.number) * TILE;
  const int ld = 3 * h.C, rows = rows_of_tile(h.T - i0), d0 = blockIdx.y * D * TILE;
  const float *const q = t.qkv + h.start(head, ld), *const k = q + h.C, *const v = k + h.C;
  const Slice query{q + i0 * ld, ld, rows}, dout{t.dout + h.start(head, h.C) + i0 * h.C, h.C, rows};
  float m[ROWS], n[ROWS], dot[ROWS], s[ROWS], dp[ROWS], acc[ROWS][D] = {};
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const int64_t at = head * h.T + i0 + row + r;
    const bool real = row + r < rows;
    m[r] = real ? t.m[at] : 0;
    n[r] = real ? t.n[at] : 0;
    dot[r] = real ? t.r[at] : 0;
  }
  for (int64_t j0 = 0; j0 <= i0; j0 += TILE) {
    const Slice key{k + j0 * ld, ld, rows_of_tile(h.T - j0)}, value{v + j0 * ld, ld, key.rows};
    dots(s, ta, tb, query, key, h.HS);
    dots(dp, ta, tb, dout, value, h.HS);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float p = exact::exp_neg(h.scale * s[r] - m[r]) * n[r];
      g.x[row + r][lane] = (p * (dp[r] - dot[r])) * h.scale;
    }
    combine_keys(acc, g, tb, key, d0, h.HS, j0 < i0);
  }
  store(t.dqkv + h.start(head, ld) + i0 * ld, ld, rows, acc, d0, h.HS);
}
template <int D> __global__ void __launch_bounds__(THREADS, 2) dk_dv_kernel(Backward t, Heads h) {
  __shared__ Tile ta, tb, p, g;
  const int row = warp_id() * ROWS, lane = lane_id();
  const int head = blockIdx.x % h.number;
  const int64_t j0 = (int64_t)(blockIdx.x / h.number) * TILE;  // early keys have most queries
  const int ld = 3 * h.C, rows = rows_of_tile(h.T - j0), d0 = blockIdx.y * D * TILE;
  const float *const q = t.qkv + h.start(head, ld), *const k = q + h.C, *const v = k + h.C;
  const Slice key{k + j0 * ld, ld, rows}, value{v + j0 * ld, ld, rows};
  float s[ROWS], dp[ROWS], dk[ROWS][D] = {}, dv[ROWS][D] = {};
  for (int64_t i0 = j0; i0 < h.T; i0 += TILE) {
    const int queries = rows_of_tile(h.T - i0);
    const int64_t at = head * h.T + i0 + lane;
    const Slice query{q + i0 * ld, ld, queries}, dout{t.dout + h.start(head, h.C) + i0 * h.C, h.C, queries};
    dots(s, ta, tb, key, query, h.HS);
    dots(dp, ta, tb, value, dout, h.HS);
    if (lane < queries) {
      const float m = t.m[at], n = t.n[at], dot = t.r[at];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        const float x = exact::exp_neg(h.scale * s[r] - m) * n;
        p.x[row + r][lane] = x;
        g.x[row + r][lane] = (x * (dp[r] - dot)) * h.scale;
      }
    }
    const bool whole = i0 > j0 && queries == TILE, diagonal = i0 == j0;
    const auto inside = [&](int r, int i) { return i < queries && (!diagonal || i >= row + r); };
#pragma unroll
    for (int c = 0; c < D; c++) {
      if (d0 + c * TILE >= h.HS) break;
      __syncthreads();
      load(ta, query, d0 + c * TILE, h.HS);
      load(tb, dout, d0 + c * TILE, h.HS);
      __syncthreads();
      combine(dk, c, g, ta, whole, inside);
      combine(dv, c, p, tb, whole, inside);
    }
  }
  float *const to = t.dqkv + h.start(head, ld) + j0 * ld;
  store(to + h.C, ld, rows, dk, d0, h.HS);
  store(to + 2 * h.C, ld, rows, dv, d0, h.HS);
}

// ---- decode. p (NH, keys) is scratch: scores from one kernel, a warp for 32 keys of a head, and the rest of the row
// from another, a block for a head.
__global__ void decode_scores_kernel(float *p, const float *q, const float *k_cache, Heads h) {
  __shared__ Tile tk;
  const int lane = lane_id();
  const int64_t head = blockIdx.x % h.NH, j0 = (int64_t)(blockIdx.x / h.NH) * TILE;
  const Slice key{k_cache + head * h.HS + j0 * h.C, h.C, rows_of_tile(h.T - j0)};
  q += head * h.HS;
  float acc = 0;
  for (int d0 = 0; d0 < h.HS; d0 += TILE) {
    __syncwarp();
    load<1>(tk, key, d0, h.HS);
    __syncwarp();
    if (h.HS - d0 >= TILE) {
#pragma unroll 4
      for (int d = 0; d < TILE; d++) acc = exact::fma(q[d0 + d], tk.x[lane][d], acc);
    } else {
      for (int d = 0; d < h.HS - d0; d++) acc = exact::fma(q[d0 + d], tk.x[lane][d], acc);
    }
  }
  if (lane < key.rows) p[head * h.T + j0 + lane] = h.scale * acc;
}
__global__ void __launch_bounds__(THREADS) decode_row_kernel(float *out, float *p, const float *v_cache, Heads h) {
  __shared__ float part[WARPS], shared_n;
  const int64_t head = blockIdx.x, keys = h.T;
  p += head * keys;
  v_cache += head * h.HS;
  out += head * h.HS;
  float largest = -HUGE_VALF;
  for (int64_t j = threadIdx.x; j < keys; j += THREADS) largest = p[j] > largest ? p[j] : largest;
  largest = warp_max(largest);
  if (lane_id() == 0) part[warp_id()] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < WARPS; w++) largest = part[w] > largest ? part[w] : largest;
  const float m = largest + 0.f;
  for (int64_t j = threadIdx.x; j < keys; j += THREADS) p[j] = exact::exp_neg(p[j] - m);
  __syncthreads();
  if (warp_id() == 0) {
    float sum = 0;
    for (int64_t j = lane_id(); j < keys; j += WARP) sum = sum + p[j];
    sum = butterfly(sum);
    if (lane_id() == 0) shared_n = 1 / sum;
  }
  __syncthreads();
  const float n = shared_n;
  for (int64_t j = threadIdx.x; j < keys; j += THREADS) p[j] = p[j] * n;
  __syncthreads();
  for (int64_t d = threadIdx.x; d < h.HS; d += THREADS) {
    float acc = 0;
#pragma unroll 8
    for (int64_t j = 0; j < keys; j++) acc = exact::fma(p[j], v_cache[j * h.C + d], acc);
    out[d] = acc;
  }
}

}  // namespace attention

inline void attention_forward(float *out, float *m, float *n, const float *qkv, int64_t B, int64_t T, int64_t NH,
                              int64_t HS) {
  using namespace attention;
  const Heads h(B, T, NH, HS);
  const int64_t keys = h.tiles * TILE, tiles = 3 * sizeof(Tile), kept = TILE * keys * (int64_t)sizeof(float);
  const bool keep = tiles + kept <= (int64_t)context().properties.sharedMemPerBlockOptin / 2;  // two blocks at a time
  pick(HS, [&](auto D) {
    launch(forward_kernel<D>, dim3((unsigned)(h.tiles * h.number)), dim3(THREADS), tiles + (keep ? kept : 0),
           context().stream, out, m, n, qkv, h, keep ? keys : 0);
  });
}
inline void attention_backward(float *dqkv, const float *dout, const float *out, const float *m, const float *n,
                               const float *qkv, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  using namespace attention;
  const Heads h(B, T, NH, HS);
  float *const r = scratch<float>(h.number * T);
  a_warp_each(dout_dot_out_kernel, h.number * T, r, dout, out, h);
  pick(HS, [&](auto D) {
    const dim3 grid((unsigned)(h.tiles * h.number), (unsigned)divide_up(HS, D * TILE));
    const Backward t{dqkv, dout, m, n, r, qkv};
    launch(dq_kernel<D>, grid, dim3(THREADS), 0, context().stream, t, h);
    launch(dk_dv_kernel<D>, grid, dim3(THREADS), 0, context().stream, t, h);
  });
}
inline void attention_decode(float *out, const float *q, const float *k_cache, const float *v_cache, int64_t t,
                             int64_t NH, int64_t HS) {
  using namespace attention;
  const Heads h(1, t + 1, NH, HS);
  float *const p = scratch<float>(NH * h.T);
  launch(decode_scores_kernel, dim3((unsigned)(h.tiles * NH)), dim3(WARP), 0, context().stream, p, q, k_cache, h);
  launch(decode_row_kernel, dim3((unsigned)NH), dim3(THREADS), 0, context().stream, out, p, v_cache, h);
}

}  // namespace gpu
