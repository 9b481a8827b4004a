// gpu/embedding.cuh: ../embedding.cuh. Backward: a thread per (sequence, symbol, channel) goes through the tokens of
// its sequence; slabs of symbols bound the scratch.
#pragma once
#include "sums.cuh"

namespace gpu {

// ---- forward: a thread per element
__global__ void embedding_forward_kernel(float *out, const float *weight, const int32_t *tokens, int64_t n, int64_t C) {
  const int64_t i = index_of_thread();
  if (i < n) out[i] = weight[tokens[i / C] * C + i % C];
}
inline void embedding_forward(float *out, const float *weight, const int32_t *tokens, int64_t N, int64_t C) {
  a_thread_each(embedding_forward_kernel, N * C, out, weight, tokens, N * C, C);
}

// ---- backward, symbols first .. first + count: sums (B,count,C); grid (channels, symbols, sequences).
// Blocks of one warp: fewer threads stand idle behind the last channel
__global__ void embedding_backward_kernel(float *sums, const float *dout, const int32_t *tokens, int64_t first,
                                          int64_t count, int64_t B, int64_t T, int64_t C) {
  const int64_t c = index_of_thread();
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
