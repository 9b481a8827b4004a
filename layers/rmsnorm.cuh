// rmsnorm.cuh: RMSNorm with gain (Zhang and Sennrich 2019).
//   forward    r = 1/sqrt(lane(x.x)/C + eps);  xhat = x*r;  out = xhat*gain
//   backward   d = dout*gain;  k = lane(d.xhat)/C;  dinp = r*fma(-xhat, k, d)
//              dgain[c] = counter over b of (chain over t of fma(dout, xhat, .))
// Shapes: inp, out (N,C), rstd (N) = r, gain (C). rmsnorm_apply makes the output again from a saved rstd.
#pragma once
#include "sums.cuh"
#include <vector>

namespace plain {

template <class real>
void rmsnorm_apply(real *out, const real *inp, const real *rstd, const real *gain, int64_t N, int64_t C) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t c = 0; c < C; c++) out[n * C + c] = (inp[n * C + c] * rstd[n]) * gain[c];
}

template <class real>
void rmsnorm_forward(real *out, real *rstd, const real *inp, const real *gain, int64_t N, int64_t C, double eps) {
  for (int64_t n = 0; n < N; n++) {
    const real *x = inp + n * C;
    rstd[n] = 1 / exact::sqrt(exact::lane_dot(x, x, C) / (real)C + (real)eps);
  }
  rmsnorm_apply(out, inp, rstd, gain, N, C);
}

template <class real> void rmsnorm_backward(real *dinp, real *dgain, const real *dout, const real *inp,
                                            const real *rstd, const real *gain, int64_t B, int64_t T, int64_t C,
                                            const exact::Carry &carry) {
  std::vector<real> sums(B * C, 0), d(C), xhat(C);
  for (int64_t n = 0; n < B * T; n++) {
    real *sum = &sums[n / T * C];
    for (int64_t c = 0; c < C; c++) {
      xhat[c] = inp[n * C + c] * rstd[n];
      d[c] = dout[n * C + c] * gain[c];
      sum[c] = exact::fma(dout[n * C + c], xhat[c], sum[c]);
    }
    const real k = exact::lane_dot(d.data(), xhat.data(), C) / (real)C;
    for (int64_t c = 0; c < C; c++) dinp[n * C + c] = rstd[n] * exact::fma(-xhat[c], k, d[c]);
  }
  add_sequences(dgain, sums.data(), B, C, carry);
}

}  // namespace plain
