// cpu/rope.cuh: ../rope.cuh; tokens are shared out, the rotation is the definition's loop.
#pragma once
#include "../rope.cuh"
#include "simd.cuh"

namespace cpu {

using plain::rope_table;

// Tokens t0..t1 of one sequence at a time: the table starts at their first position
template <class F> void over_positions(int64_t B, int64_t T, F &&f) {
  const int64_t pieces = cdiv(T, TOKENS);
  parallel(B * pieces, [&](int64_t i) {
    const int64_t t = i % pieces * TOKENS;
    f(i / pieces * T + t, t, std::min(TOKENS, T - t));
  });
}
inline void rope_forward(float *qkv, const float *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  over_positions(B, T, [&](int64_t n, int64_t t, int64_t count) {
    plain::rope_forward(qkv + n * 3 * NH * HS, table + t * HS, 1, count, NH, HS);
  });
}
inline void rope_backward(float *dqkv, const float *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  over_positions(B, T, [&](int64_t n, int64_t t, int64_t count) {
    plain::rope_backward(dqkv + n * 3 * NH * HS, table + t * HS, 1, count, NH, HS);
  });
}

}  // namespace cpu
