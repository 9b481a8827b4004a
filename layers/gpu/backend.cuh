// The exact CUDA builds: kernels with the bits of the definitions. The Makefile's include path chooses this folder;
// nvcc compiles it for a GPU, dev/cuda_on_cpu executes it on a CPU.
#pragma once
#include "adamw.cuh"
#include "attention.cuh"
#include "attnres.cuh"
#include "crossentropy.cuh"
#include "embedding.cuh"
#include "init.cuh"
#include "launch.cuh"
#include "matmul.cuh"
#include "residual.cuh"
#include "rmsnorm.cuh"
#include "rope.cuh"
#include "sums.cuh"
#include "swiglu.cuh"
#include "wav_router.cuh"
#include <algorithm>
#include <chrono>

namespace gpu {
#if defined CUDA_EMULATOR
constexpr const char *BUILD = "emulated";
#else
constexpr const char *BUILD = "exact";
#endif
// Threads of the host: one. The GPU itself is not touched before memory or a kernel is asked for.
inline int set_threads(int64_t) {
  set_float_mode();
  return 1;
}
inline std::string simd_name() { return context().properties.name; }

__global__ void __launch_bounds__(THREADS) fma_peak_kernel(float *out, int rounds) {
  float acc[8] = {};
  for (int r = 0; r < rounds; r++)
#pragma unroll
    for (float &x : acc) x = exact::fma(x, 0.999f, 1e-3f);
  out[index_of_thread()] = ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
}
// FMA operations per second of the whole GPU, times two: 8 independent chains a thread, in one launch that takes about
// `seconds`
inline double fma_peak(double seconds) {
  const int64_t blocks = 8 * context().properties.multiProcessorCount;
  float *out = scratch<float>(blocks * THREADS);
  a_thread_each(fma_peak_kernel, THREADS, out, 1);  // loads the code
  context().synchronize();
  for (int64_t rounds = 256;; rounds *= 2) {
    const auto start = std::chrono::steady_clock::now();
    a_thread_each(fma_peak_kernel, blocks * THREADS, out, (int)rounds);
    context().synchronize();
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (t > seconds / 2 || rounds >= 1 << 24) return (double)(blocks * THREADS * rounds * 8 * 2) / t;
  }
}
// At least the largest scratch: weight gradients of all sequences in slabs (2H < 6C + 64 rows); attention's B*NH*T,
// NH <= C/2; of the mixer two scalars per token, source and read
inline int64_t scratch_bytes(int64_t B, int64_t T, int64_t C, int64_t V, int64_t sources, int64_t) {
  const int64_t weights = slab_rows(std::max(V, 6 * C + 64), B * C, Context::SLAB) * B * C;
  const int64_t tokens = B * T * std::max(16 * sources, C / 2 + 2);
  return std::max({4 * weights, 4 * tokens, Context::MINIMUM});
}
}  // namespace gpu
namespace device = gpu;
