// attnres.cuh: the depth mixer of Attention Residuals (arXiv 2603.15031) and its kin: the contract and plain::.
//
// One read has a query q and a key gain g, both (C); w = g*q. For the sources s_1..s_n of one token:
//   r_i = 1/sqrt(lane(s_i.s_i)/C + key_eps)     k_i = s_i*r_i      z_i = w.k_i + b_i      p = softmax(z)      h = sum
//              p_i s_i
//   dz_i = p_i (dh.s_i - dh.h)     ds_i = p_i dh + dz_i (r_i w - (r_i w.s_i) r_i^2 s_i / C)     dw = sum dz_i r_i s_i
// Values are not normalised; b_i is the read's beta of a detail (wav_router.cuh), else 0. dq = dw*g, dg = dw*q.
//
// The two-phase read (the definition of the bits). Reads come in groups of at most 8. Phase 1 scores all queries of a
// group against the sources that were complete before its first read; phase 2 merges, per read, the partial sources P_d
// that appeared since, each scaled by c_d (1 for a sum or an update; wav_router.cuh for details):
//   phase 1    z_i = fma(lane(w.s_i), r_i, b_i);  mx1 = max;  E_i = exp(z_i - mx1);  l1 = sum E_i;  o = chain of
//              fma(E_i, s_i, .)
//   phase 2    z_d = fma(c_d*lane(w.P_d), r_d, b_d);  mx = max(mx1, z_d);  E' = exp(mx1 - mx);  E_d = exp(z_d - mx)
//              l = E'*l1, + E_d ascending;  inv = 1/l;  h = (E'*inv)*o, then fma((E_d*inv)*c_d, P_d, h);  no partials:
//              h = (1/l1)*o
// Backward: reads last to first by phase 2, then once per group phase 1; see the functions. A group's lane is `mix` (a
// read), `copy` (read 0: h_0 = e, p = 1, no parameters) or `none` (read 0 of the delta methods).
// Shapes: rows (N,C), N = B*T; z (N,n,8); mx, l, D (N,8); o, dh 8 x (N,C); w (8,C); bias (8,1+D), bias[k][0] = 0.
#pragma once
#include "layers/embedding.cuh"

constexpr int GROUP = 8;         // reads of a group, lanes of a butterfly
constexpr int MAX_PARTIALS = 7;  // a sum and its details (five kinds exist), or 7 updates

template <class real> struct Source {
  const real *s, *r;   // (N,C); (N)
  real *ds;            // (N,C), added to
  int detail;          // which bias: 0 none, 1.. the details as listed
  bool fresh = false;  // nothing was added yet: ds holds anything, counts as +0 and is written
};

template <class real> struct MixGroup {
  enum Lane { mix, copy, none };
  int K = 0;         // reads
  Lane first = mix;  // lane 0; the others mix
  std::vector<Source<real>> sources;
  int details = 0;
  int64_t stride = 0;  // from one read's rows of o and dh to the next, at least N*C
  const real *w = nullptr, *bias = nullptr;
  real *o = nullptr, *z = nullptr, *mx = nullptr, *l = nullptr;  // after phase 2: l holds inv
  real *dh = nullptr, *D = nullptr;                              // backward
  int begin() const { return first == mix ? 0 : 1; }
  const real *bias_of(int k) const { return bias + k * (1 + details); }
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
  for (int64_t c = 0; c < C; c++) w[c] = g[c] * q[c];
}
// dq holds dw, the sum over all tokens; formed once, after the last addition over passes and ranks
template <class real> void query_backward(real *dq, real *dg, const real *q, const real *g, int64_t C) {
  for (int64_t c = 0; c < C; c++) {
    dg[c] = dq[c] * q[c];
    dq[c] = dq[c] * g[c];
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
    for (int k = g.begin(); k < g.K; k++) {
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
      g.mx[t * GROUP + k] = mx;
      g.l[t * GROUP + k] = l;
      for (int64_t c = 0; c < C; c++) {
        real acc = 0;
        for (int64_t i = 0; i < n; i++) acc = exact::fma(E[i], g.sources[i].s[t * C + c], acc);
        g.o[k * g.stride + t * C + c] = acc;
      }
    }
}

// h of read k; saved (n,3,N) = z, r, c of the partials; mx and l of the read become the final maximum and 1/sum
template <class real, class Partials>
void mix_phase2(real *h, real *saved, const MixGroup<real> &g, int k, const Partials &partials, int64_t N, int64_t C) {
  const auto read = reader(partials, C);
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> p = read(t);
    real &mx = g.mx[t * GROUP + k], &l = g.l[t * GROUP + k], z[MAX_PARTIALS], E[MAX_PARTIALS], first = 1;
    const real *o = g.o + k * g.stride + t * C, mx1 = mx;
    for (int d = 0; d < p.n; d++) {
      z[d] = exact::fma(p.c[d] * exact::lane_dot(g.w + k * C, p.row[d], C), p.r[d], g.bias_of(k)[p.detail[d]]);
      mx = z[d] > mx ? z[d] : mx;
      real *save = saved + d * 3 * N + t;
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
    l = 1 / l;
    for (int64_t c = 0; c < C; c++) {
      real x = (p.n ? first * l : l) * o[c];
      for (int d = 0; d < p.n; d++) x = exact::fma((E[d] * l) * p.c[d], p.row[d][c], x);
      h[t * C + c] = x;
    }
  }
}

// G[d] (N,C): running gradients of the partials; dw (B,C) and db (B,D) of this read start at +0 and are continued by
// phase 1
template <class real, class Partials>
void mix_phase2_backward(real *const *G, real *dw, real *db, const real *h, const real *saved, const MixGroup<real> &g,
                         int k, const Partials &partials, int64_t B, int64_t T, int64_t C) {
  const auto read = reader(partials, C);
  const int64_t N = B * T;
  const real *w = g.w + k * C;
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> x = read(t);
    const real *dh = g.dh + k * g.stride + t * C, D = exact::lane_dot(dh, h + t * C, C);
    g.D[t * GROUP + k] = D;
    for (int d = 0; d < x.n; d++) {
      const real *P = x.row[d], *save = saved + d * 3 * N + t, z = save[0], r = save[N], c = save[2 * N];
      const real p = exact::exp_neg(z - g.mx[t * GROUP + k]) * g.l[t * GROUP + k],
                 dz = p * (c * exact::lane_dot(dh, P, C) - D);
      const real be = (dz * c) * r, gm = ((be * (z - g.bias_of(k)[x.detail[d]])) * (c * r)) / (real)C;
      for (int64_t i = 0; i < C; i++) {
        real &to = G[d][t * C + i], &sum = dw[t / T * C + i];
        to = exact::fma(-gm, P[i], exact::fma(be, w[i], exact::fma(p * c, dh[i], to)));
        sum = exact::fma(be, P[i], sum);
      }
      if (x.detail[d]) {
        real &bias = db[t / T * g.details + x.detail[d] - 1];
        bias = bias + dz;
      }
    }
  }
}

// dw (8,B,C) and db (8,B,D) go on where phase 2 left them
template <class real>
void mix_phase1_backward(real *dw, real *db, const MixGroup<real> &g, int64_t B, int64_t T, int64_t C) {
  const int64_t N = B * T, n = (int64_t)g.sources.size();
  for (int64_t t = 0; t < N; t++)
    for (int64_t i = 0; i < n; i++) {
      const Source<real> &source = g.sources[i];
      const real *s = source.s + t * C, r = source.r[t];
      real p[GROUP], be[GROUP] = {}, K[GROUP] = {};
      p[0] = 1;
      for (int k = g.begin(); k < g.K; k++) {
        const real z = g.z[(t * n + i) * GROUP + k];
        p[k] = exact::exp_neg(z - g.mx[t * GROUP + k]) * g.l[t * GROUP + k];
        const real dz = p[k] * (exact::lane_dot(g.dh + k * g.stride + t * C, s, C) - g.D[t * GROUP + k]);
        be[k] = dz * r;
        K[k] = dz * (z - g.bias_of(k)[source.detail]);
        if (source.detail) {
          real &bias = db[(k * B + t / T) * g.details + source.detail - 1];
          bias = bias + dz;
        }
      }
      const real sum = ((K[0] + K[4]) + (K[2] + K[6])) + ((K[1] + K[5]) + (K[3] + K[7])),
                 gamma = sum * (r * r) / (real)C;
      for (int64_t c = 0; c < C; c++) {
        real ds = source.fresh ? 0 : source.ds[t * C + c];
        for (int k = g.first == g.none ? 1 : 0; k < g.K; k++) ds = exact::fma(p[k], g.dh[k * g.stride + t * C + c], ds);
        for (int k = g.begin(); k < g.K; k++) {
          ds = exact::fma(be[k], g.w[k * C + c], ds);
          real &sum_w = dw[(k * B + t / T) * C + c];
          sum_w = exact::fma(be[k], s[c], sum_w);
        }
        source.ds[t * C + c] = exact::fma(-gamma, s[c], ds);
      }
    }
}

// The read as it is defined in the paper, for comparison in double: p and h of one token over a list of scaled sources
template <class real> void mix_direct(real *p, real *h, const real *w, const std::vector<const real *> &s,
                                      const std::vector<real> &scale, const std::vector<real> &bias, int64_t C,
                                      double key_eps) {
  real largest = 0, sum = 0;
  for (size_t i = 0; i < s.size(); i++) {
    real square = 0, dot = 0;
    for (int64_t c = 0; c < C; c++) {
      square += scale[i] * s[i][c] * scale[i] * s[i][c];
      dot += w[c] * scale[i] * s[i][c];
    }
    p[i] = dot / exact::sqrt(square / (real)C + (real)key_eps) + bias[i];
    largest = i == 0 || p[i] > largest ? p[i] : largest;
  }
  for (size_t i = 0; i < s.size(); i++) sum += p[i] = exact::exp_neg(p[i] - largest);
  for (int64_t c = 0; c < C; c++) h[c] = 0;
  for (size_t i = 0; i < s.size(); i++) {
    p[i] /= sum;
    for (int64_t c = 0; c < C; c++) h[c] += p[i] * scale[i] * s[i][c];
  }
}

}  // namespace plain
