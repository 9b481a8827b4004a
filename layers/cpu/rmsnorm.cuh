// cpu/rmsnorm.cuh: ../rmsnorm.cuh with vectors along a row; backward walks each sequence once, dx and dgain together.
#pragma once
#include "../rmsnorm.cuh"
#include "sums.cuh"

namespace cpu {

INLINE void rmsnorm_row(float *out, const float *x, float r, const float *gain, int64_t C) {
  over(C, [&](auto get, auto put, int64_t c) { put(out + c, (get(x + c) * splat(r)) * get(gain + c)); });
}
inline void rmsnorm_apply(float *out, const float *inp, const float *rstd, const float *gain, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) rmsnorm_row(out + n * C, inp + n * C, rstd[n], gain, C);
  });
}
inline void rmsnorm_forward(float *out, float *rstd, const float *inp, const float *gain, int64_t N, int64_t C,
                            double eps) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) {
      const float *x = inp + n * C;
      rstd[n] = 1 / exact::sqrt(lane_dot(x, x, C) / (float)C + (float)eps);
      rmsnorm_row(out + n * C, x, rstd[n], gain, C);
    }
  });
}

inline void rmsnorm_row_backward(float *dinp, float *sum, const float *dout, const float *x, float r, const float *gain,
                                 int64_t C) {
  Lanes lanes;
  int64_t c = 0;
  for (; c + 32 <= C; c += 32) UNROLL for (int u = 0; u < LV; u++) {
      const int64_t i = c + u * VL;
      const vec xhat = load(x + i) * splat(r), dy = load(dout + i);
      lanes.x[u] = fma(dy * load(gain + i), xhat, lanes.x[u]);
      store(sum + i, fma(dy, xhat, load(sum + i)));
    }
  lane_tail(lanes, c, C, [&](float lane, int64_t i) {
    const float xhat = x[i] * r;
    sum[i] = exact::fma(dout[i], xhat, sum[i]);
    return exact::fma(dout[i] * gain[i], xhat, lane);
  });
  const float k = lanes.sum() / (float)C;
  over(C, [&](auto get, auto put, int64_t i) {
    put(dinp + i, splat(r) * fma(-(get(x + i) * splat(r)), splat(k), get(dout + i) * get(gain + i)));
  });
}
inline void rmsnorm_backward(float *dinp, float *dgain, const float *dout, const float *inp, const float *rstd,
                             const float *gain, int64_t B, int64_t T, int64_t C, const exact::Carry &carry) {
  std::vector<float> sums(B * C, 0.f);
  parallel(B, [&](int64_t b) {
    for (int64_t n = b * T; n < (b + 1) * T; n++)
      rmsnorm_row_backward(dinp + n * C, &sums[b * C], dout + n * C, inp + n * C, rstd[n], gain, C);
  });
  add_sequences(dgain, sums.data(), B, C, carry);
}

}  // namespace cpu
