// attention.cuh: causal multi-head attention (Vaswani et al. 2017). For one head and query i, over the keys j <= i:
//   forward    s_ij = scale * chain_d(q_id, k_jd)   m_i = max_j s_ij + 0 (never -0)     e_ij = exp_neg(s_ij - m_i)
//              n_i = 1 / lanes_j(e_ij)              p_ij = e_ij * n_i                   o_id = chain_j(p_ij, v_jd)
//   backward   r_i = lane(do_i.o_i)                 dp_ij = chain_d(do_id, v_jd)
//              g_ij = (p_ij * (dp_ij - r_i)) * scale
//              dq_id = chain_j(g_ij, k_jd)    dk_jd = chain_{i >= j}(g_ij, q_id)    dv_jd = chain_{i >= j}(p_ij, do_id)
// chain: from +0, index ascending. A masked pair (j > i) enters no chain: adding it as zero would turn a -0 into +0.
// Kept for backward: m and n; s, e, p are made again, to the same bits.
// Shapes: qkv (B,T,3*NH*HS) after rope, out (B,T,NH*HS), m and n (B,NH,T); scale = 1/sqrt(HS).
// attention_decode is query t of one sequence against a cache of k and v (T,NH*HS each): row t of the forward.
#pragma once
#include "exact.cuh"
#include <vector>

namespace plain {

template <class real> struct Head {  // rows ld apart
  const real *q, *k, *v;
  int64_t ld, HS;
  real score(int64_t i, int64_t j) const {
    real acc = 0;
    for (int64_t d = 0; d < HS; d++) acc = exact::fma(q[i * ld + d], k[j * ld + d], acc);
    return (1 / exact::sqrt((real)HS)) * acc;
  }
};

// One row of the forward: p[0..keys-1] is scratch and ends as the probabilities
template <class real>
void attention_row(real *out, real *m, real *n, real *p, const real *v, int64_t ldv, int64_t keys, int64_t HS) {
  real largest = p[0];
  for (int64_t j = 1; j < keys; j++) largest = p[j] > largest ? p[j] : largest;
  *m = largest + (real)0;
  for (int64_t j = 0; j < keys; j++) p[j] = exact::exp_neg(p[j] - *m);
  *n = 1 / exact::lane_sum(p, keys);
  for (int64_t j = 0; j < keys; j++) p[j] = p[j] * *n;
  for (int64_t d = 0; d < HS; d++) {
    real acc = 0;
    for (int64_t j = 0; j < keys; j++) acc = exact::fma(p[j], v[j * ldv + d], acc);
    out[d] = acc;
  }
}

template <class real>
void attention_forward(real *out, real *m, real *n, const real *qkv, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  const int64_t C = NH * HS;
  std::vector<real> p(T);
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < NH; h++) {
      const real *q = qkv + b * T * 3 * C + h * HS;
      const Head<real> head{q, q + C, q + 2 * C, 3 * C, HS};
      for (int64_t i = 0; i < T; i++) {
        const int64_t row = (b * NH + h) * T + i;
        for (int64_t j = 0; j <= i; j++) p[j] = head.score(i, j);
        attention_row(out + (b * T + i) * C + h * HS, m + row, n + row, p.data(), head.v, head.ld, i + 1, HS);
      }
    }
}

template <class real> void attention_backward(real *dqkv, const real *dout, const real *out, const real *m,
                                              const real *n, const real *qkv, int64_t B, int64_t T, int64_t NH,
                                              int64_t HS) {
  const int64_t C = NH * HS, ld = 3 * C;
  for (int64_t i = 0; i < B * T * ld; i++) dqkv[i] = 0;
  for (int64_t b = 0; b < B; b++)
    for (int64_t h = 0; h < NH; h++) {
      const real *q = qkv + b * T * ld + h * HS;
      const Head<real> head{q, q + C, q + 2 * C, ld, HS};
      real *dq = dqkv + b * T * ld + h * HS, *dk = dq + C, *dv = dk + C;
      for (int64_t i = 0; i < T; i++) {
        const int64_t row = (b * NH + h) * T + i, at = (b * T + i) * C + h * HS;
        const real *dO = dout + at, r = exact::lane_dot(dO, out + at, HS);
        for (int64_t j = 0; j <= i; j++) {
          const real p = exact::exp_neg(head.score(i, j) - m[row]) * n[row];
          real dp = 0;
          for (int64_t d = 0; d < HS; d++) dp = exact::fma(dO[d], head.v[j * ld + d], dp);
          const real g = (p * (dp - r)) * (1 / exact::sqrt((real)HS));
          for (int64_t d = 0; d < HS; d++) {
            dq[i * ld + d] = exact::fma(g, head.k[j * ld + d], dq[i * ld + d]);
            dk[j * ld + d] = exact::fma(g, head.q[i * ld + d], dk[j * ld + d]);
            dv[j * ld + d] = exact::fma(p, dO[d], dv[j * ld + d]);
          }
        }
      }
    }
}

template <class real> void attention_decode(real *out, const real *q, const real *k_cache, const real *v_cache,
                                            int64_t t, int64_t NH, int64_t HS) {
  std::vector<real> p(t + 1);
  real m, n;
  for (int64_t h = 0; h < NH; h++) {
    const Head<real> head{q + h * HS, k_cache + h * HS, v_cache + h * HS, NH * HS, HS};
    for (int64_t j = 0; j <= t; j++) p[j] = head.score(0, j);
    attention_row(out + h * HS, &m, &n, p.data(), head.v, head.ld, t + 1, HS);
  }
}

}  // namespace plain
