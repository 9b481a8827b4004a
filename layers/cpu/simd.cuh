// simd.cuh: VL floats at a time, from one source. AVX-512 (VL 16), AVX2 (8), NEON (4), or whatever the compiler makes
// of a vector of floats. Only exact operations; a vector op is VL scalar ops of exact.cuh, so bits do not depend on VL.
// -DSIMD_WIDTH=16 gives the 16-wide code (tiles, lanes, tails of the AVX-512 build) on machines without AVX-512.
#pragma once
#include "../exact.cuh"
#include "team.cuh"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#if defined __AVX2__ || defined __AVX512F__
#include <immintrin.h>
#elif defined __ARM_NEON
#include <arm_neon.h>
#endif

namespace cpu {

#if defined SIMD_WIDTH
constexpr int VL = SIMD_WIDTH;
#elif defined __AVX512F__
constexpr int VL = 16;
#elif defined __AVX2__
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif

// Vectors of W floats; in memory they may lie anywhere (loose)
template <int W> struct Floats {
  typedef float vec __attribute__((vector_size(4 * W)));
  typedef float loose __attribute__((vector_size(4 * W), aligned(4), may_alias));
  typedef unsigned uvec __attribute__((vector_size(4 * W), may_alias));
};
typedef Floats<VL>::vec vec;
typedef Floats<VL>::loose loose;
typedef int ivec __attribute__((vector_size(4 * VL), may_alias));

constexpr int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

#define INLINE inline __attribute__((always_inline))
// Register tiles stay functions of their own: inlined, GCC spills in their loops
#define NOINLINE __attribute__((noinline))
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec x) { *(loose *)p = x; }
// The first n < VL floats; the rest reads as 0 and is not written
INLINE vec load_part(const float *p, int64_t n) {
  vec x = {};
  for (int64_t i = 0; i < n; i++) x[i] = p[i];
  return x;
}
INLINE void store_part(float *p, vec x, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = x[i];
}
// body(load, store, i) over whole vectors of 0..n-1, then once over what is left
template <class F> INLINE void over(int64_t n, F body) {
  int64_t i = 0;
  for (; i + VL <= n; i += VL) body([](const float *p) { return load(p); }, [](float *p, vec x) { store(p, x); }, i);
  const int64_t rest = n - i;
  if (rest)
    body([=](const float *p) { return load_part(p, rest); }, [=](float *p, vec x) { store_part(p, x, rest); }, i);
}

#if defined __AVX512F__
constexpr const char *SIMD = VL == 16 ? "AVX-512" : "AVX-512 machine, other width";
#elif defined __AVX2__
constexpr const char *SIMD = VL == 8 ? "AVX2" : "16-wide on AVX2";
#elif defined __ARM_NEON
constexpr const char *SIMD = "NEON";
#else
constexpr const char *SIMD = "generic";
#endif

template <int W> struct Ops {  // any width: the compiler splits it
  typedef typename Floats<W>::vec vec;
  static INLINE vec splat(float x) {
    vec y;
    for (int i = 0; i < W; i++) y[i] = x;
    return y;
  }
  static INLINE vec fma(vec a, vec b, vec c) {
    for (int i = 0; i < W; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
  }
  static INLINE vec sqrt(vec a) {
    for (int i = 0; i < W; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
  }
};
#if defined __AVX512F__
template <> struct Ops<16> {
  typedef Floats<16>::vec vec;
  static INLINE vec splat(float x) { return (vec)_mm512_set1_ps(x); }
  static INLINE vec fma(vec a, vec b, vec c) { return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
  static INLINE vec sqrt(vec a) { return (vec)_mm512_sqrt_ps((__m512)a); }
};
#endif
#if defined __AVX2__
template <> struct Ops<8> {
  typedef Floats<8>::vec vec;
  static INLINE vec splat(float x) { return (vec)_mm256_set1_ps(x); }
  static INLINE vec fma(vec a, vec b, vec c) { return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
  static INLINE vec sqrt(vec a) { return (vec)_mm256_sqrt_ps((__m256)a); }
};
#elif defined __ARM_NEON && defined __aarch64__
template <> struct Ops<4> {
  typedef Floats<4>::vec vec;
  static INLINE vec splat(float x) { return (vec)vdupq_n_f32(x); }
  static INLINE vec fma(vec a, vec b, vec c) { return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
  static INLINE vec sqrt(vec a) { return (vec)vsqrtq_f32((float32x4_t)a); }
};
#endif
INLINE vec splat(float x) { return Ops<VL>::splat(x); }
INLINE vec fma(vec a, vec b, vec c) { return Ops<VL>::fma(a, b, c); }
// Loaded once: without it GCC makes a memory operand of every use, and the load ports are the limit
INLINE vec in_register(vec x) {
#if defined __AVX512F__
  asm("" : "+v"(x));
#elif defined __AVX2__
  if constexpr (VL == 8) asm("" : "+x"(x));
#endif
  return x;
}
INLINE vec larger(vec a, vec b) { return a > b ? a : b; }

// exact::exp_neg, lane by lane, at any width
template <int W> INLINE typename Floats<W>::vec exp_lanes(typename Floats<W>::vec x) {
  typedef Ops<W> V;
  typedef typename Floats<W>::vec vec;
  typedef typename Floats<W>::uvec uvec;
  const vec magic = V::splat(12582912.f);
  const vec t = V::fma(x, V::splat(0x1.715476p+0f), magic), n = t - magic;
  vec r = V::fma(n, V::splat(-0x1.62e400p-1f), x);
  r = V::fma(n, V::splat(-0x1.7f7d1cp-20f), r);
  vec p = V::splat(0x1.6a23cep-10f);
  p = V::fma(p, r, V::splat(0x1.123a20p-7f));
  p = V::fma(p, r, V::splat(0x1.5558f2p-5f));
  p = V::fma(p, r, V::splat(0x1.555492p-3f));
  p = V::fma(p, r, V::splat(0x1.fffffcp-2f));
  p = V::fma(p, r, V::splat(1.f));
  p = V::fma(p, r, V::splat(1.f));
  return x < V::splat(-87.f) ? V::splat(0.f) : p * (vec)(((uvec)t + 127u) << 23);
}
INLINE vec exp_neg(vec x) { return exp_lanes<VL>(x); }
INLINE vec sigmoid(vec x) {
  const vec one = splat(1.f), E = exp_neg(x < splat(0.f) ? x : -x), d = one + E;
  return (x >= splat(0.f) ? one : E) / d;
}

// ---- lane sums: 32 lanes are LV vectors; the first butterfly steps add whole vectors
constexpr int LV = 32 / VL;
struct Lanes {
  vec x[LV];
  INLINE Lanes() {
    for (vec &v : x) v = splat(0.f);
  }
  INLINE float sum() {  // butterfly 16, 8, 4, 2, 1
    UNROLL for (int step = LV / 2; step > 0; step /= 2) UNROLL for (int u = 0; u < LV; u++) if (u < step) x[u] =
        x[u] + x[u + step];
    alignas(64) float y[VL];
    store(y, x[0]);
    UNROLL for (int step = VL / 2; step > 0; step /= 2) UNROLL for (int i = 0; i < VL; i++) if (i < step) y[i] =
        y[i] + y[i + step];
    return y[0];
  }
};
// The last n % 32 elements, one by one: an absent element must not touch its lane (a lane may be -0)
template <class F> INLINE void lane_tail(Lanes &lanes, int64_t from, int64_t n, F f) {
  if (from == n) return;
  alignas(64) float lane[32];
  for (int u = 0; u < LV; u++) store(lane + u * VL, lanes.x[u]);
  for (int64_t i = from; i < n; i++) lane[i - from] = f(lane[i - from], i);
  for (int u = 0; u < LV; u++) lanes.x[u] = load(lane + u * VL);
}
INLINE Lanes dot_lanes(const float *a, const float *b, int64_t n) {
  Lanes lanes;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    UNROLL for (int u = 0; u < LV; u++) lanes.x[u] = fma(load(a + i + u * VL), load(b + i + u * VL), lanes.x[u]);
  lane_tail(lanes, i, n, [&](float x, int64_t j) { return exact::fma(a[j], b[j], x); });
  return lanes;
}
INLINE float lane_dot(const float *a, const float *b, int64_t n) { return dot_lanes(a, b, n).sum(); }

// Scratch of one thread and one purpose; grows, and is kept. 64 bytes past the end may be read.
template <int PURPOSE> float *scratch(int64_t floats) {
  static thread_local std::unique_ptr<float, void (*)(void *)> p{nullptr, free};
  static thread_local int64_t size = 0;
  if (floats > size) {
    size = (floats + 1023 + 16) / 1024 * 1024;
    p.reset((float *)aligned_alloc(4096, (size_t)(size * 4 + 4095) / 4096 * 4096));
    if (!p) abort();
  }
  return p.get();
}

}  // namespace cpu
