// gpu/embedding.cuh: ../embedding.cuh. Backward: a thread per (sequence, symbol, channel) goes through the tokens of
// its sequence; slabs of symbols bound the scratch. add_sequences is the counter as a tree: the same sum.
#pragma once
#include "launch.cuh"

namespace gpu {

// ---- add_sequences: a thread per element. Destroys sums: for s = 1, 2, 4, ...: x[b] += x[b+s], b a multiple of 2s
__global__ void add_sequences_kernel(float *out, float *sums, int64_t B, int64_t n, exact::Carry carry) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float *x = sums + i;
  for (int64_t s = 1; s < B; s *= 2)
    for (int64_t b = 0; b + s < B; b += 2 * s) x[b * n] = x[b * n] + x[(b + s) * n];
  out[i] = exact::carried(out, i, x[0], carry);
}
inline void add_sequences(float *out, float *sums, int64_t B, int64_t n, const exact::Carry &carry) {
  launch(add_sequences_kernel, blocks_of(n, THREADS), dim3(THREADS), 0, context().stream, out, sums, B, n, carry);
}

// ---- forward: a thread per element
__global__ void embedding_forward_kernel(float *out, const float *weight, const int32_t *tokens, int64_t n, int64_t C) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = weight[tokens[i / C] * C + i % C];
}
inline void embedding_forward(float *out, const float *weight, const int32_t *tokens, int64_t N, int64_t C) {
  launch(embedding_forward_kernel, blocks_of(N * C, THREADS), dim3(THREADS), 0, context().stream, out, weight, tokens,
         N * C, C);
}

// ---- backward, symbols first .. first + count: sums (B,count,C); grid (channels, symbols, sequences)
__global__ void embedding_backward_kernel(float *sums, const float *dout, const int32_t *tokens, int64_t first,
                                          int64_t count, int64_t B, int64_t T, int64_t C) {
  const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (int64_t b = blockIdx.z; b < B; b += gridDim.z)
    for (int64_t v = blockIdx.y; v < count && c < C; v += gridDim.y) {
      float sum = 0;
      for (int64_t n = b * T; n < (b + 1) * T; n++)
        if (tokens[n] == first + v) sum = sum + dout[n * C + c];
      sums[(b * count + v) * C + c] = sum;
    }
}
inline void embedding_backward(float *dweight, const float *dout, const int32_t *tokens, int64_t B, int64_t T,
                               int64_t V, int64_t C, const exact::Carry &carry) {
  const int64_t slab = slab_rows(V, B * C, context().slab_floats);
  float *sums = scratch<float>(B * slab * C);
  for (int64_t v = 0; v < V; v += slab) {
    const int64_t count = std::min(slab, V - v);
    const dim3 grid((unsigned)divide_up(C, WARP), (unsigned)std::min<int64_t>(count, 65535),
                    (unsigned)std::min<int64_t>(B, 65535));
    launch(embedding_backward_kernel, grid, dim3(WARP), 0, context().stream, sums, dout, tokens, v, count, B, T, C);
    add_sequences(dweight + v * C, sums, B, count * C, carry);
  }
}

}  // namespace gpu
