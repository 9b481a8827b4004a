// wav_router.cuh: blocks of updates and their details: WAV v1 (arXiv 2606.06564 v1: phase, split), HAARES (v2: split),
// and the ablations random, duplicate, learned. On attnres.cuh: a block's sum and its details are sources of the mixer.
//
// For the updates u_0.. of a block (position i in the block, m its planned length) and the details d = 1, 2, ..:
//   P_0 = sum u_i       P_d = chain from +0 of fma(coef_di, u_i, .)      ss_d = lane(P_d.P_d)
//   c_0 = 1             c_d = min(rho, sqrt(ss_0/C) / (sqrt(ss_d/C) + wav_eps))       no gradient flows through c
//   r_d = 1/sqrt(((c_d*c_d)*ss_d)/C + key_eps)
// coef: phase +1 attention, -1 MLP; split +1 in the first half, -1 after; random a fixed shuffle of the split signs;
// duplicate 1; learned trainable. A read of the open block merges P_d with scale c_d as it stands; a closing block
// stores the rows c_d*P_d with their r and c. Details add the read's beta to their score.
// Backward, with G_d the running gradients of the sums (they start as the stored rows' ds, G_d times the block's c_d):
//   du_i = G_0, then fma(coef_di, G_d, .), d ascending, when the reads behind update i are done
//   dcoef_di = sum over t of lane(G_d.u_i)
#pragma once
#include "attnres.cuh"

template <class real> struct BlockPartials {
  static constexpr bool details = true;
  int updates;           // so far
  const real *const *u;  // (N,C) each
  int bases;             // the sum and the details
  const real *coef;      // (bases, m); coef[0][.] = 1
  int64_t m;
  double rho, wav_eps, key_eps;
  int count() const { return updates ? bases : 0; }
};
// The rows that a closed block leaves: of each basis c_d*P_d (N,C), with its r and c (N)
template <class real> struct StoredBlock { real *const *row, *const *r, *const *c; };
// The gradient of one update of a block
template <class real> struct UpdateGradient {
  real *du;     // (N,C)
  real *dcoef;  // (B), added to: per-sequence sums of the coefficient of `learned`
  int learned;  // the detail whose coefficients are trained; 0: none
};

namespace plain {

// RMS matching: the scale c_d of a detail with mean square ss/C beside a sum with ss0/C. A constant for the gradient
template <class real> real rms_matching(real ss0, real ss, const BlockPartials<real> &b, int64_t C) {
  const real ratio = exact::sqrt(ss0 / (real)C) / (exact::sqrt(ss / (real)C) + (real)b.wav_eps);
  return (real)b.rho < ratio ? (real)b.rho : ratio;
}

template <class real> struct BlockReader {
  const BlockPartials<real> &b;
  int64_t C;
  mutable std::vector<real> sums;  // (bases,C) of the token
  PartialRows<real> operator()(int64_t t) const {
    PartialRows<real> x;
    x.n = b.count();
    sums.assign(b.bases * C, 0);
    real ss0 = 0;
    for (int d = 0; d < x.n; d++) {
      real *P = &sums[d * C];
      for (int i = 0; i < b.updates; i++)
        for (int64_t ch = 0; ch < C; ch++) P[ch] = exact::fma(b.coef[d * b.m + i], b.u[i][t * C + ch], P[ch]);
      const real ss = exact::lane_dot(P, P, C);
      ss0 = d == 0 ? ss : ss0;
      x.row[d] = P;
      x.detail[d] = d;
      x.c[d] = d == 0 ? (real)1 : rms_matching(ss0, ss, b, C);
      x.r[d] = 1 / exact::sqrt(((x.c[d] * x.c[d]) * ss) / (real)C + (real)b.key_eps);
    }
    return x;
  }
};
}  // namespace plain
template <class real> plain::BlockReader<real> reader(const BlockPartials<real> &b, int64_t C) { return {b, C, {}}; }
namespace plain {

// The block ends
template <class real>
void close_block(const StoredBlock<real> &to, const BlockPartials<real> &b, int64_t N, int64_t C) {
  const auto read = reader(b, C);
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> x = read(t);
    for (int d = 0; d < x.n; d++) {
      to.r[d][t] = x.r[d];
      to.c[d][t] = x.c[d];
      for (int64_t ch = 0; ch < C; ch++) to.row[d][t * C + ch] = d == 0 ? x.row[d][ch] : x.c[d] * x.row[d][ch];
    }
  }
}
// Its backward, in place: G_d = c_d*ds_d for the details
template <class real> void close_block_backward(real *const *G, const real *const *c, int bases, int64_t N, int64_t C) {
  for (int d = 1; d < bases; d++)
    for (int64_t n = 0; n < N * C; n++) G[d][n] = c[d][n / C] * G[d][n];
}

// Of update i of the block
template <class real> void block_update_backward(const UpdateGradient<real> &to, const real *const *G,
                                                 const BlockPartials<real> &b, int i, int64_t B, int64_t T, int64_t C) {
  for (int64_t t = 0; t < B * T; t++) {
    for (int64_t n = t * C; n < (t + 1) * C; n++) {
      real x = G[0][n];
      for (int d = 1; d < b.bases; d++) x = exact::fma(b.coef[d * b.m + i], G[d][n], x);
      to.du[n] = x;
    }
    if (to.learned) {
      real &sum = to.dcoef[t / T];
      sum = sum + exact::lane_dot(G[to.learned] + t * C, b.u[i] + t * C, C);
    }
  }
}

// A read of the open block, backward, and with it du of the last update it saw, which is complete then
template <class real> void block_read_backward(const UpdateGradient<real> &last, const ReadGradients<real> &to,
                                               const MixRead<real> &of, const BlockPartials<real> &b, int64_t B,
                                               int64_t T, int64_t C) {
  mix_phase2_backward(to, of, b, B, T, C);
  block_update_backward(last, to.G, b, b.updates - 1, B, T, C);
}

}  // namespace plain
