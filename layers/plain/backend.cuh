// The plain build: the definitions themselves. The Makefile's include path chooses this folder or a fast one.
#pragma once
#include "memory.cuh"
#include "../adamw.cuh"
#include "../attention.cuh"
#include "../crossentropy.cuh"
#include "../embedding.cuh"
#include "../init.cuh"
#include "../matmul.cuh"
#include "../residual.cuh"
#include "../rmsnorm.cuh"
#include "../rope.cuh"
#include "../sums.cuh"
#include "../swiglu.cuh"
#include <chrono>

namespace plain {
constexpr const char *BUILD = "plain";
inline std::string simd_name() { return "scalar"; }
// n = 0: as many threads as the machine offers. Sets the float mode in each; returns how many will work.
inline int set_threads(int64_t) {
  set_float_mode();
  return 1;
}
// (B, T, C, V, sources of the mixer, threads)
inline int64_t scratch_bytes(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) { return 0; }
// FMA operations per second of the threads together, times two: 8 independent chains
inline double fma_peak(double seconds) {
  float acc[8] = {};
  double flops = 0;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 10000; i++)
      for (float &x : acc) x = exact::fma(x, 0.999f, 1e-3f);
    flops += 160000;
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (t > seconds) {
      volatile float keep = acc[0] + acc[1] + acc[2] + acc[3] + acc[4] + acc[5] + acc[6] + acc[7];
      (void)keep;
      return flops / t;
    }
  }
}
}  // namespace plain
namespace device = plain;
