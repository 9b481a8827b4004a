// gpu/rope.cuh: ../rope.cuh, a thread per pair of channels.
#pragma once
#include "launch.cuh"

namespace gpu {

__global__ void rope_table_kernel(float *table, int64_t T, int64_t HS) {
  const int64_t k = index_of_thread(), half = HS / 2;
  if (k >= T * half) return;
  const double angle = (double)(k / half) * exact::exp(-2. * (double)(k % half) / (double)HS * exact::log(10000.));
  table[2 * k] = (float)exact::cos(angle);
  table[2 * k + 1] = (float)exact::sin(angle);
}
inline void rope_table(float *table, int64_t T, int64_t HS) {
  a_thread_each(rope_table_kernel, T * (HS / 2), table, T, HS);
}

// direction +1: by the angle (forward); -1: back
__global__ void rope_kernel(float *qkv, const float *table, int64_t pairs, int64_t T, int64_t NH, int64_t HS,
                            int direction) {
  const int64_t k = index_of_thread(), half = HS / 2;
  if (k >= pairs) return;
  const int64_t i = k % half, head = k / half % (2 * NH), n = k / half / (2 * NH);
  const float cos = table[(n % T * half + i) * 2], sin = table[(n % T * half + i) * 2 + 1];
  float *p = qkv + n * 3 * NH * HS + head * HS + i;
  const float a = p[0], b = p[half];
  p[0] = direction > 0 ? exact::fma(a, cos, -(b * sin)) : exact::fma(a, cos, b * sin);
  p[half] = direction > 0 ? exact::fma(a, sin, b * cos) : exact::fma(b, cos, -(a * sin));
}
inline void rotate(float *qkv, const float *table, int64_t B, int64_t T, int64_t NH, int64_t HS, int direction) {
  const int64_t pairs = B * T * 2 * NH * (HS / 2);
  a_thread_each(rope_kernel, pairs, qkv, table, pairs, T, NH, HS, direction);
}
inline void rope_forward(float *qkv, const float *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  rotate(qkv, table, B, T, NH, HS, 1);
}
inline void rope_backward(float *dqkv, const float *table, int64_t B, int64_t T, int64_t NH, int64_t HS) {
  rotate(dqkv, table, B, T, NH, HS, -1);
}

}  // namespace gpu
