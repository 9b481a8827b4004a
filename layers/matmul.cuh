// matmul.cuh: the three products of a linear layer without bias.
//   forward    out[n,o]  = chain over c of fma(inp[n,c], weight[o,c], .)
//   dinp       dinp[n,c] = chain over o of fma(dout[n,o], weight[o,c], .)
//   dweight    dweight[o,c] = counter over b of (chain over t of fma(dout[b,t,o], inp[b,t,c], .))
// chain: from +0, index ascending. Shapes: inp (N,C), weight (OC,C), out (N,OC), N = B*T. Rows of out and dout start ld
// elements apart, ld >= OC: the rows of logits are padded, and what lies behind OC is never read or written.
#pragma once
#include "exact.cuh"

namespace plain {

template <class real>
void matmul_forward(real *out, int64_t ld, const real *inp, const real *weight, int64_t N, int64_t C, int64_t OC) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t o = 0; o < OC; o++) {
      real acc = 0;
      for (int64_t c = 0; c < C; c++) acc = exact::fma(inp[n * C + c], weight[o * C + c], acc);
      out[n * ld + o] = acc;
    }
}

template <class real> void matmul_backward_dinp(real *dinp, const real *dout, int64_t ld, const real *weight, int64_t N,
                                                int64_t C, int64_t OC) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t c = 0; c < C; c++) {
      real acc = 0;
      for (int64_t o = 0; o < OC; o++) acc = exact::fma(dout[n * ld + o], weight[o * C + c], acc);
      dinp[n * C + c] = acc;
    }
}

template <class real> void matmul_backward_dweight(real *dweight, const real *dout, int64_t ld, const real *inp,
                                                   int64_t B, int64_t T, int64_t C, int64_t OC,
                                                   const exact::Carry &carry) {
  for (int64_t o = 0; o < OC; o++)
    for (int64_t c = 0; c < C; c++) {
      exact::Counter<real> counter;
      for (int64_t b = 0; b < B; b++) {
        real acc = 0;
        for (int64_t n = b * T; n < (b + 1) * T; n++) acc = exact::fma(dout[n * ld + o], inp[n * C + c], acc);
        counter.push(acc);
      }
      dweight[o * C + c] = exact::carried(dweight, o * C + c, counter.finish(), carry);
    }
}

}  // namespace plain
