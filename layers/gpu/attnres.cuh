// gpu/attnres.cuh: the depth mixer of ../../attnres.cuh. A warp takes a token. Where rows are read or written its lanes
// are channels; where a token's scalars are formed they are 4 sources x 8 reads in phase 1, and 4 lanes a partial in
// phase 2. dw and dbias, chains over the tokens of a sequence, are a kernel of their own, which finds be, dz in scratch.
// Lanes of a group that are no reads compute on zeros and write nothing.
#pragma once
#include "launch.cuh"
#include "../../attnres.cuh"

namespace gpu {

constexpr int SOURCES = WARP / GROUP;      // of a step of phase 1
constexpr int PER_PARTIAL = WARP / GROUP;  // lanes, in phase 2
static_assert(MAX_PARTIALS < GROUP && GROUP <= WARPS, "eight lane sums at a time; a warp for the sums of each read");

// What a kernel gets of a MixGroup
struct GroupView {
  const Source<float> *sources;
  int64_t n, stride;
  int reads, begin, details;
  bool copies;  // lane 0 is h_0 = e
  const float *w, *bias, *dh;
  float *o, *z, *mx1, *l1, *mx, *inv, *D;
  __device__ bool live(int k) const { return k >= begin && k < reads; }
  __device__ float bias_of(int k, int detail) const { return bias[k * (1 + details) + detail]; }
};
inline GroupView view(const MixGroup<float> &g, bool with_sources) {
  GroupView v;
  v.n = (int64_t)g.sources.size();
  v.sources = with_sources ? table(g.sources.data(), v.n) : nullptr;
  v.reads = g.reads;
  v.begin = g.begin();
  v.details = g.details;
  v.copies = g.first == FirstLane::copy;
  v.stride = g.stride;
  v.w = g.w;
  v.bias = g.bias;
  v.o = g.o;
  v.z = g.z;
  v.mx1 = g.mx1;
  v.l1 = g.l1;
  v.mx = g.mx;
  v.inv = g.inv;
  v.dh = g.dh;
  v.D = g.D;
  return v;
}
// What a kernel gets of a MixRead
struct ReadView {
  GroupView g;
  int k;
  float *h, *saved;
};
inline ReadView view(const MixRead<float> &read) { return {view(read.group, false), read.k, read.h, read.saved}; }
__device__ inline float larger(float x, float max) { return x > max ? x : max; }  // of +0 and -0 the first stays

// n butterflies at once: lane i gets the sum of v[i / (32/n)]. In each step a lane keeps half of its values and sends
// the half that its partner keeps
template <int n> __device__ inline float butterflies(float (&v)[n]) {
#pragma unroll
  for (int step = WARP / 2, half = n / 2; step > 0; step /= 2, half /= 2) {
    const bool upper = lane_id() & step;
    if (half == 0) v[0] = v[0] + __shfl_xor_sync(FULL, v[0], step);
    for (int i = 0; i < half; i++) {
      const float keep = upper ? v[i + half] : v[i], send = upper ? v[i] : v[i + half];
      v[i] = keep + __shfl_xor_sync(FULL, send, step);
    }
  }
  return v[0];
}

__global__ void query_forward_kernel(float *w, const float *q, const float *g, int64_t C) {
  const int64_t c = index_of_thread();
  if (c < C) w[c] = g[c] * q[c];
}
inline void query_forward(float *w, const float *q, const float *g, int64_t C) {
  a_thread_each(query_forward_kernel, C, w, q, g, C);
}
__global__ void query_backward_kernel(float *dq, float *dg, const float *q, const float *g, int64_t C) {
  const int64_t c = index_of_thread();
  if (c < C) {
    dg[c] = dq[c] * q[c];
    dq[c] = dq[c] * g[c];
  }
}
inline void query_backward(float *dq, float *dg, const float *q, const float *g, int64_t C) {
  a_thread_each(query_backward_kernel, C, dq, dg, q, g, C);
}
__global__ void source_scale_kernel(float *r, const float *s, int64_t N, int64_t C, float key_eps) {
  const int64_t t = index_of_warp();
  if (t >= N) return;
  const float square = lane_dot(s + t * C, s + t * C, C);
  if (lane_id() == 0) r[t] = 1 / exact::sqrt(square / (float)C + key_eps);
}
inline void source_scale(float *r, const float *s, int64_t N, int64_t C, double key_eps) {
  a_warp_each(source_scale_kernel, N, r, s, N, C, (float)key_eps);
}

// ---- phase 1, in steps of 4 sources; lane 8i+k is read k of source i of the step. Their dots with rows a_k, ld apart:
// a row of `a` is loaded once for 4 sources, a source once for 8 reads. Behind the last source it stands again
__device__ inline float step_dots(const GroupView &g, const float *a, int64_t ld, int64_t step, int64_t t, int64_t C) {
  const float *s[SOURCES];
  float v[WARP] = {};
  for (int i = 0; i < SOURCES; i++) s[i] = g.sources[step + i < g.n ? step + i : g.n - 1].s + t * C;
  for (int64_t c = lane_id(); c < C; c += WARP) {
    float x[SOURCES];
    for (int i = 0; i < SOURCES; i++) x[i] = s[i][c];
    for (int k = 0; k < GROUP; k++)
      for (int i = 0; i < SOURCES && g.live(k); i++)
        v[i * GROUP + k] = exact::fma(a[k * ld + c], x[i], v[i * GROUP + k]);
  }
  return butterflies(v);
}
// z = fma(w.s, r, b) and mx of all reads in one sweep over the sources. Then, 128 channels a sweep, l = sum of
// E = exp(z - mx) and o = chain of fma(E, s, .); every sweep forms E and l again: one exp of a lane for 4 sources
__global__ void mix_phase1_kernel(GroupView g, int64_t N, int64_t C) {
  constexpr int V = 4;
  const int64_t t = index_of_warp();
  if (t >= N) return;
  const int lane = lane_id(), k = lane % GROUP, i = lane / GROUP;
  float *z = g.z + t * g.n * GROUP + lane, mx = 0, l = 0;
  for (int64_t step = 0; step < g.n; step += SOURCES) {
    float x = step_dots(g, g.w, C, step, t, C);
    if (g.live(k) && step + i < g.n) {
      const Source<float> &s = g.sources[step + i];
      z[step * GROUP] = x = exact::fma(x, s.r[t], g.bias_of(k, s.detail));
    }
    if (step == 0) mx = from_lane(x, k);
    for (int j = 0; j < SOURCES && step + j < g.n; j++) mx = larger(from_lane(x, j * GROUP + k), mx);
  }
  for (int64_t c = lane; c - lane < C; c += V * WARP) {
    float o[GROUP][V] = {};
    l = 0;
    for (int64_t step = 0; step < g.n; step += SOURCES) {
      const float E = g.live(k) && step + i < g.n ? exact::exp_neg(z[step * GROUP] - mx) : 0;
      for (int j = 0; j < SOURCES && step + j < g.n; j++) {
        const float *s = g.sources[step + j].s + t * C;
        float x[V];
        for (int v = 0; v < V; v++) x[v] = c + v * WARP < C ? s[c + v * WARP] : 0;
        l = l + from_lane(E, j * GROUP + k);
        for (int read = 0; read < GROUP; read++) {
          if (!g.live(read)) continue;
          const float e = from_lane(E, j * GROUP + read);
          for (int v = 0; v < V; v++) o[read][v] = exact::fma(e, x[v], o[read][v]);
        }
      }
    }
    for (int read = 0; read < GROUP; read++)
      for (int v = 0; v < V; v++)
        if (g.live(read) && c + v * WARP < C) g.o[read * g.stride + t * C + c + v * WARP] = o[read][v];
  }
  if (i == 0 && g.live(k)) {
    g.mx1[t * GROUP + k] = mx;
    g.l1[t * GROUP + k] = l;
  }
}
inline void mix_phase1(const MixGroup<float> &g, int64_t N, int64_t C) {
  if (g.begin() < g.reads) a_warp_each(mix_phase1_kernel, N, view(g, true), N, C);
}

// ---- phase 2. Partials are rows by (d, t, c): here of sources, in wav_router.cuh sums of a block
struct SourceRows {
  static constexpr bool details = false;  // of partials
  const Source<float> *sources;
  int64_t C;
  __device__ int detail(int i) const { return sources[i].detail; }
  __device__ float row(int i, int64_t t, int64_t c) const { return sources[i].s[t * C + c]; }
  template <int n> __device__ void rows(float *P, int64_t t, int64_t c) const {  // P[d] = row(d, t, c)
    for (int d = 0; d < n; d++) P[d] = row(d, t, c);
  }
  // c and r of partial d; squares: this lane's part of P.P of all of them
  __device__ void scales(float &c, float &r, float (&)[GROUP], int d, int64_t t) const {
    c = 1;
    r = sources[d].r[t];
  }
};
}  // namespace gpu
// Found through the type of the partials (argument-dependent lookup)
inline gpu::SourceRows gpu_rows(const UpdatePartials<float> &p, int64_t C) { return {gpu::table(p.updates, p.n), C}; }
namespace gpu {

// body(std::integral_constant<int, n>()) for a count of partials
template <int n = 0, class F> void counted(int count, F body) {
  if constexpr (n < MAX_PARTIALS)
    if (count != n) return counted<n + 1>(count, body);
  body(std::integral_constant<int, n>());
}

// z = fma(c*(w.P), r, b);  mx, l = E'*l1 + sum of E, inv;  h = (E'*inv)*o, then fma((E*inv)*c, P, .). Lanes 4d.. are
// partial d; what those behind the last one hold is not looked at
template <int n, class Rows> __global__ void mix_phase2_kernel(ReadView to, Rows partials, int64_t N, int64_t C) {
  const GroupView &g = to.g;
  const int k = to.k;
  const int64_t t = index_of_warp(), at = t * GROUP + k;
  if (t >= N) return;
  const int lane = lane_id(), d = lane / PER_PARTIAL < n ? lane / PER_PARTIAL : 0;
  const float *w = g.w + k * C, *o = g.o + k * g.stride + t * C, mx1 = g.mx1[at];
  float P[MAX_PARTIALS], factor[MAX_PARTIALS], mx = mx1, l = g.l1[at], first = 1, E = 0, c = 1;
  if (n > 0) {
    float dots[GROUP] = {}, squares[GROUP] = {}, r;
    for (int64_t i = lane; i < C; i += WARP) {
      partials.template rows<n>(P, t, i);
      for (int j = 0; j < n; j++) dots[j] = exact::fma(w[i], P[j], dots[j]);
      for (int j = 0; j < n && Rows::details; j++) squares[j] = exact::fma(P[j], P[j], squares[j]);
    }
    partials.scales(c, r, squares, d, t);
    const float z = exact::fma(c * butterflies(dots), r, g.bias_of(k, Rows::details ? d : 0));
    float *save = to.saved + d * 3 * N + t;
    if (lane == d * PER_PARTIAL) {
      save[0] = z;
      save[N] = r;
      save[2 * N] = c;
    }
    for (int j = 0; j < n; j++) mx = larger(from_lane(z, j * PER_PARTIAL), mx);
    first = exact::exp_neg(mx1 - mx);
    l = first * l;
    E = exact::exp_neg(z - mx);
    for (int j = 0; j < n; j++) l = l + from_lane(E, j * PER_PARTIAL);
  }
  const float inv = 1 / l;
  for (int j = 0; j < n; j++) factor[j] = from_lane((E * inv) * c, j * PER_PARTIAL);
  if (lane == 0) {
    g.mx[at] = mx;
    g.inv[at] = inv;
  }
  for (int64_t i = lane; i < C; i += WARP) {
    float x = (n > 0 ? first * inv : inv) * o[i];
    partials.template rows<n>(P, t, i);
    for (int j = 0; j < n; j++) x = exact::fma(factor[j], P[j], x);
    to.h[t * C + i] = x;
  }
}
template <class Partials> void mix_phase2(const MixRead<float> &to, const Partials &partials, int64_t N, int64_t C) {
  auto rows = gpu_rows(partials, C);
  counted(partials.count(),
          [&](auto n) { a_warp_each(mix_phase2_kernel<decltype(n)::value, decltype(rows)>, N, view(to), rows, N, C); });
}

// ---- sums over a sequence: dw (.,B,C) and dbias (.,B,details) go on as chains of fma(be, row, .) and of + dz, over its tokens
// and in a token over its n rows. be, dz (N,n,reads). A block has 32 channels of a sequence: its warps bring a tile of
// rows to shared memory, then warp k goes on with read k. Lanes 1.. of the block of the first channels have dbias
struct SequenceSums {
  float *dw, *dbias;     // continued
  const float *be, *dz;  // (N,n,stored)
  int64_t n;             // rows of a token
  int stored;            // reads of be and dz
  int begin, end;        // the reads whose sums go on
  int details;
};
template <class Rows> __global__ void sequence_sums_kernel(SequenceSums s, Rows rows, int64_t B, int64_t T, int64_t C) {
  const int64_t n = s.n;
  constexpr int TILE = 128;
  __shared__ float row[TILE][WARP], tile_be[TILE * GROUP], tile_dz[TILE * GROUP];
  __shared__ int detail[TILE];
  const int lane = lane_id(), k = warp_id();
  const int64_t pieces = (C + WARP - 1) / WARP, b = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int64_t c = piece * WARP + lane, to_w = (k * B + b) * C + c, to_b = (k * B + b) * s.details + lane - 1;
  const bool live = k >= s.begin && k < s.end, has_w = live && c < C;
  const bool has_b = live && piece == 0 && lane > 0 && lane <= s.details;
  float sum = has_w ? s.dw[to_w] : 0, bias = has_b ? s.dbias[to_b] : 0;
  for (int64_t from = 0; from < T * n; from += TILE) {
    const int count = T * n - from < TILE ? (int)(T * n - from) : TILE;
    const int64_t t = b * T + from / n, scalars = (b * T * n + from) * s.stored;
    for (int j = k; j < count; j += WARPS) {
      const unsigned at = (unsigned)(from % n) + (unsigned)j;
      const int i = (int)(at % (unsigned)n);
      if (c < C) row[j][lane] = rows.row(i, t + at / (unsigned)n, c);
      if (lane == 0) detail[j] = rows.detail(i);
    }
    for (int j = (int)threadIdx.x; j < count * s.stored; j += THREADS) {
      tile_be[j] = s.be[scalars + j];
      if (s.details) tile_dz[j] = s.dz[scalars + j];
    }
    __syncthreads();
    for (int j = 0; j < count && has_w; j++) sum = exact::fma(tile_be[j * s.stored + k], row[j][lane], sum);
    for (int j = 0; j < count && has_b; j++)
      if (detail[j] == lane) bias = bias + tile_dz[j * s.stored + k];
    __syncthreads();
  }
  if (has_w) s.dw[to_w] = sum;
  if (has_b) s.dbias[to_b] = bias;
}
template <class Rows> void sequence_sums(const SequenceSums &s, const Rows &rows, int64_t B, int64_t T, int64_t C) {
  launch(sequence_sums_kernel<Rows>, blocks_of(B * divide_up(C, WARP), 1), dim3(THREADS), 0, context().stream, s, rows,
         B, T, C);
}

// ---- backward of phase 2: D = dh.h;  p = exp(z - mx)*inv;  dz = p*(c*(dh.P) - D);  be = (dz*c)*r;
// G = fma(-gm, P, fma(be, w, fma(p*c, dh, G))) with gm = ((be*(z - b))*(c*r))/C. Lanes as in phase 2; the last has D
template <int n, class Rows> __global__ void mix_phase2_backward_kernel(float *const *G, float *be, float *dz,
                                                                        ReadView of, Rows partials, int64_t N,
                                                                        int64_t C) {
  const GroupView &g = of.g;
  const int k = of.k;
  const int64_t t = index_of_warp(), at = t * GROUP + k;
  if (t >= N) return;
  const int lane = lane_id(), d = lane / PER_PARTIAL < n ? lane / PER_PARTIAL : 0;
  const float *w = g.w + k * C, *dh = g.dh + k * g.stride + t * C;
  float P[MAX_PARTIALS], dots[GROUP] = {};
  for (int64_t i = lane; i < C; i += WARP) {
    partials.template rows<n>(P, t, i);
    for (int j = 0; j < n; j++) dots[j] = exact::fma(dh[i], P[j], dots[j]);
    dots[GROUP - 1] = exact::fma(dh[i], of.h[t * C + i], dots[GROUP - 1]);
  }
  const float dot = butterflies(dots), D = from_lane(dot, WARP - 1);
  if (lane == 0) g.D[at] = D;
  if (n == 0) return;
  const float *save = of.saved + d * 3 * N + t, z = save[0], r = save[N], c = save[2 * N];
  const float p = exact::exp_neg(z - g.mx[at]) * g.inv[at], my_dz = p * (c * dot - D), my_be = (my_dz * c) * r;
  const float gm = ((my_be * (z - g.bias_of(k, Rows::details ? d : 0))) * (c * r)) / (float)C;
  if (lane == d * PER_PARTIAL) {
    be[t * n + d] = my_be;
    dz[t * n + d] = my_dz;
  }
  float of_dh[MAX_PARTIALS], of_w[MAX_PARTIALS], of_P[MAX_PARTIALS];
  for (int j = 0, from = 0; j < n; j++, from += PER_PARTIAL) {
    of_dh[j] = from_lane(p * c, from);
    of_w[j] = from_lane(my_be, from);
    of_P[j] = from_lane(-gm, from);
  }
  for (int64_t i = lane; i < C; i += WARP) {
    partials.template rows<n>(P, t, i);
    for (int j = 0; j < n; j++) {
      float &to = G[j][t * C + i];
      to = exact::fma(of_P[j], P[j], exact::fma(of_w[j], w[i], exact::fma(of_dh[j], dh[i], to)));
    }
  }
}
template <class Partials> void mix_phase2_backward(const ReadGradients<float> &to, const MixRead<float> &of,
                                                   const Partials &partials, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T, n = partials.count();
  auto rows = gpu_rows(partials, C);
  float *be = scratch<float>(2 * N * n), *dz = be + N * n, *const *G = table(to.G, n);
  counted(partials.count(), [&](auto count) {
    a_warp_each(mix_phase2_backward_kernel<decltype(count)::value, decltype(rows)>, N, G, be, dz, view(of), rows, N, C);
  });
  if (n) sequence_sums({to.dw, to.dbias, be, dz, n, 1, 0, 1, rows.details ? of.group.details : 0}, rows, B, T, C);
}

// ---- backward of phase 1: p = exp(z - mx)*inv;  dz = p*(dh.s - D);  be = dz*r;  gamma = (sum of dz*(z - b))*(r*r)/C;
// ds = fma(p_k, dh_k, ds), k ascending, then fma(be_k, w_k, ds), then fma(-gamma, s, ds), for two sources at a time
__device__ inline void pair_gradients(const GroupView &g, int64_t step, int first, int64_t t, float p, float be,
                                      float gamma, int64_t C) {
  const Source<float> *source = g.sources + step + first;
  const int count = step + first + 1 < g.n ? 2 : 1;
  float of_dh[2][GROUP], of_w[2][GROUP], of_s[2], ds[2];
  for (int i = 0; i < 2; i++) {
    const int lane = (first + i) * GROUP;
    of_s[i] = from_lane(-gamma, lane);
    for (int k = 0; k < GROUP; k++) {
      of_dh[i][k] = from_lane(p, lane + k);
      of_w[i][k] = from_lane(be, lane + k);
    }
  }
  for (int64_t c = lane_id(), at = t * C + c; c < C; c += WARP, at += WARP) {
    for (int i = 0; i < 2; i++) ds[i] = i < count && !source[i].fresh ? source[i].ds[at] : 0;
    for (int k = 0; k < GROUP; k++)
      for (int i = 0; i < 2 && (g.live(k) || (g.copies && k == 0)); i++)
        ds[i] = exact::fma(of_dh[i][k], g.dh[k * g.stride + at], ds[i]);
    for (int k = 0; k < GROUP; k++)
      for (int i = 0; i < 2 && g.live(k); i++) ds[i] = exact::fma(of_w[i][k], g.w[k * C + c], ds[i]);
    for (int i = 0; i < 2 && i < count; i++) source[i].ds[at] = exact::fma(of_s[i], source[i].s[at], ds[i]);
  }
}
__global__ void mix_phase1_backward_kernel(float *be, float *dz, GroupView g, int64_t N, int64_t C) {
  const int64_t t = index_of_warp();
  if (t >= N) return;
  const int k = lane_id() % GROUP, i = lane_id() / GROUP;
  float mx = 0, inv = 0, D = 0;
  if (g.live(k)) {
    mx = g.mx[t * GROUP + k];
    inv = g.inv[t * GROUP + k];
    D = g.D[t * GROUP + k];
  }
  for (int64_t step = 0; step < g.n; step += SOURCES) {
    const float dot = step_dots(g, g.dh + t * C, g.stride, step, t, C);
    const int64_t at = (t * g.n + step) * GROUP + lane_id();
    const bool inside = step + i < g.n;
    const Source<float> &s = g.sources[inside ? step + i : g.n - 1];
    float p = g.copies && k == 0 ? 1 : 0, my_dz = 0, K = 0;
    if (inside && g.live(k)) {
      const float z = g.z[at];
      p = exact::exp_neg(z - mx) * inv;
      my_dz = p * (dot - D);
      K = my_dz * (z - g.bias_of(k, s.detail));
    }
    const float r = s.r[t], my_be = my_dz * r;
    if (inside) be[at] = my_be;
    if (inside && g.details) dz[at] = my_dz;
    for (int half = GROUP / 2; half > 0; half /= 2) K = K + __shfl_xor_sync(FULL, K, half);
    for (int first = 0; first < SOURCES && step + first < g.n; first += 2)
      pair_gradients(g, step, first, t, p, my_be, K * (r * r) / (float)C, C);
  }
}
inline void mix_phase1_backward(float *dw, float *dbias, const MixGroup<float> &g, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T, all = N * (int64_t)g.sources.size() * GROUP;
  const GroupView v = view(g, true);
  float *be = scratch<float>(g.details ? 2 * all : all), *dz = be + all;
  a_warp_each(mix_phase1_backward_kernel, N, be, dz, v, N, C);
  sequence_sums({dw, dbias, be, dz, v.n, GROUP, v.begin, v.reads, v.details}, SourceRows{v.sources, C}, B, T, C);
}

}  // namespace gpu
