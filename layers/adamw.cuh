// adamw.cuh: the global gradient norm and AdamW (Loshchilov and Hutter 2019) with clipping folded in.
//   norm      sqrt of the sum over tensors, in table order, of sum_of_squares: chunks of NORM_CHUNK elements; in a
//             chunk 32 lanes of fma(double g, double g, .) and the butterfly; chunks added ascending. All in double.
//   update    G = scale*g;  m = fma(b1, m, (1-b1)*G);  v = fma(b2, v, (1-b2)*(G*G))
//             u = (m/c1) / (sqrt(v/c2) + eps);  p = fma(-lr, fma(decay, p, u), p)
//   scale = min(1, clip/norm), c1 = 1 - b1^t, c2 = 1 - b2^t are formed in double and rounded once.
#pragma once
#include "exact.cuh"

struct AdamW {
  double lr, beta1, beta2, eps, decay, correction1, correction2, scale;
};

constexpr int64_t NORM_CHUNK = 65536;  // part of the float order: the norm's bits depend on it

namespace plain {

template <class real> double chunk_of_squares(const real *g, int64_t n) {
  double lane[exact::LANES] = {};
  for (int64_t i = 0; i < n; i++)
    lane[i % exact::LANES] = exact::fma((double)g[i], (double)g[i], lane[i % exact::LANES]);
  return exact::butterfly(lane);
}

template <class real> double sum_of_squares(const real *g, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += NORM_CHUNK)
    sum = sum + chunk_of_squares(g + i, n - i < NORM_CHUNK ? n - i : NORM_CHUNK);
  return sum;
}

template <class real> void adamw_update(real *p, const real *g, real *m, real *v, int64_t n, const AdamW &h) {
  const real lr = (real)h.lr, b1 = (real)h.beta1, b2 = (real)h.beta2, eps = (real)h.eps, decay = (real)h.decay;
  const real rest1 = (real)(1 - h.beta1), rest2 = (real)(1 - h.beta2);
  const real c1 = (real)h.correction1, c2 = (real)h.correction2, scale = (real)h.scale;
  for (int64_t i = 0; i < n; i++) {
    const real G = scale * g[i];
    m[i] = exact::fma(b1, m[i], rest1 * G);
    v[i] = exact::fma(b2, v[i], rest2 * (G * G));
    const real u = (m[i] / c1) / (exact::sqrt(v[i] / c2) + eps);
    p[i] = exact::fma(-lr, exact::fma(decay, p[i], u), p[i]);
  }
}

}  // namespace plain
