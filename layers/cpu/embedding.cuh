// cpu/embedding.cuh: ../embedding.cuh; backward sorts the tokens by symbol once, so that each row of dweight is
// finished by one thread.
#pragma once
#include "../embedding.cuh"
#include "sums.cuh"

namespace cpu {

inline void embedding_forward(float *out, const float *weight, const int32_t *tokens, int64_t N, int64_t C) {
  parallel_rows(N, TOKENS, [&](int64_t n0, int64_t n1) {
    for (int64_t n = n0; n < n1; n++) std::copy_n(weight + tokens[n] * C, C, out + n * C);
  });
}

inline void embedding_backward(float *dweight, const float *dout, const int32_t *tokens, int64_t B, int64_t T,
                               int64_t V, int64_t C, const exact::Carry &carry) {
  std::vector<int64_t> start(V + 2, 0), place(B * T);  // the tokens of symbol v, in order: place[start[v]..start[v+1])
  for (int64_t n = 0; n < B * T; n++) start[tokens[n] + 2]++;
  for (int64_t v = 2; v <= V + 1; v++) start[v] += start[v - 1];
  for (int64_t n = 0; n < B * T; n++) place[start[tokens[n] + 1]++] = n;
  parallel(V, [&](int64_t v) {
    float *sums = scratch<4>(B * C);
    std::fill_n(sums, B * C, 0.f);
    for (int64_t i = start[v]; i < start[v + 1]; i++) {
      float *sum = sums + place[i] / T * C;
      const float *d = dout + place[i] * C;
      over(C, [&](auto get, auto put, int64_t c) { put(sum + c, get(sum + c) + get(d + c)); });
    }
    add_sequences(dweight + v * C, sums, start[v] == start[v + 1] ? 1 : B, C, carry);  // all +0: so is their sum
  });
}

}  // namespace cpu
