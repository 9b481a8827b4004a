// cpu/oct.cuh: eight floats, whatever VL is: the 8 reads of a group of the depth mixer, or 8 of its tokens. The
// operations are those of simd.cuh at width 8; eight lane sums end together in one transposing reduction.
#pragma once
#include "simd.cuh"

namespace cpu {

typedef Floats<8>::vec oct;
typedef Floats<8>::loose loose_oct;
typedef Floats<8>::uvec uoct;
INLINE oct load8(const float *p) { return (oct) * (const loose_oct *)p; }
INLINE void store8(float *p, oct x) { *(loose_oct *)p = (loose_oct)x; }
INLINE oct all8(float x) { return Ops<8>::splat(x); }
INLINE oct larger8(oct a, oct b) { return a > b ? a : b; }
INLINE oct fma8(oct a, oct b, oct c) { return Ops<8>::fma(a, b, c); }
INLINE oct sqrt8(oct a) { return Ops<8>::sqrt(a); }
INLINE oct exp8(oct x) { return exp_lanes<8>(x); }

// ---- lane sums
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
INLINE oct reduce8(const oct *v) {  // lane k = butterfly 4, 2, 1 of v[k]
  oct x[4], y[2];
  UNROLL for (int k = 0; k < 4; k++) x[k] =
      MIX(v[k], v[k + 4], 0, 1, 2, 3, 8, 9, 10, 11) + MIX(v[k], v[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  UNROLL for (int k = 0; k < 2; k++) y[k] =
      MIX(x[2 * k], x[2 * k + 1], 0, 1, 8, 9, 4, 5, 12, 13) + MIX(x[2 * k], x[2 * k + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  return MIX(y[0], y[1], 0, 2, 8, 10, 4, 6, 12, 14) + MIX(y[0], y[1], 1, 3, 9, 11, 5, 7, 13, 15);
}
#undef MIX
template <class Vector> INLINE oct fold(const Vector *a) {  // butterfly 8: 16 lanes to 8
  if constexpr (sizeof(Vector) == sizeof(oct)) {
    return (oct)(a[0] + a[1]);
  } else {
    alignas(64) float x[16];
    for (int u = 0; u < LV / 2; u++) store(x + u * VL, a[u]);
    return load8(x) + load8(x + 8);
  }
}
INLINE oct fold(Lanes lanes) {  // butterfly 16, 8
  UNROLL for (int u = 0; u < LV / 2; u++) lanes.x[u] = lanes.x[u] + lanes.x[u + LV / 2];
  return fold(lanes.x);
}

}  // namespace cpu
