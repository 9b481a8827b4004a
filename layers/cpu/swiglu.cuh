// cpu/swiglu.cuh: ../swiglu.cuh with vectors along a row.
#pragma once
#include "../swiglu.cuh"
#include "simd.cuh"

namespace cpu {

inline void swiglu_forward(float *out, const float *gateup, int64_t N, int64_t H) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) {
      const float *gate = gateup + n * 2 * H, *up = gate + H;
      over(H, [&](auto get, auto put, int64_t i) {
        const vec x = get(gate + i);
        put(out + n * H + i, (x * sigmoid(x)) * get(up + i));
      });
    }
  });
}
inline void swiglu_backward(float *dgateup, float *out, const float *dout, const float *gateup, int64_t N, int64_t H) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) {
      const float *gate = gateup + n * 2 * H, *up = gate + H;
      float *dgate = dgateup + n * 2 * H, *dup = dgate + H;
      over(H, [&](auto get, auto put, int64_t i) {
        const vec x = get(gate + i), u = get(up + i), d = get(dout + n * H + i), S = sigmoid(x), A = x * S;
        put(dgate + i, (d * u) * fma(A, splat(1.f) - S, S));
        put(dup + i, d * A);
        put(out + n * H + i, A * u);
      });
    }
  });
}

}  // namespace cpu
