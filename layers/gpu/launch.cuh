// gpu/launch.cuh: the device, its memory, and how kernels are launched. Every function of gpu:: has the name and the
// arguments of its plain:: definition; its pointers are device memory, its lists of pointers (sources, updates) are
// host memory and travel as tables. All work is queued on the one stream of context(), in order.
//
//   launch(kernel, grid, block, shared, stream, args...)      the only way a kernel starts; nothing where grid is empty
//   a_thread_each, a_warp_each(kernel, n, args...)            n threads or warps, in blocks of THREADS; the kernel
//                           has nothing to do where its index_of_thread() or index_of_warp() is n or more
//   Buffer<T>(n, what)      zeroed device memory, owned
//   fill, copy              on the device            upload, download, on_host      between host and device
//   scratch<T>(n)           memory for one function of a layer, until the next call
//   table(host, n)          a copy of a short host array, until about a megabyte of later tables has passed
#pragma once
#include "../device.cuh"
#include "../exact.cuh"
#include <cuda_runtime.h>
#include <vector>

// The dynamic shared memory of a kernel, as an array of T. dev/cuda_on_cpu brings its own.
#if !defined DYNAMIC_SHARED
#define DYNAMIC_SHARED(T, name)                                 \
  extern __shared__ __align__(16) unsigned char name##_bytes[]; \
  T *const name = (T *)name##_bytes
#endif

namespace gpu {

constexpr unsigned FULL = 0xffffffffu;  // all lanes of a warp
constexpr int WARP = 32, THREADS = 256, WARPS = THREADS / WARP;

inline void check(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return;
  const char *advice = e == cudaErrorMemoryAllocation ? "; a smaller --micro-batch needs less" : "";
  throw Error(format("%s: %s%s", what, cudaGetErrorString(e), advice));
}

// The GPU of this process. Made at its first use; throws where there is none.
struct Context {
  static constexpr int64_t TABLES = 1 << 20, MINIMUM = 1 << 20;  // bytes
  static constexpr int64_t SLAB = 16 << 20;                      // floats
  int64_t slab_floats = SLAB;  // at most so much scratch for weight gradients; tests take less
  cudaStream_t stream = nullptr;
  cudaDeviceProp properties{};
  char *tables = nullptr, *scratch = nullptr;
  int64_t next_table = 0, scratch_bytes = 0;
  Context() {
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver)
      throw Error("no usable NVIDIA driver: install one that is new enough for this binary, or use the cpu build");
    if (e != cudaSuccess || n == 0)
      throw Error(format("no CUDA device (%s): use the cpu build, `make cpu`", cudaGetErrorString(e)));
    check(cudaGetDeviceProperties(&properties, 0), "properties of the CUDA device");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    check(cudaMalloc((void **)&tables, TABLES), "allocating tables");
  }
  Context(const Context &) = delete;
  void synchronize() { check(cudaStreamSynchronize(stream), "a kernel"); }
  void *take_scratch(int64_t bytes) {
    bytes = bytes < MINIMUM ? MINIMUM : bytes;  // decoding asks for a little more with every token
    if (bytes > scratch_bytes) {
      synchronize();
      check(cudaFree(scratch), "freeing scratch");
      scratch = nullptr;
      scratch_bytes = 0;
      check(cudaMalloc((void **)&scratch, (size_t)bytes), format("allocating %.1f MB of scratch", bytes / 1e6).c_str());
      scratch_bytes = bytes;
    }
    return scratch;
  }
  void *take_table(const void *host, int64_t bytes) {
    if (bytes > TABLES) throw Error(format("a table of %lld bytes, %lld fit", (long long)bytes, (long long)TABLES));
    if (next_table + bytes > TABLES) next_table = 0;
    char *p = tables + next_table;
    next_table += round_up(bytes, 64);
    if (bytes) check(cudaMemcpyAsync(p, host, (size_t)bytes, cudaMemcpyHostToDevice, stream), "copying a table");
    return p;
  }
};
inline Context &context() {
  static Context &c = *new Context;  // never destroyed: the driver may be gone before
  return c;
}
template <class T> T *scratch(int64_t n) { return (T *)context().take_scratch(n * (int64_t)sizeof(T)); }
template <class T> const T *table(const T *host, int64_t n) {
  return (const T *)context().take_table(host, n * (int64_t)sizeof(T));
}

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, int64_t shared, cudaStream_t stream, A... args) {
  if (!grid.x || !grid.y || !grid.z) return;
  if (shared > 0)  // static and dynamic together may pass the 48 KB that need no permission
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "shared memory");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = (size_t)shared;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, (P)args...), "launching a kernel");
}
inline dim3 blocks_of(int64_t n, int64_t per_block) { return dim3((unsigned)divide_up(n, per_block)); }
template <class... P, class... A> void a_thread_each(void (*kernel)(P...), int64_t n, A... args) {
  launch(kernel, blocks_of(n, THREADS), dim3(THREADS), 0, context().stream, args...);
}
template <class... P, class... A> void a_warp_each(void (*kernel)(P...), int64_t n, A... args) {
  launch(kernel, blocks_of(n, WARPS), dim3(THREADS), 0, context().stream, args...);
}
__device__ inline int lane_id() { return (int)(threadIdx.x % WARP); }
__device__ inline int warp_id() { return (int)(threadIdx.x / WARP); }
__device__ inline int64_t index_of_thread() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64_t index_of_warp() { return (int64_t)blockIdx.x * WARPS + warp_id(); }
// How many of `rows` are done at a time where each needs `width` floats of scratch, at least one
inline int64_t slab_rows(int64_t rows, int64_t width, int64_t floats) {
  const int64_t fit = floats / width;
  if (fit < 1) return 1;
  return fit < rows ? fit : rows;
}

// ---- memory

template <class T> void copy(T *to, const T *from, int64_t n) {
  check(cudaMemcpyAsync(to, from, (size_t)n * sizeof(T), cudaMemcpyDeviceToDevice, context().stream), "copying");
}
template <class T> void upload(T *to, const T *host, int64_t n) {
  check(cudaMemcpyAsync(to, host, (size_t)n * sizeof(T), cudaMemcpyHostToDevice, context().stream), "upload");
  context().synchronize();
}
template <class T> void download(T *host, const T *from, int64_t n) {
  check(cudaMemcpyAsync(host, from, (size_t)n * sizeof(T), cudaMemcpyDeviceToHost, context().stream), "download");
  context().synchronize();
}
template <class T> std::vector<T> on_host(const T *from, int64_t n) {
  std::vector<T> x((size_t)n);
  download(x.data(), from, n);
  return x;
}

template <class T> __global__ void fill_kernel(T *p, int64_t n, T value) {
  const int64_t i = index_of_thread();
  if (i < n) p[i] = value;
}
template <class T> void fill(T *p, int64_t n, T value) { a_thread_each(fill_kernel<T>, n, p, n, value); }

template <class T> struct Buffer {
  T *data = nullptr;
  int64_t n = 0;
  Buffer() = default;
  Buffer(int64_t n, const char *what)
      : n(n) {
    context();
    check(cudaMalloc((void **)&data, bytes()), format("allocating %.1f MB for %s", bytes() / 1e6, what).c_str());
    check(cudaMemsetAsync(data, 0, bytes(), context().stream), "clearing memory");
  }
  Buffer(Buffer &&o) noexcept
      : data(o.data),
        n(o.n) {
    o.data = nullptr;
    o.n = 0;
  }
  Buffer &operator=(Buffer &&o) noexcept {
    std::swap(data, o.data);
    std::swap(n, o.n);
    return *this;
  }
  ~Buffer() {
    if (data) cudaFree(data);
  }
  size_t bytes() const { return (size_t)((n > 0 ? n : 1) * (int64_t)sizeof(T)); }
};

// ---- warps: lane sums of the float order. A warp's lane i holds the sum of elements i, i+32, ...; every lane gets the
// butterfly's result (its additions are commutative, so all lanes have the bits of exact::butterfly).

template <class T> __device__ inline T butterfly(T x) {
  for (int step = WARP / 2; step > 0; step /= 2) x = x + __shfl_xor_sync(FULL, x, step);
  return x;
}
template <class T> __device__ inline T warp_max(T x) {  // of finite values
  for (int step = WARP / 2; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(FULL, x, step);
    x = other > x ? other : x;
  }
  return x;
}
__device__ inline float from_lane(float x, int lane) { return __shfl_sync(FULL, x, lane); }
__device__ inline float lane_dot(const float *a, const float *b, int64_t n) {
  float sum = 0;
  for (int64_t i = lane_id(); i < n; i += WARP) sum = exact::fma(a[i], b[i], sum);
  return butterfly(sum);
}

}  // namespace gpu
