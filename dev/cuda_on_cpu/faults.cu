// faults.cu: kernels with a planted fault each. `faults N` runs fault N, `faults 0` the same kernels without any. The
// statement that the emulator must name is marked FAULT N; test/emulator_faults.sh looks for its line in the message.
// A program that ends with code 0 has not noticed anything.
#include "layers/gpu/launch.cuh"

using gpu::FULL, gpu::check;

// n threads, or n = 256 where nothing else is said

__global__ void rotate(float *out, const float *in, int fault) {
  __shared__ float tile[256];
  const int t = (int)threadIdx.x, n = (int)blockDim.x;
  tile[t] = in[t];
  if (fault != 1) __syncthreads();
  out[t] = tile[(t + 100) % n];  // FAULT 1: a missing __syncthreads
}

__global__ void exchange(float *out, const float *in, int fault) {
  DYNAMIC_SHARED(float, values);
  const int t = (int)threadIdx.x;
  values[t] = in[t];
  if (fault != 2) __syncwarp();
  out[t] = values[t ^ 1];  // FAULT 2: a missing __syncwarp
}

__global__ void warp_sums(float *out, const float *in, int fault) {
  const int t = (int)threadIdx.x, lane = t % 32;
  float x = in[t];
  const unsigned mask = fault == 3 ? FULL & ~(1u << 7) : FULL;
  x += __shfl_xor_sync(mask, x, 16);    // FAULT 3: a mask without the lane that calls
  if (fault == 4 && lane == 5) return;  // which the next line's mask names
  x += __shfl_xor_sync(FULL, x, 1);     // FAULT 4: a mask that names a lane that has exited
  out[t] = x;
}

__global__ void halves(float *out, const float *in, int fault) {
  __shared__ float tile[128];
  const int t = (int)threadIdx.x;
  if (t < 128) tile[t] = in[t];
  __syncthreads();
  out[t] = tile[t % 128 + (fault == 5 && t == 255 ? 1 : 0)];  // FAULT 5: a read behind static shared memory
}

__global__ void twice(float *out, const float *in, int n, int fault) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (fault == 6 ? i <= n : i < n) out[i] = 2 * in[i < n ? i : 0];  // FAULT 6: a write behind global memory
}

__global__ void count(float *out, int fault) {  // every block has a place of its own
  const int t = (int)threadIdx.x;
  if (t == 0) out[fault == 7 ? 0 : blockIdx.x] = (float)blockIdx.x;  // FAULT 7: a race between blocks
}

__global__ void prefix(float *out, const float *in, int fault) {
  DYNAMIC_SHARED(float, values);
  const int t = (int)threadIdx.x;
  if (fault != 8 || t != 3) values[t] = in[t];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i <= t; i++) sum += values[i];  // FAULT 8: a read of shared memory that was never written
  out[t] = sum;
}

__global__ void accumulate(float *out, const float *in) {
  const int t = (int)threadIdx.x;
  out[t] += in[t];  // FAULT 9: a read of global memory that was never written
}

__global__ void plus_one(float *out, const float *in) {
  const int t = (int)threadIdx.x;
  out[t] = in[t] + 1;  // FAULT 10: in comes from another stream, whose event was not waited for
}

__global__ void scale(float *out, const float *in) {
  const int t = (int)threadIdx.x;
  out[t] = in[t] * 3;  // FAULT 11: in was freed
}

__global__ void negate(float *out, const float *in) {
  const int t = (int)threadIdx.x;
  out[t] = -in[t];  // FAULT 12: in is memory of the host
}

__global__ void reduce(float *out, const float *in, int fault) {
  __shared__ float part[256];
  const int t = (int)threadIdx.x;
  part[t] = in[t];
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    if (fault == 13 && half == 32) {
      if (t < half) __syncthreads();  // FAULT 13: a barrier that some threads do not reach, though they reach the next
    } else {
      __syncthreads();
    }
  }
  if (t == 0) *out = part[0];
}

__global__ void copy4(float *out, const float *in, int fault) {
  const int t = (int)threadIdx.x;
  const float4 x = *(const float4 *)(in + 4 * t + (fault == 14 && t == 9 ? 1 : 0));  // FAULT 14: a misaligned float4
  *(float4 *)(out + 4 * t) = x;
}

__global__ void early(float *out, const float *in, int n, int fault) {
  __shared__ float tile[256];
  const int t = (int)threadIdx.x;
  if (fault == 15 && t >= n) return;
  tile[t] = t < n ? in[t] : 0;
  __syncthreads();  // FAULT 15: some threads have returned before this barrier
  if (t < n) out[t] = tile[n - 1 - t];
}

// More of the same kinds, which other paths of the emulator find

__global__ void dynamic_end(float *out, const float *in, int fault) {
  DYNAMIC_SHARED(float, values);
  const int t = (int)threadIdx.x;
  values[t + (fault == 16 && t == 255 ? 1 : 0)] = in[t];  // FAULT 16: a write behind dynamic shared memory
  out[t] = values[t];
}

__global__ void bytes(unsigned char *out, int fault) {
  const int t = (int)threadIdx.x;
  out[fault == 17 ? t / 2 : t] = (unsigned char)t;  // FAULT 17: two warps, or lanes, write one byte
}

__global__ void total(int *out, int fault) {
  const int t = (int)threadIdx.x;
  if (fault != 18)
    atomicAdd(out, 1);
  else if (t % 2)
    atomicAdd(out, 1);
  else
    *out = 1;  // FAULT 18: a plain write beside atomic ones
}

__global__ void operations(float *out, const float *in, int fault) {
  const int t = (int)threadIdx.x;
  float x = in[t];
  if (fault == 19 && t % 32 < 16) x += __shfl_down_sync(FULL, x, 16);  // FAULT 19: half a warp at an operation of all
  __syncthreads();
  out[t] = x;
}

__global__ void groups(float *out, const float *in, int fault) {  // pairs of lanes that synchronise among themselves
  DYNAMIC_SHARED(float, values);
  const int t = (int)threadIdx.x, lane = t % 32;
  values[t] = in[t];
  __syncwarp(3u << (lane & ~1));
  __syncwarp(0xffffu << (lane & 16));
  out[t] = values[fault == 20 ? t ^ 16 : t ^ 9];  // FAULT 20: a __syncwarp that leaves out the lane that is read
}

__global__ void tiles(float *out, const float *in, int fault) {  // one tile, used twice
  __shared__ float tile[256];
  const int t = (int)threadIdx.x;
  tile[t] = in[t];
  __syncthreads();
  const float next = tile[(t + 1) % 256];
  if (fault != 22) __syncthreads();
  tile[t] = 2 * next;  // FAULT 22: no __syncthreads between the reads of a tile and its next use
  __syncthreads();
  out[t] = tile[255 - t];
}
__global__ void lanes(float *out, const float *in, int fault) {
  DYNAMIC_SHARED(float, values);
  const int t = (int)threadIdx.x;
  values[t] = in[t];
  __syncwarp();
  const float next = values[t ^ 3];
  if (fault != 23) __syncwarp();
  values[t] = 2 * next;  // FAULT 23: no __syncwarp between the reads of lanes and the next use
  __syncwarp();
  out[t] = values[t ^ 1];
}

static void host_reads(const float *p) {
  volatile float x = *p;  // FAULT 21: the host reads device memory
  (void)x;
}

static float *device(int64_t n) {
  float *p = nullptr;
  check(cudaMalloc((void **)&p, (size_t)n * 4), "memory");
  return p;
}
static void expect(cudaError_t want, cudaError_t got, const char *what) {
  if (got != want) throw Error(format("%s: %s, not %s", what, cudaGetErrorName(got), cudaGetErrorName(want)));
  cudaGetLastError();
}
static void refusals(float *device, float *host) {  // what a GPU refuses is refused
  const auto launch = [&](unsigned blocks, unsigned threads, size_t shared) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    return cudaLaunchKernelEx(&config, scale, device, (const float *)device);
  };
  expect(cudaErrorInvalidConfiguration, launch(1, 1056, 0), "1056 threads");
  expect(cudaErrorInvalidConfiguration, launch(0, 32, 0), "no block");
  expect(cudaErrorInvalidValue, launch(1, 32, (48 << 10) + 4), "more than 48 KB of shared memory, unasked");
  const auto shared = cudaFuncAttributeMaxDynamicSharedMemorySize;
  expect(cudaErrorInvalidValue, cudaFuncSetAttribute(scale, shared, 228 << 10), "228 KB of shared memory");
  expect(cudaErrorInvalidValue, cudaMemcpy(device, host, 4, cudaMemcpyDeviceToHost), "a copy in the wrong direction");
  expect(cudaErrorInvalidValue, cudaMemset(device, 0, 1 << 20), "setting more than the allocation");
  expect(cudaErrorInvalidValue, cudaFree(device + 64), "freeing the middle of an allocation");
  float *p = nullptr;
  expect(cudaErrorMemoryAllocation, cudaMalloc((void **)&p, (size_t)1 << 40), "1 TB");
}
static void run(int fault) {
  constexpr int N = 256;
  constexpr int64_t BYTES = N * 4;
  const cudaStream_t stream = gpu::context().stream;
  const auto on = [&](int blocks, int64_t shared, auto kernel, auto... args) {
    gpu::launch(kernel, dim3((unsigned)blocks), dim3(N), shared, stream, args...);
  };
  std::vector<float> host(4 * N);
  for (int i = 0; i < 4 * N; i++) host[(size_t)i] = (float)(i + 1);
  float *in = device(4 * N + 4), *out = device(4 * N), *fresh = device(N);
  check(cudaMemset(in, 0, (4 * N + 4) * 4), "clearing");
  gpu::upload(in, host.data(), 4 * N);
  if (fault == 0) refusals(in, host.data());
  if (fault != 9) gpu::fill(fresh, (int64_t)N, 0.f);

  on(1, 0, rotate, out, in, fault);
  on(1, BYTES, exchange, out, in, fault);
  on(1, 0, warp_sums, out, in, fault);
  on(1, 0, halves, out, in, fault);
  on(5, 0, twice, out, in, 4 * N, fault);
  on(8, 0, count, out, fault);
  on(1, BYTES, prefix, out, in, fault);
  on(1, 0, accumulate, fresh, in);
  on(1, 0, reduce, out, in, fault);
  on(1, 0, copy4, out, in, fault);
  on(1, 0, early, out, in, 200, fault);
  on(1, BYTES, dynamic_end, out, in, fault);
  on(1, 0, bytes, (unsigned char *)out, fault);
  gpu::fill((int *)out, (int64_t)1, 0);
  on(1, 0, total, (int *)out, fault);
  on(1, 0, operations, out, in, fault);
  on(1, BYTES, groups, out, in, fault);
  on(1, 0, tiles, out, in, fault);
  on(1, BYTES, lanes, out, in, fault);
  on(1, 0, negate, out, fault == 12 ? host.data() : in);

  // in another stream: memory is filled; an event says when
  cudaStream_t other;
  cudaEvent_t event;
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "a stream");
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  float *filled = device(N);
  check(cudaMemcpyAsync(filled, in, BYTES, cudaMemcpyDeviceToDevice, other), "a copy");
  check(cudaEventRecord(event, other), "an event");
  if (fault != 10) check(cudaStreamWaitEvent(stream, event, 0), "an event");
  on(1, 0, plus_one, out, filled);
  gpu::context().synchronize();

  if (fault == 11) check(cudaFree(filled), "freeing");
  on(1, 0, scale, out, filled);
  const std::vector<float> got = gpu::on_host(out, N);
  if (fault == 21) host_reads(out);
  for (int i = 0; i < N; i++)
    if (got[(size_t)i] != 3 * host[(size_t)i]) throw Error(format("wrong: [%d] is %g", i, got[(size_t)i]));
  check(cudaStreamDestroy(other), "a stream");
  check(cudaEventDestroy(event), "an event");
  if (fault != 11) check(cudaFree(filled), "freeing");
  for (float *p : {in, out, fresh}) check(cudaFree(p), "freeing");
  check(cudaDeviceSynchronize(), "the device");
}

int main(int argc, char **argv) {
  try {
    run(argc > 1 ? atoi(argv[1]) : 0);
  } catch (const Error &e) {
    fprintf(stderr, "faults: %s\n", e.what());
    return 1;
  }
}
