// swiglu.cuh: the gated unit of the MLP (Shazeer 2020).
//   forward    S = sigmoid(gate);  A = gate*S;  out = A*up
//   backward   dup = dout*A;  dgate = (dout*up)*fma(A, 1-S, S);  out is made again for the weight gradient behind it
// Shapes: gateup (N,2H): H gates, then H ups; out (N,H). Backward in place: dgateup may be gateup, out may be dout.
#pragma once
#include "exact.cuh"

namespace plain {

template <class real> void swiglu_forward(real *out, const real *gateup, int64_t N, int64_t H) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < H; i++) {
      const real gate = gateup[n * 2 * H + i], up = gateup[n * 2 * H + H + i];
      out[n * H + i] = (gate * exact::sigmoid(gate)) * up;
    }
}

template <class real>
void swiglu_backward(real *dgateup, real *out, const real *dout, const real *gateup, int64_t N, int64_t H) {
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < H; i++) {
      const real gate = gateup[n * 2 * H + i], up = gateup[n * 2 * H + H + i], d = dout[n * H + i];
      const real S = exact::sigmoid(gate), A = gate * S;
      dgateup[n * 2 * H + i] = (d * up) * exact::fma(A, 1 - S, S);
      dgateup[n * 2 * H + H + i] = d * A;
      out[n * H + i] = A * up;
    }
}

}  // namespace plain
