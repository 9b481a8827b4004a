// wav_router.cuh: blocks of updates and their details: WAV v1 (arXiv 2606.06564 v1: phase, split), HAARES (v2: split),
// and the ablations random, duplicate, learned. On attnres.cuh: a block's sum and its details are sources of the mixer.
//
// For the updates u_0.. of a block (position k in the block, m its planned length) and the details d = 1..D:
//   P_0 = sum u_k       P_d = chain from +0 of fma(coef_dk, u_k, .)      ss_d = lane(P_d.P_d)
//   c_0 = 1             c_d = min(rho, sqrt(ss_0/C) / (sqrt(ss_d/C) + wav_eps))       no gradient flows through c
//   r_d = 1/sqrt(((c_d*c_d)*ss_d)/C + key_eps)
// coef: phase +1 attention, -1 MLP; split +1 in the first half, -1 after; random a fixed shuffle of the split signs;
// duplicate 1; learned trainable. A read of the open block merges P_d with scale c_d as it stands; a closing block
// stores the rows c_d*P_d with their r and c. Details add the read's beta to their score.
// Backward, with G_d the running gradients of the sums (they start as the stored rows' ds, G_d times the block's c_d):
//   du_k = G_0, then fma(coef_dk, G_d, .), d ascending, when the reads behind update k are done;  dcoef_dk = sum over t
//              of lane(G_d.u_k)
#pragma once
#include "attnres.cuh"

template <class real> struct BlockPartials {
  static constexpr bool details = true;
  int updates;           // so far
  const real *const *u;  // (N,C) each
  int bases;             // 1 + D
  const real *coef;      // (bases, m); coef[0][.] = 1
  int64_t m;
  double rho, wav_eps, key_eps;
  int count() const { return updates ? bases : 0; }
};

namespace plain {

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
      for (int k = 0; k < b.updates; k++)
        for (int64_t c = 0; c < C; c++) P[c] = exact::fma(b.coef[d * b.m + k], b.u[k][t * C + c], P[c]);
      const real ss = exact::lane_dot(P, P, C);
      ss0 = d == 0 ? ss : ss0;
      const real ratio = exact::sqrt(ss0 / (real)C) / (exact::sqrt(ss / (real)C) + (real)b.wav_eps);
      x.row[d] = P;
      x.detail[d] = d;
      x.c[d] = d == 0 ? (real)1 : (real)b.rho < ratio ? (real)b.rho : ratio;
      x.r[d] = 1 / exact::sqrt(((x.c[d] * x.c[d]) * ss) / (real)C + (real)b.key_eps);
    }
    return x;
  }
};
}  // namespace plain
template <class real> plain::BlockReader<real> reader(const BlockPartials<real> &b, int64_t C) { return {b, C, {}}; }
namespace plain {

// The block ends: row d (N,C) = c_d*P_d, with r and c (N) of each; rows 1.. only where there are details
template <class real> void close_block(real *const *rows, real *const *r, real *const *c, const BlockPartials<real> &b,
                                       int64_t N, int64_t C) {
  const auto read = reader(b, C);
  for (int64_t t = 0; t < N; t++) {
    const PartialRows<real> x = read(t);
    for (int d = 0; d < x.n; d++) {
      r[d][t] = x.r[d];
      c[d][t] = x.c[d];
      for (int64_t i = 0; i < C; i++) rows[d][t * C + i] = d == 0 ? x.row[d][i] : x.c[d] * x.row[d][i];
    }
  }
}
// Its backward, in place: G_d = c_d*ds_d for the details
template <class real> void close_block_backward(real *const *G, const real *const *c, int bases, int64_t N, int64_t C) {
  for (int d = 1; d < bases; d++)
    for (int64_t i = 0; i < N * C; i++) G[d][i] = c[d][i / C] * G[d][i];
}

// du of update k of the block. dcoef (B), of the detail `learned` (0: none), is the per-sequence sum
template <class real> void block_update_backward(real *du, real *dcoef, int learned, const real *const *G,
                                                 const BlockPartials<real> &b, int k, int64_t B, int64_t T, int64_t C) {
  for (int64_t t = 0; t < B * T; t++) {
    for (int64_t i = t * C; i < (t + 1) * C; i++) {
      real x = G[0][i];
      for (int d = 1; d < b.bases; d++) x = exact::fma(b.coef[d * b.m + k], G[d][i], x);
      du[i] = x;
    }
    if (learned) dcoef[t / T] = dcoef[t / T] + exact::lane_dot(G[learned] + t * C, b.u[k] + t * C, C);
  }
}

// A read of the open block, backward, and with it du of the last update it saw, which is complete then
template <class real> void block_read_backward(real *du, real *dcoef, int learned, real *const *G, real *dw, real *db,
                                               const real *h, const real *saved, const MixGroup<real> &g, int k,
                                               const BlockPartials<real> &b, int64_t B, int64_t T, int64_t C) {
  mix_phase2_backward(G, dw, db, h, saved, g, k, b, B, T, C);
  block_update_backward(du, dcoef, learned, G, b, b.updates - 1, B, T, C);
}

}  // namespace plain
