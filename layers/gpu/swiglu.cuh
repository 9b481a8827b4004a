// gpu/swiglu.cuh: ../swiglu.cuh, a thread per element.
#pragma once
#include "launch.cuh"

namespace gpu {

__global__ void swiglu_forward_kernel(float *out, const float *gateup, int64_t n, int64_t H) {
  const int64_t i = index_of_thread();
  if (i >= n) return;
  const float *row = gateup + i / H * 2 * H + i % H;
  out[i] = (row[0] * exact::sigmoid(row[0])) * row[H];
}
inline void swiglu_forward(float *out, const float *gateup, int64_t N, int64_t H) {
  a_thread_each(swiglu_forward_kernel, N * H, out, gateup, N * H, H);
}

__global__ void swiglu_backward_kernel(float *dgateup, float *out, const float *dout, const float *gateup, int64_t n,
                                       int64_t H) {
  const int64_t i = index_of_thread();
  if (i >= n) return;
  const int64_t at = i / H * 2 * H + i % H;
  const float gate = gateup[at], up = gateup[at + H], d = dout[i], S = exact::sigmoid(gate), A = gate * S;
  dgateup[at] = (d * up) * exact::fma(A, 1 - S, S);
  dgateup[at + H] = d * A;
  out[i] = A * up;
}
inline void swiglu_backward(float *dgateup, float *out, const float *dout, const float *gateup, int64_t N, int64_t H) {
  a_thread_each(swiglu_backward_kernel, N * H, dgateup, out, dout, gateup, N * H, H);
}

}  // namespace gpu
