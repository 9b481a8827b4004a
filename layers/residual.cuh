// residual.cuh: how the stream methods write a sublayer's update u into the stream x
// (PreNorm: Xiong et al. 2020; ReZero: Bachlechner et al. 2020; LayerScale: Touvron et al. 2021, CaiT).
//   prenorm      x' = x + u                 du = dx'
//   rezero       x' = fma(a, u, x)          du = a*dx'      da = counter over b of (sum over t of lane(dx'.u))
//   layerscale   x' = fma(l[c], u, x)       du = l[c]*dx'   dl[c] = counter over b of (chain over t of fma(dx', u, .))
//   In each, dx = dx' + dh, where dh comes back from the read (one addition).
// Shapes: x, u (N,C), a (1), l (C).
#pragma once
#include "sums.cuh"
#include <vector>

namespace plain {

template <class real> void residual_forward(real *out, const real *x, const real *u, int64_t n) {  // also dx = dx' + dh
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + u[i];
}

template <class real>
void rezero_forward(real *out, const real *x, const real *u, const real *a, int64_t N, int64_t C) {
  for (int64_t i = 0; i < N * C; i++) out[i] = exact::fma(a[0], u[i], x[i]);
}

template <class real> void rezero_backward(real *du, real *da, const real *dx, const real *u, const real *a, int64_t B,
                                           int64_t T, int64_t C, const exact::Carry &carry) {
  std::vector<real> sums(B, 0);
  for (int64_t n = 0; n < B * T; n++) sums[n / T] = sums[n / T] + exact::lane_dot(dx + n * C, u + n * C, C);
  for (int64_t i = 0; i < B * T * C; i++) du[i] = a[0] * dx[i];
  add_sequences(da, sums.data(), B, 1, carry);
}

template <class real>
void layerscale_forward(real *out, const real *x, const real *u, const real *l, int64_t N, int64_t C) {
  for (int64_t i = 0; i < N * C; i++) out[i] = exact::fma(l[i % C], u[i], x[i]);
}

template <class real> void layerscale_backward(real *du, real *dl, const real *dx, const real *u, const real *l,
                                               int64_t B, int64_t T, int64_t C, const exact::Carry &carry) {
  std::vector<real> sums(B * C, 0);
  for (int64_t n = 0; n < B * T; n++)
    for (int64_t c = 0; c < C; c++) {
      real &sum = sums[n / T * C + c];
      sum = exact::fma(dx[n * C + c], u[n * C + c], sum);
      du[n * C + c] = l[c] * dx[n * C + c];
    }
  add_sequences(dl, sums.data(), B, C, carry);
}

}  // namespace plain
