// cuda_runtime.h: stands in front of the toolkit's header of that name. Unmodified CUDA kernels then compile with g++
// and run on the CPU, one fiber per CUDA thread. Types and C declarations are the toolkit's own; only definitions are
// ours (emulator.h says where). README.md: what is emulated, and how to compile.
#pragma once
#define CUDA_EMULATOR 1
#define __CUDA_RUNTIME_H__  // the real header, should anything ask for it, is this one
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__  // the C++ library writes __attribute__((__noinline__))
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// A shared variable is a static. The tag ends up in its mangled name, by which the emulator finds it in the program's
// own symbol table, to spoil it before every block. (A section attribute would be refused in templates.)
#define __shared__ static __attribute__((abi_tag("emu_shared")))
#define DYNAMIC_SHARED(T, name) T *const name = (T *)emu::dynamic_shared()

namespace emu {

#define EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum class Op : uint8_t { sync, shuffle, ballot };
int64_t block_barrier(int64_t value, const char *file, int line);  // the sum of the values of all threads
uint64_t warp_operation(Op op, unsigned mask, uint64_t value, int source, const char *file, int line);
void *dynamic_shared();
int lane();
void atomic_access(const void *p, size_t n, const void *where);
cudaError_t launch(const cudaLaunchConfig_t *config, void (*body)(void *), void (*destroy)(void *), void *args,
                   size_t args_size, const void *kernel);
cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);

template <class T> T shuffle(unsigned mask, T x, int source, const char *file, int line) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "shuffles move values of up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(T));
  bits = warp_operation(Op::shuffle, mask, bits, source, file, line);
  std::memcpy(&x, &bits, sizeof(T));
  return x;
}
// All fibers share one thread: nothing can come between the load and the store.
template <class T, class F> __attribute__((noinline, no_sanitize("thread"))) T atomic_update(T *p, F f) {
  atomic_access(p, sizeof(T), __builtin_return_address(0));
  T old, next;
  std::memcpy(&old, p, sizeof(T));
  next = f(old);
  std::memcpy(p, &next, sizeof(T));
  return old;
}
template <class T> using same = std::common_type_t<T>;  // not deduced: atomicAdd(unsigned *, 1)

}  // namespace emu

// ---- device: of the thread that runs now. Variables, as cudaLaunchConfig_t has members of such names.

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

inline void __syncthreads(EMU_HERE) { emu::block_barrier(0, file, line); }
inline int __syncthreads_count(int p, EMU_HERE) { return (int)emu::block_barrier(p != 0, file, line); }
inline int __syncthreads_or(int p, EMU_HERE) { return emu::block_barrier(p != 0, file, line) != 0; }
inline int __syncthreads_and(int p, EMU_HERE) { return emu::block_barrier(p == 0, file, line) == 0; }
inline void __syncwarp(unsigned mask = ~0u, EMU_HERE) { emu::warp_operation(emu::Op::sync, mask, 0, 0, file, line); }
inline unsigned __ballot_sync(unsigned mask, int p, EMU_HERE) {
  return (unsigned)emu::warp_operation(emu::Op::ballot, mask, p != 0, 0, file, line);
}
inline int __any_sync(unsigned mask, int p, EMU_HERE) { return __ballot_sync(mask, p, file, line) != 0; }
inline int __all_sync(unsigned mask, int p, EMU_HERE) { return __ballot_sync(mask, p, file, line) == mask; }
template <class T> T __shfl_sync(unsigned mask, T x, int source, int width = 32, EMU_HERE) {
  return emu::shuffle(mask, x, (emu::lane() & ~(width - 1)) + (source & (width - 1)), file, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32, EMU_HERE) {
  const int l = emu::lane(), source = l ^ bits;
  return emu::shuffle(mask, x, (source | (width - 1)) > (l | (width - 1)) ? l : source, file, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32, EMU_HERE) {
  const int l = emu::lane();
  return emu::shuffle(mask, x, l % width + (int)by < width ? l + (int)by : l, file, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32, EMU_HERE) {
  const int l = emu::lane();
  return emu::shuffle(mask, x, l % width >= (int)by ? l - (int)by : l, file, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T> T atomicAdd(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return (T)(x + v); });
}
template <class T> T atomicSub(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return (T)(x - v); });
}
template <class T> T atomicMax(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return x < v ? v : x; });
}
template <class T> T atomicMin(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return v < x ? v : x; });
}
template <class T> T atomicOr(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return (T)(x | v); });
}
template <class T> T atomicAnd(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return (T)(x & v); });
}
template <class T> T atomicExch(T *p, emu::same<T> v) {
  return emu::atomic_update(p, [=](T) { return v; });
}
template <class T> T atomicCAS(T *p, emu::same<T> expected, emu::same<T> v) {
  return emu::atomic_update(p, [=](T x) { return x == expected ? v : x; });
}

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldca(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> void __stcs(T *p, emu::same<T> v) { *p = v; }
template <class T> void __stcg(T *p, emu::same<T> v) { *p = v; }
inline float __int_as_float(int i) {
  float f;
  std::memcpy(&f, &i, 4);
  return f;
}
inline int __float_as_int(float f) {
  int i;
  std::memcpy(&i, &f, 4);
  return i;
}
inline float __uint_as_float(unsigned u) { return __int_as_float((int)u); }
inline unsigned __float_as_uint(float f) { return (unsigned)__float_as_int(f); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }  // a GPU's may be off by 2 ulp
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
#define EMU_MIN_MAX(T)                             \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX

// ---- host

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  auto *call = new Call{kernel, {std::forward<A>(args)...}};
  const auto body = [](void *p) { std::apply(((Call *)p)->kernel, ((Call *)p)->args); };
  const auto destroy = [](void *p) { delete (Call *)p; };
  return emu::launch(config, body, destroy, call, sizeof *call, (const void *)kernel);
}
template <class K> cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute attribute, int value) {
  return emu::set_attribute((const void *)kernel, attribute, value);
}
template <class K> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, K *kernel) {
  return cudaFuncGetAttributes(attributes, (const void *)kernel);
}
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes) { return cudaMallocHost((void **)p, bytes); }
