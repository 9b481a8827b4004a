// attnres.cuh: the depth mixer of Attention Residuals (arXiv 2603.15031) and its kin: the contract and plain::.
//
// One read has a query q and a key gain g, both (C); w = g*q. For the sources s_1..s_n of one token:
//   r_i = 1/sqrt(lane(s_i.s_i)/C + key_eps)     k_i = s_i*r_i      z_i = w.k_i + b_i      p = softmax(z)
//   h = sum p_i s_i
//   dz_i = p_i (dh.s_i - dh.h)     ds_i = p_i dh + dz_i (r_i w - (r_i w.s_i) r_i^2 s_i / C)     dw = sum dz_i r_i s_i
// Values are not normalised; b_i is the read's beta of a detail (wav_router.cuh), else 0. dq = dw*g, dg = dw*q.
//
// The two-phase read (the definition of the bits). Reads come in groups of at most 8. Phase 1 scores all queries of a
// group against the sources that were complete before its first read; phase 2 merges, per read, the partial sources P_d
// that appeared since, each scaled by c_d (1 for a sum or an update; wav_router.cuh for details):
//   phase 1    z_i = fma(lane(w.s_i), r_i, b_i);  mx1 = max;  E_i = exp(z_i - mx1);  l1 = sum E_i
//              o = chain of fma(E_i, s_i, .)
//   phase 2    z_d = fma(c_d*lane(w.P_d), r_d, b_d);  mx = max(mx1, z_d);  E' = exp(mx1 - mx);  E_d = exp(z_d - mx)
//              l = E'*l1, + E_d ascending;  inv = 1/l
//              h = (E'*inv)*o, then fma((E_d*inv)*c_d, P_d, h);  no partials: h = (1/l1)*o
// Backward: reads last to first by phase 2, then once per group phase 1; see the functions.
//
// Letters, here and in wav_router.cuh: t token, i source, d partial or detail, k place of a read in its group, b
// sequence, ch channel; c is always a scale c_d, D always lane(dh.h).
#pragma once
#include "layers/sums.cuh"
#include <vector>

constexpr int GROUP = 8;         // reads of a group, lanes of a butterfly
constexpr int MAX_PARTIALS = 7;  // a sum and its details (five kinds exist), or 7 updates

template <class real> struct Source {
  const real *s, *r;   // (N,C); (N)
  real *ds;            // (N,C), added to
  int detail;          // which bias: 0 none, 1.. the details as listed
  bool fresh = false;  // nothing was added yet: ds holds anything, counts as +0 and is written
};

// What lane 0 of a group is: a read that mixes, read 0 (h_0 = e: p = 1, no parameters), or nothing (read 0 of delta)
enum class FirstLane { mix, copy, none };

template <class real> struct MixGroup {
  // ---- what it is given
  int reads = 0;  // read k of the group is lane k; all but perhaps the first mix
  FirstLane first = FirstLane::mix;
  int details = 0;
  std::vector<Source<real>> sources;  // n of them, complete before the first read
  real *w = nullptr;                  // (GROUP,C): g*q of each read
  real *bias = nullptr;               // (GROUP,1+details); [k][0] = 0
  int64_t stride = 0;                 // from one read's rows of o and dh to the next, at least N*C
  // ---- what phase 1 leaves. o, mx1, l1 are every group's own until the next group's phase 1
  real *z = nullptr;    // (N,n,GROUP): scores
  real *mx1 = nullptr;  // (N,GROUP): the largest
  real *l1 = nullptr;   // (N,GROUP): sum of exp(z - mx1)
  real *o = nullptr;    // reads x (N,C)
  // ---- what phase 2 leaves, for the backward pass: over all sources of a read, partials included
  real *mx = nullptr;   // (N,GROUP): the largest score
  real *inv = nullptr;  // (N,GROUP): 1 / sum of exp(z - mx)
  // ---- what backward uses
  real *dh = nullptr;  // reads x (N,C): given. May be o's memory: the forward pass, which reads o, is over
  real *D = nullptr;   // (N,GROUP): lane(dh.h), left by phase 2 for phase 1; one for all groups

  int begin() const { return first == FirstLane::mix ? 0 : 1; }
  const real *bias_of(int k) const { return bias + k * (1 + details); }
};

// Read k of a group
template <class real> struct MixRead {
  const MixGroup<real> &group;
  int k;
  real *h;      // (N,C): the mix, written by forward
  real *saved;  // (n,3,N): z, r, c of its n partials, left by forward for backward
  const real *w(int64_t C) const { return group.w + k * C; }
  real bias(int detail) const { return group.bias_of(k)[detail]; }
};
// What the backward of one read adds to
template <class real> struct ReadGradients {
  real *const *G;  // of each partial (N,C): its running gradient
  real *dw;        // (B,C): starts at +0, is continued by phase 1
  real *dbias;     // (B,details): likewise
};

// The partial sources of one token: rows, their scale and the inverse rms of the scaled row
template <class real> struct PartialRows {
  int n = 0;
  const real *row[MAX_PARTIALS];
  real c[MAX_PARTIALS], r[MAX_PARTIALS];
  int detail[MAX_PARTIALS];
};
// attnres and delta: each update since the group's first read is a partial of its own
template <class real> struct UpdatePartials {
  static constexpr bool details = false;
  int n;
  const Source<real> *updates;
  int count() const { return n; }
};

namespace plain {

template <class real> void query_forward(real *w, const real *q, const real *g, int64_t C) {
  for (int64_t ch = 0; ch < C; ch++) w[ch] = g[ch] * q[ch];
}
// dq holds dw, the sum over all tokens; formed once, after the last addition over passes and ranks
template <class real> void query_backward(real *dq, real *dg, const real *q, const real *g, int64_t C) {
  for (int64_t ch = 0; ch < C; ch++) {
    dg[ch] = dq[ch] * q[ch];
    dq[ch] = dq[ch] * g[ch];
  }
}

template <class real> void source_scale(real *r, const real *s, int64_t N, int64_t C, double key_eps) {
  for (int64_t t = 0; t < N; t++)
    r[t] = 1 / exact::sqrt(exact::lane_dot(s + t * C, s + t * C, C) / (real)C + (real)key_eps);
}

template <class real> struct UpdateReader {
  const UpdatePartials<real> &p;
  int64_t C;
  PartialRows<real> operator()(int64_t t) const {
    PartialRows<real> x;
    x.n = p.n;
    for (int d = 0; d < p.n; d++) {
      x.row[d] = p.updates[d].s + t * C;
      x.c[d] = 1;
      x.r[d] = p.updates[d].r[t];
      x.detail[d] = 0;
    }
    return x;
  }
};
}  // namespace plain
// Found by the mixer through the type of the partials (argument-dependent lookup)
template <class real> plain::UpdateReader<real> reader(const UpdatePartials<real> &p, int64_t C) { return {p, C}; }
namespace plain {

template <class real> void mix_phase1(const MixGroup<real> &g, int64_t N, int64_t C) {
  const int64_t n = (int64_t)g.sources.size();
  std::vector<real> E(n);
  for (int64_t t = 0; t < N; t++)
    for (int k = g.begin(); k < g.reads; k++) {
      real *z = g.z + t * n * GROUP + k, mx = 0, l = 0;
      for (int64_t i = 0; i < n; i++) {
        const Source<real> &s = g.sources[i];
        z[i * GROUP] = exact::fma(exact::lane_dot(g.w + k * C, s.s + t * C, C), s.r[t], g.bias_of(k)[s.detail]);
        mx = i == 0 || z[i * GROUP] > mx ? z[i * GROUP] : mx;
      }
      for (int64_t i = 0; i < n; i++) {
        E[i] = exact::exp_neg(z[i * GROUP] - mx);
        l = l + E[i];
      }
      g.mx1[t * GROUP + k] = mx;
      g.l1[t * GROUP + k] = l;
      for (int64_t ch = 0; ch < C; ch++) {
        real acc = 0;
        for (int64_t i = 0; i < n; i++) acc = exact::fma(E[i], g.sources[i].s[t * C + ch], acc);
        g.o[k * g.stride + t * C + ch] = acc;
      }
    }
}

template <class real, class Partials>
void mix_phase2(const MixRead<real> &to, const Partials &partials, int64_t N, int64_t C) {
  const auto read = reader(partials, C);
  const MixGroup<real> &g = to.group;
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> p = read(t);
    const int64_t at = t * GROUP + to.k;
    const real *o = g.o + to.k * g.stride + t * C, mx1 = g.mx1[at];
    real z[MAX_PARTIALS], E[MAX_PARTIALS], mx = mx1, l = g.l1[at], first = 1;
    for (int d = 0; d < p.n; d++) {
      z[d] = exact::fma(p.c[d] * exact::lane_dot(to.w(C), p.row[d], C), p.r[d], to.bias(p.detail[d]));
      mx = z[d] > mx ? z[d] : mx;
      real *save = to.saved + d * 3 * N + t;
      save[0] = z[d];
      save[N] = p.r[d];
      save[2 * N] = p.c[d];
    }
    if (p.n) {
      first = exact::exp_neg(mx1 - mx);
      l = first * l;
    }
    for (int d = 0; d < p.n; d++) {
      E[d] = exact::exp_neg(z[d] - mx);
      l = l + E[d];
    }
    const real inv = 1 / l;
    g.mx[at] = mx;
    g.inv[at] = inv;
    for (int64_t ch = 0; ch < C; ch++) {
      real x = (p.n ? first * inv : inv) * o[ch];
      for (int d = 0; d < p.n; d++) x = exact::fma((E[d] * inv) * p.c[d], p.row[d][ch], x);
      to.h[t * C + ch] = x;
    }
  }
}

template <class real, class Partials> void mix_phase2_backward(const ReadGradients<real> &to, const MixRead<real> &of,
                                                               const Partials &partials, int64_t B, int64_t T,
                                                               int64_t C) {
  const auto read = reader(partials, C);
  const MixGroup<real> &g = of.group;
  const int64_t N = B * T;
  const real *w = of.w(C);
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> x = read(t);
    const int64_t at = t * GROUP + of.k, b = t / T;
    const real *dh = g.dh + of.k * g.stride + t * C, D = exact::lane_dot(dh, of.h + t * C, C);
    g.D[at] = D;
    for (int d = 0; d < x.n; d++) {
      const real *P = x.row[d], *save = of.saved + d * 3 * N + t, z = save[0], r = save[N], c = save[2 * N];
      const real p = exact::exp_neg(z - g.mx[at]) * g.inv[at];
      const real dz = p * (c * exact::lane_dot(dh, P, C) - D), be = (dz * c) * r;
      const real gm = ((be * (z - of.bias(x.detail[d]))) * (c * r)) / (real)C;
      for (int64_t ch = 0; ch < C; ch++) {
        real &G = to.G[d][t * C + ch], &sum = to.dw[b * C + ch];
        G = exact::fma(-gm, P[ch], exact::fma(be, w[ch], exact::fma(p * c, dh[ch], G)));
        sum = exact::fma(be, P[ch], sum);
      }
      if (x.detail[d]) {
        real &bias = to.dbias[b * g.details + x.detail[d] - 1];
        bias = bias + dz;
      }
    }
  }
}

// dw (GROUP,B,C) and dbias (GROUP,B,details) go on where phase 2 left them
template <class real>
void mix_phase1_backward(real *dw, real *dbias, const MixGroup<real> &g, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T, n = (int64_t)g.sources.size();
  for (int64_t t = 0; t < N; t++)
    for (int64_t i = 0; i < n; i++) {
      const Source<real> &source = g.sources[i];
      const real *s = source.s + t * C, r = source.r[t];
      const int64_t b = t / T;
      real p[GROUP], be[GROUP] = {}, K[GROUP] = {};
      p[0] = 1;
      for (int k = g.begin(); k < g.reads; k++) {
        const real z = g.z[(t * n + i) * GROUP + k];
        p[k] = exact::exp_neg(z - g.mx[t * GROUP + k]) * g.inv[t * GROUP + k];
        const real dz = p[k] * (exact::lane_dot(g.dh + k * g.stride + t * C, s, C) - g.D[t * GROUP + k]);
        be[k] = dz * r;
        K[k] = dz * (z - g.bias_of(k)[source.detail]);
        if (source.detail) {
          real &bias = dbias[(k * B + b) * g.details + source.detail - 1];
          bias = bias + dz;
        }
      }
      const real sum = ((K[0] + K[4]) + (K[2] + K[6])) + ((K[1] + K[5]) + (K[3] + K[7]));
      const real gamma = sum * (r * r) / (real)C;
      for (int64_t ch = 0; ch < C; ch++) {
        real ds = source.fresh ? 0 : source.ds[t * C + ch];
        for (int k = g.first == FirstLane::none ? 1 : 0; k < g.reads; k++)
          ds = exact::fma(p[k], g.dh[k * g.stride + t * C + ch], ds);
        for (int k = g.begin(); k < g.reads; k++) {
          ds = exact::fma(be[k], g.w[k * C + ch], ds);
          real &sum_w = dw[(k * B + b) * C + ch];
          sum_w = exact::fma(be[k], s[ch], sum_w);
        }
        source.ds[t * C + ch] = exact::fma(-gamma, s[ch], ds);
      }
    }
}

}  // namespace plain
