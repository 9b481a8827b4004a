// gpu/matmul.cuh: ../matmul.cuh as one SGEMM. A block of 64 threads computes 64 x 64 outputs, a thread 8 x 8 of them in
// registers, each one ascending chain over k; tiles of 16 k go through shared memory. A tile that ends early ends its
// chains early: adding a zero would turn a -0 into +0. Weight gradients: per sequence into scratch, then the counter.
#pragma once
#include "sums.cuh"

namespace gpu {

constexpr int SQUARE = 64, K_TILE = 16, SIDE = 8;  // SIDE x SIDE outputs a thread, (SQUARE/SIDE)^2 threads
constexpr int64_t MOST_Z = 65535;                  // of a grid

// Element (row, k) of an operand lies at row*rows + k*ks; one of the two strides is 1
struct Operand {
  const float *data;
  int64_t rows, ks, batch;  // batch: from one product of the grid to the next
};

// tile[k][row] of 64 rows from `row` and K_TILE k from `k`; rows beyond the end read as 0, their outputs are not stored
template <bool K_FIRST> __device__ inline void load_tile(float (*tile)[SQUARE + 4], const Operand &x, int64_t row,
                                                         int64_t rows, int64_t k, int64_t K) {
  const int64_t r = row + threadIdx.x;
  const float *p = x.data + blockIdx.z * x.batch + (K_FIRST ? r * x.rows + k : r + k * x.ks);
#pragma unroll
  for (int i = 0; i < K_TILE; i++) {
    const int64_t at = K_FIRST ? i : i * x.ks;
    tile[i][threadIdx.x] = r < rows && k + i < K ? p[at] : 0.f;
  }
}
// One k of all chains. Columns of a thread: 4 of each half of the tile, so that a warp reads shared memory by rows
__device__ inline void one_k(float (&acc)[SIDE][SIDE], const float *a, const float *b, int x, int y) {
  float left[SIDE], right[SIDE];
#pragma unroll
  for (int i = 0; i < SIDE; i++) {
    left[i] = a[y * SIDE + i];
    right[i] = b[i / 4 * (SQUARE / 2) + x * 4 + i % 4];
  }
#pragma unroll
  for (int i = 0; i < SIDE; i++)
#pragma unroll
    for (int j = 0; j < SIDE; j++) acc[i][j] = exact::fma(left[i], right[j], acc[i][j]);
}

// out[z][m*ld + n] = chain over k of fma(a(m,k), b(n,k), .); grid (tiles of M, tiles of N, products)
template <bool A_K_FIRST, bool B_K_FIRST> __global__ void __launch_bounds__(64)
    sgemm_kernel(float *out, int64_t ld, int64_t out_batch, Operand a, Operand b, int64_t M, int64_t N, int64_t K) {
  __shared__ float left[K_TILE][SQUARE + 4], right[K_TILE][SQUARE + 4];
  const int x = (int)threadIdx.x % (SQUARE / SIDE), y = (int)threadIdx.x / (SQUARE / SIDE);
  const int64_t m0 = (int64_t)blockIdx.x * SQUARE, n0 = (int64_t)blockIdx.y * SQUARE;
  float acc[SIDE][SIDE] = {};
  for (int64_t k = 0; k < K; k += K_TILE) {
    load_tile<A_K_FIRST>(left, a, m0, M, k, K);
    load_tile<B_K_FIRST>(right, b, n0, N, k, K);
    __syncthreads();
    if (k + K_TILE <= K) {
#pragma unroll
      for (int i = 0; i < K_TILE; i++) one_k(acc, left[i], right[i], x, y);
    } else {
      for (int i = 0; i < (int)(K - k); i++) one_k(acc, left[i], right[i], x, y);
    }
    __syncthreads();
  }
  out += blockIdx.z * out_batch;
#pragma unroll
  for (int i = 0; i < SIDE; i++)
#pragma unroll
    for (int j = 0; j < SIDE; j++) {
      const int64_t m = m0 + y * SIDE + i, n = n0 + j / 4 * (SQUARE / 2) + x * 4 + j % 4;
      if (m < M && n < N) out[m * ld + n] = acc[i][j];
    }
}
inline dim3 sgemm_grid(int64_t M, int64_t N, int64_t products) {
  return dim3((unsigned)divide_up(M, SQUARE), (unsigned)divide_up(N, SQUARE), (unsigned)products);
}

inline void matmul_forward(float *out, int64_t ld, const float *inp, const float *weight, int64_t N, int64_t C,
                           int64_t OC) {
  launch(sgemm_kernel<true, true>, sgemm_grid(N, OC, 1), dim3(SQUARE), 0, context().stream, out, ld, (int64_t)0,
         Operand{inp, C, 1, 0}, Operand{weight, C, 1, 0}, N, OC, C);
}

inline void matmul_backward_dinp(float *dinp, const float *dout, int64_t ld, const float *weight, int64_t N, int64_t C,
                                 int64_t OC) {
  launch(sgemm_kernel<true, false>, sgemm_grid(N, C, 1), dim3(SQUARE), 0, context().stream, dinp, C, (int64_t)0,
         Operand{dout, ld, 1, 0}, Operand{weight, 1, C, 0}, N, C, OC);
}

// Rows first .. first + count of dweight at a time, so that the products of all sequences fit the scratch
inline void matmul_backward_dweight(float *dweight, const float *dout, int64_t ld, const float *inp, int64_t B,
                                    int64_t T, int64_t C, int64_t OC, const exact::Carry &carry) {
  const int64_t slab = slab_rows(OC, B * C, context().slab_floats);
  float *sums = scratch<float>(B * slab * C);
  for (int64_t first = 0; first < OC; first += slab) {
    const int64_t count = slab < OC - first ? slab : OC - first;
    for (int64_t b = 0; b < B; b += MOST_Z) {
      const int64_t products = B - b < MOST_Z ? B - b : MOST_Z;
      launch(sgemm_kernel<false, false>, sgemm_grid(count, C, products), dim3(SQUARE), 0, context().stream,
             sums + b * count * C, C, count * C, Operand{dout + b * T * ld + first, 1, ld, T * ld},
             Operand{inp + b * T * C, 1, C, T * C}, count, C, T);
    }
    add_sequences(dweight + first * C, sums, B, count * C, carry);
  }
}

}  // namespace gpu
