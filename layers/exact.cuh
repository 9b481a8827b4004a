// exact.cuh: the arithmetic that every build shares, so that every build has the same bits.
//
// Only IEEE +, -, *, /, sqrt and explicit fma, rounded to nearest, subnormals kept; a C library's exp or sin may differ
// in the last bit from machine to machine, so these are ours. Everything else (loops, tiles, vectors, threads) is
// written twice or more: once as plain:: and again as each fast form.
//
//   fma(a,b,c)      one rounding
//   exp_neg(x)      exp for x <= 0; float: +0 below -87 by definition; NaN stays NaN
//   exp, log        double for the host's tables; log also float (loss)
//   sigmoid(x)      E = exp_neg(-|x|);  x >= 0: 1/(1+E), else E/(1+E)
//   sin, cos        double, |x| up to 1e8
//   lane sums       32 lanes, lane i takes elements i, i+32, ... ascending from +0; then a butterfly 16, 8, 4, 2, 1
//   Counter         the binary counter over sequences: ((s0+s1)+(s2+s3))+..., leftovers from the smallest level up;
//                   counter_step(i, last) is its step where levels are arrays, Carry its continuation over passes
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined __CUDACC__
#define HD __host__ __device__
#else
#define HD
#endif

namespace exact {

constexpr int FLOAT_ORDER = 1;  // the version of every definition of bits in this program; stored in checkpoints
constexpr int LANES = 32;

HD inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HD inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
HD inline float sqrt(float x) { return __builtin_sqrtf(x); }
HD inline double sqrt(double x) { return __builtin_sqrt(x); }

template <class To, class From> HD inline To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast needs equal sizes");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

// ---- exp
// n = round(x / ln 2) falls out of the low bits of x/ln2 + 1.5*2^23; r = x - n ln2 in two steps; a polynomial of degree
// 6 (minimax on |r| <= ln2/2, 1.0 ulp); times 2^n, which is a normal number for x >= -87.
HD inline float exp_neg(float x) {
  const float t = fma(x, 0x1.715476p+0f, 12582912.f), n = t - 12582912.f;
  float r = fma(n, -0x1.62e400p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a23cep-10f;
  p = fma(p, r, 0x1.123a20p-7f);
  p = fma(p, r, 0x1.5558f2p-5f);
  p = fma(p, r, 0x1.555492p-3f);
  p = fma(p, r, 0x1.fffffcp-2f);
  p = fma(p, r, 1.f);
  p = fma(p, r, 1.f);
  return x < -87.f ? 0.f : p * bit_cast<float>((bit_cast<uint32_t>(t) + 127u) << 23);
}
// exp in double: the same reduction, Taylor to degree 13 (next term 4e-18 on |r| <= ln2/2); 2^n in two halves
HD inline double exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return HUGE_VAL;
  if (x < -745.2) return 0;
  const double n = fma(x, 0x1.71547652b82fep+0, 0x1.8p52) - 0x1.8p52;
  double r = fma(n, -0x1.62e42fefa39efp-1, x);
  r = fma(n, -0x1.abc9e3b39803fp-56, r);
  double p = 1. / 6227020800.;
  const double c[] = {1. / 479001600., 1. / 39916800., 1. / 3628800., 1. / 362880., 1. / 40320., 1. / 5040., 1. / 720.,
                      1. / 120.,       1. / 24.,       1. / 6.,       .5,           1.,          1.};
  for (double a : c) p = fma(p, r, a);
  const int64_t k = (int64_t)n, half = k / 2;
  return p * bit_cast<double>((half + 1023) << 52) * bit_cast<double>((k - half + 1023) << 52);
}
HD inline double exp_neg(double x) { return exp(x); }

// ---- log of x > 0: x = 2^e m, sqrt(1/2) <= m < sqrt(2), s = (m-1)/(m+1), log m = 2s + 2s (s^2/3 + s^4/5 + ...)
template <class real> HD inline real log_of_limit(real x) {  // of 0, infinity, and what has no logarithm
  if (x == 0) return (real)-HUGE_VAL;
  return x > 0 ? x : (real)NAN;
}
HD inline float log(float x) {
  if (!(x > 0) || x > 3.4e38f) return log_of_limit(x);
  int32_t e = 0;
  if (x < 0x1p-126f) {
    x = x * 0x1p23f;
    e = -23;
  }
  uint32_t bits = bit_cast<uint32_t>(x);
  e += (int32_t)(bits >> 23) - 127;
  float m = bit_cast<float>((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356f) {
    m = m * .5f;
    e++;
  }
  const float f = m - 1, s = f / (2 + f), z = s * s, n = (float)e;
  float p = 1.f / 9;
  p = fma(p, z, 1.f / 7);
  p = fma(p, z, .2f);
  p = fma(p, z, 1.f / 3);
  const float twice = 2 * s, low = fma(n, 0x1.7f7d1cp-20f, twice * (p * z));
  return fma(n, 0x1.62e400p-1f, twice + low);
}
HD inline double log(double x) {
  if (!(x > 0) || x > 1.7e308) return log_of_limit(x);
  int64_t e = 0;
  if (x < 0x1p-1022) {
    x = x * 0x1p52;
    e = -52;
  }
  uint64_t bits = bit_cast<uint64_t>(x);
  e += (int64_t)(bits >> 52) - 1023;
  double m = bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m = m * .5;
    e++;
  }
  const double f = m - 1, s = f / (2 + f), z = s * s, n = (double)e;
  double p = 1. / 25;
  for (int k = 23; k >= 3; k -= 2) p = fma(p, z, 1. / k);
  const double twice = 2 * s, low = fma(n, 0x1.abc9e3b39803fp-56, twice * (p * z));
  return fma(n, 0x1.62e42fefa39efp-1, twice + low);
}

template <class real> HD inline real sigmoid(real x) {
  const real E = exp_neg(x < 0 ? x : -x);
  return x >= 0 ? 1 / (1 + E) : E / (1 + E);
}

// ---- sin and cos in double: x - n pi/2 in three steps, then Taylor on |r| <= pi/4 (next terms 8e-20 and 2e-18)
HD inline double sine_of_quarter(double r) {
  const double z = r * r;
  double p = 1. / 355687428096000.;
  const double c[] = {-1. / 1307674368000., 1. / 6227020800., -1. / 39916800., 1. / 362880.,
                      -1. / 5040.,          1. / 120.,        -1. / 6.};
  for (double a : c) p = fma(p, z, a);
  return fma(r * z, p, r);
}
HD inline double cosine_of_quarter(double r) {
  const double z = r * r;
  double p = 1. / 20922789888000.;
  const double c[] = {-1. / 87178291200., 1. / 479001600., -1. / 3628800., 1. / 40320., -1. / 720., 1. / 24., -.5, 1.};
  for (double a : c) p = fma(p, z, a);
  return p;
}
HD inline double sin_quadrant(double x, int64_t shift) {  // sin(x + shift pi/2)
  const double n = fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52) - 0x1.8p52;
  double r = fma(n, -0x1.921fb54442d18p+0, x);
  r = fma(n, -0x1.1a62633145c07p-54, r);
  r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
  const int64_t q = ((int64_t)n + shift) & 3;
  const double y = q & 1 ? cosine_of_quarter(r) : sine_of_quarter(r);
  return q & 2 ? -y : y;
}
HD inline double sin(double x) { return sin_quadrant(x, 0); }
HD inline double cos(double x) { return sin_quadrant(x, 1); }

// ---- lane sums
template <class real> HD inline real butterfly(real *lane) {
  for (int step = LANES / 2; step > 0; step /= 2)
    for (int i = 0; i < step; i++) lane[i] = lane[i] + lane[i + step];
  return lane[0];
}
template <class real> HD inline real lane_dot(const real *a, const real *b, int64_t n) {
  real lane[LANES] = {};
  for (int64_t i = 0; i < n; i++) lane[i % LANES] = fma(a[i], b[i], lane[i % LANES]);
  return butterfly(lane);
}
template <class real> HD inline real lane_sum(const real *a, int64_t n) {
  real lane[LANES] = {};
  for (int64_t i = 0; i < n; i++) lane[i % LANES] = lane[i % LANES] + a[i];
  return butterfly(lane);
}

// ---- the counter over sequences
// push(s_0), push(s_1), ... ; then finish(). Level l, where set, holds the sum of 2^l neighbours.
template <class real> struct Counter {
  real level[40] = {};
  uint64_t n = 0;
  HD void push(real sum) {
    int l = 0;
    for (; n >> l & 1; l++) sum = level[l] + sum;
    level[l] = sum;
    n++;
  }
  HD real finish() const {
    real sum = 0;
    bool first = true;
    for (int l = 0; n >> l; l++)
      if (n >> l & 1) {
        sum = first ? level[l] : level[l] + sum;
        first = false;
      }
    return sum;
  }
};

// The same counter where a level is a whole array: what happens to item i = 0, 1, 2, ... The levels listed are added to
// it, in this order, level + sum; then it becomes level `to`, or, if it is the last item, the result.
struct CounterStep {
  static constexpr int RESULT = -1;
  int adds = 0, to = RESULT;
  int level[40] = {};
};
HD inline CounterStep counter_step(int64_t item, bool last) {
  CounterStep step;
  for (int l = 0; item >> l; l++) {
    if (item >> l & 1)
      step.level[step.adds++] = l;
    else if (!last)
      break;
  }
  if (!last) step.to = step.adds;  // levels 0 .. adds-1 were set, this one was not
  return step;
}
// Levels that the counter of `items` needs besides the result
HD inline int counter_levels(int64_t items) {
  int levels = 0;
  for (int64_t last = items - 1; last > 0; last >>= 1) levels++;
  return levels;
}

// The counter continued over the passes of a step (--micro-batch): all but the last pass hold the same power of two of
// sequences, so each pass is one item of a counter of its own, whose levels are whole gradient buffers. A gradient
// function adds `adds` earlier levels to the sum of its pass, in order: out[i] = out[offset+i] + sum.
struct Carry {
  int adds = 0;
  int64_t offset[40] = {};  // from `out` to the level, in elements: grads and levels are one allocation
};
template <class real> HD inline real carried(const real *out, int64_t i, real sum, const Carry &carry) {
  for (int s = 0; s < carry.adds; s++) sum = out[carry.offset[s] + i] + sum;
  return sum;
}

}  // namespace exact
