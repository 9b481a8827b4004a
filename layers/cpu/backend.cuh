// The cpu build: fast forms of the definitions, to the same bits. The Makefile's include path chooses this folder.
#pragma once
#include "adamw.cuh"
#include "attention.cuh"
#include "attnres.cuh"
#include "crossentropy.cuh"
#include "dweight.cuh"
#include "embedding.cuh"
#include "init.cuh"
#include "matmul.cuh"
#include "residual.cuh"
#include "rmsnorm.cuh"
#include "rope.cuh"
#include "sums.cuh"
#include "swiglu.cuh"
#include "tiles.cuh"
#include "wav_router.cuh"
#include "../plain/memory.cuh"
#include <chrono>

namespace cpu {
constexpr const char *BUILD = "cpu";
using plain::Buffer, plain::copy, plain::download, plain::fill, plain::on_host, plain::upload;
// n = 0: as many threads as the machine offers this process. Sets the float mode; returns how many will work.
inline int set_threads(int64_t n) {
  set_float_mode();
  team().resize(n > 0 ? n : processors());
  return threads();
}
// FMA operations per second of the threads together, times two: 12 independent vector chains a thread, for about
// `seconds`
inline double fma_peak(double seconds) {
  const int64_t all = threads(), rounds = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (double flops = 0;;) {
    parallel(all, [&](int64_t) {
      vec acc[12];
      for (vec &x : acc) x = splat(1.f);
      const vec a = splat(0.999f), b = splat(1e-3f);
      for (int64_t i = 0; i < rounds; i++) UNROLL for (vec &x : acc) x = fma(x, a, b);
      volatile float keep = 0;
      for (vec &x : acc) keep = keep + x[0];
    });
    flops += (double)(all * rounds * 12 * VL * 2);
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (t > seconds) return flops / t;
  }
}
inline std::string simd_name() { return tile_text(); }
// Packed panels, levels of weight gradients and attention blocks, of all threads together
inline int64_t scratch_bytes(int64_t, int64_t T, int64_t C, int64_t, int64_t, int64_t threads) {
  const int64_t attention = std::max(T * 128 * 2, (int64_t)BLOCK * (5 * 128 + 2 * (BLOCK + 16)));
  return threads * 4 * (blocks().packed + blocks().panels + 8 * C * C + attention);
}
}  // namespace cpu
namespace device = cpu;
