// embedding.cuh: token embedding.
//   forward    out[n,c] = weight[token_n, c]
//   backward   dweight[v,c] = counter over b of (sum over the t with token[b,t] = v, from +0, of dout[b,t,c]);
//              a sequence in which v does not occur counts as +0
// Shapes: tokens (B,T), weight (V,C), out (B,T,C), N = B*T.
#pragma once
#include "sums.cuh"
#include <vector>

namespace plain {

template <class real>
void embedding_forward(real *out, const real *weight, const int32_t *tokens, int64_t N, int64_t C) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t c = 0; c < C; c++) out[n * C + c] = weight[tokens[n] * C + c];
}

template <class real> void embedding_backward(real *dweight, const real *dout, const int32_t *tokens, int64_t B,
                                              int64_t T, int64_t V, int64_t C, const exact::Carry &carry) {
  for (int64_t v = 0; v < V; v++) {
    std::vector<real> sums(B * C, 0);
    for (int64_t n = 0; n < B * T; n++)
      if (tokens[n] == v)
        for (int64_t c = 0; c < C; c++) sums[n / T * C + c] = sums[n / T * C + c] + dout[n * C + c];
    add_sequences(dweight + v * C, sums.data(), B, C, carry);
  }
}

}  // namespace plain
