// rope.cuh: rotary position embedding (Su et al. 2021) on the pairs (i, i + HS/2) of every head of q and k, base 10000.
//   angle(t,i) = t * 10000^(-2i/HS), in double with our own exp, log, sin, cos; the table holds the rounded cos and sin
//   forward    a' = fma(a, cos, -(b*sin));   b' = fma(a, sin, b*cos)
//   backward   da = fma(da', cos, db'*sin);  db = fma(db', cos, -(da'*sin))      (the rotation by -angle)
// Shapes: qkv (B,T,3*NH*HS) in place (q, k, v; v stays), table (T,HS/2,2).
#pragma once
#include "exact.cuh"

namespace plain {

template <class real> void rope_table(real *table, int64_t T, int64_t HS) {
  for (int64_t t = 0; t < T; t++)
    for (int64_t i = 0; i < HS / 2; i++) {
      const double angle = (double)t * exact::exp(-2. * (double)i / (double)HS * exact::log(10000.));
      table[(t * (HS / 2) + i) * 2] = (real)exact::cos(angle);
      table[(t * (HS / 2) + i) * 2 + 1] = (real)exact::sin(angle);
    }
}

template <class real> void rope_forward(real *qkv, const real *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  for (int64_t n = 0; n < B * T; n++)
    for (int64_t h = 0; h < 2 * NH; h++)  // the heads of q, then of k
      for (int64_t i = 0; i < HS / 2; i++) {
        const real cos = table[(n % T * (HS / 2) + i) * 2], sin = table[(n % T * (HS / 2) + i) * 2 + 1];
        real *p = qkv + n * 3 * NH * HS + h * HS + i;
        const real a = p[0], b = p[HS / 2];
        p[0] = exact::fma(a, cos, -(b * sin));
        p[HS / 2] = exact::fma(a, sin, b * cos);
      }
}

template <class real> void rope_backward(real *dqkv, const real *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  for (int64_t n = 0; n < B * T; n++)
    for (int64_t h = 0; h < 2 * NH; h++)
      for (int64_t i = 0; i < HS / 2; i++) {
        const real cos = table[(n % T * (HS / 2) + i) * 2], sin = table[(n % T * (HS / 2) + i) * 2 + 1];
        real *p = dqkv + n * 3 * NH * HS + h * HS + i;
        const real a = p[0], b = p[HS / 2];
        p[0] = exact::fma(a, cos, b * sin);
        p[HS / 2] = exact::fma(b, cos, -(a * sin));
      }
}

}  // namespace plain
