// cpu/residual.cuh: ../residual.cuh with vectors along a row.
#pragma once
#include "../residual.cuh"
#include "sums.cuh"

namespace cpu {

inline void residual_forward(float *out, const float *x, const float *u, int64_t n) {
  parallel_rows(n, ELEMENTS, [&](int64_t from, int64_t to) {
    over(to - from, [&](auto get, auto put, int64_t i) { put(out + from + i, get(x + from + i) + get(u + from + i)); });
  });
}
inline void rezero_forward(float *out, const float *x, const float *u, const float *a, int64_t N, int64_t C) {
  parallel_rows(N * C, ELEMENTS, [&](int64_t from, int64_t to) {
    over(to - from, [&](auto get, auto put, int64_t i) {
      put(out + from + i, fma(splat(a[0]), get(u + from + i), get(x + from + i)));
    });
  });
}
inline void rezero_backward(float *du, float *da, const float *dx, const float *u, const float *a, int64_t B, int64_t T,
                            int64_t C, const exact::Carry &carry) {
  std::vector<float> sums(B, 0.f);
  parallel(B, [&](int64_t b) {
    float sum = 0;
    for (int64_t n = b * T; n < (b + 1) * T; n++) {
      sum = sum + lane_dot(dx + n * C, u + n * C, C);
      over(C, [&](auto get, auto put, int64_t c) { put(du + n * C + c, splat(a[0]) * get(dx + n * C + c)); });
    }
    sums[b] = sum;
  });
  add_sequences(da, sums.data(), B, 1, carry);
}
inline void layerscale_forward(float *out, const float *x, const float *u, const float *l, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++)
      over(C, [&](auto get, auto put, int64_t c) {
        put(out + n * C + c, fma(get(l + c), get(u + n * C + c), get(x + n * C + c)));
      });
  });
}
inline void layerscale_backward(float *du, float *dl, const float *dx, const float *u, const float *l, int64_t B,
                                int64_t T, int64_t C, const exact::Carry &carry) {
  std::vector<float> sums(B * C, 0.f);
  parallel(B, [&](int64_t b) {
    float *sum = &sums[b * C];
    for (int64_t n = b * T; n < (b + 1) * T; n++)
      over(C, [&](auto get, auto put, int64_t c) {
        const vec d = get(dx + n * C + c);
        put(sum + c, fma(d, get(u + n * C + c), get(sum + c)));
        put(du + n * C + c, get(l + c) * d);
      });
  });
  add_sequences(dl, sums.data(), B, C, carry);
}

}  // namespace cpu
