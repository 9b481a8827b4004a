// streams.cpp: streams and events, and what a program asks of the device.
//
// EMU_STREAMS=eager (default)   work is done where it is queued
//             lazy              work waits until the host waits for it, and only that stream is served then: others
//                               go on when it waits for their events. Finds missing events and synchronisations.
//             random            the same, but whenever the host waits all streams go on, in random order
#include "emulator.h"
#include <algorithm>
#include <chrono>
#include <deque>

namespace emu {

cudaError_t last_error = cudaSuccess;

struct Stream {
  bool alone = false;  // cudaStreamNonBlocking: the default stream does not wait for it
  std::deque<std::function<bool()>> work;
};
struct Event {
  long recorded = 0, done = 0;
  std::chrono::steady_clock::time_point time;
};
static auto &streams = *new std::vector<Stream *>;

static char mode() {
  static const char m = [] {
    const char *name = setting("EMU_STREAMS", "eager");
    for (const char *known : {"eager", "lazy", "random"})
      if (!strcmp(name, known)) return *known;
    fail("EMU_STREAMS is eager, lazy or random, not '%s'", name);
  }();
  return m;
}
bool runs_late() { return mode() != 'e'; }
static bool is_default(cudaStream_t s) { return !s || s == cudaStreamLegacy || s == cudaStreamPerThread; }
bool is_stream(cudaStream_t s) {
  return is_default(s) || std::find(streams.begin(), streams.end(), (Stream *)s) != streams.end();
}

static bool advance(Stream *s) {
  if (s->work.empty() || !s->work.front()()) return false;
  s->work.pop_front();
  return true;
}
static bool advance_any() {
  const size_t n = streams.size(), first = n ? draw(n) : 0;
  for (size_t i = 0; i < n; i++)
    if (advance(streams[(first + i) % n])) return true;
  return false;
}
static void wait_for(Stream *s) {
  while (!s->work.empty())
    if (!(mode() == 'l' && advance(s)) && !advance_any()) fail("streams wait for events that are never recorded");
}
void drain_all() {
  for (size_t i = 0; i < streams.size(); i++) wait_for(streams[i]);
}
static void drain_default() {
  for (size_t i = 0; i < streams.size(); i++)
    if (!streams[i]->alone) wait_for(streams[i]);
}
void drain(cudaStream_t s) {
  if (is_default(s)) return drain_default();
  wait_for((Stream *)s);
}
void enqueue(cudaStream_t s, std::function<bool()> work) {
  if (runs_late() && !is_default(s)) return ((Stream *)s)->work.push_back(std::move(work));
  drain_default();
  work();
}

static cudaError_t refuse(cudaError_t e) { return last_error = e; }

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  streams.push_back(new Stream);
  streams.back()->alone = flags & cudaStreamNonBlocking;
  *s = (cudaStream_t)streams.back();
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (is_default(s) || !is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  drain(s);
  streams.erase(std::find(streams.begin(), streams.end(), (Stream *)s));
  delete (Stream *)s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (!is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  drain(s);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  if (!is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  if (is_default(s) || ((Stream *)s)->work.empty()) return cudaSuccess;
  advance((Stream *)s) || advance_any();
  return ((Stream *)s)->work.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned) {
  if (!is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  const auto *e = (Event *)event;
  enqueue(s, [e, want = e->recorded] { return e->done >= want; });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data) {
  if (!is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  enqueue(s, [=] {
    function(data);
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
  *e = (cudaEvent_t) new Event;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  drain_all();
  delete (Event *)e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
  if (!is_stream(s)) return refuse(cudaErrorInvalidResourceHandle);
  auto *e = (Event *)event;
  enqueue(s, [e, id = ++e->recorded] {
    e->done = id;
    e->time = std::chrono::steady_clock::now();
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto *e = (Event *)event;
  while (e->done < e->recorded)
    if (!advance_any()) fail("an event is never recorded");
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto *e = (Event *)event;
  if (e->done < e->recorded) advance_any();
  return e->done < e->recorded ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {  // of the emulation, not of a GPU
  *ms = std::chrono::duration<float, std::milli>(((Event *)to)->time - ((Event *)from)->time).count();
  return cudaSuccess;
}

// ---- the device

static int devices() {
  static const int n = atoi(setting("EMU_DEVICES", "1"));
  return n;
}
cudaError_t cudaGetDeviceCount(int *n) {
  *n = devices();
  return *n ? cudaSuccess : refuse(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int d) { return d >= 0 && d < devices() ? cudaSuccess : refuse(cudaErrorInvalidDevice); }
cudaError_t cudaGetDevice(int *d) {
  *d = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int d) {
  if (d < 0 || d >= devices()) return refuse(cudaErrorInvalidDevice);
  *p = cudaDeviceProp{};
  snprintf(p->name, sizeof p->name, "cuda_on_cpu");
  size_t left;
  cudaMemGetInfo(&left, &p->totalGlobalMem);
  p->major = 9;
  p->minor = 0;
  p->warpSize = WARP;
  p->maxThreadsPerBlock = MAX_THREADS;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = MAX_SHARED;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->multiProcessorCount = 4;
  p->maxBlocksPerMultiProcessor = 32;
  p->l2CacheSize = 50 << 20;
  p->unifiedAddressing = 1;
  p->asyncEngineCount = 1;
  p->concurrentKernels = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int d) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, d) != cudaSuccess) return last_error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = (int)p.sharedMemPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = (int)p.sharedMemPerBlockOptin;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = (int)p.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    default:
      fail("cudaDeviceGetAttribute of attribute %d is not emulated", (int)attribute);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) { return cudaRuntimeGetVersion(v); }

// ---- errors

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

struct Text {
  cudaError_t error;
  const char *name, *text;
};
static const Text &text_of(cudaError_t e) {
  static const Text known[] = {
      {cudaSuccess, "cudaSuccess", "no error"},
      {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
      {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
      {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
      {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
       "CUDA driver version is insufficient for CUDA runtime version"},
      {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
      {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
      {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
      {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
      {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"}};
  const Text *t = known;
  while (t->error != e && t->error != cudaErrorUnknown) t++;
  return *t;
}
const char *cudaGetErrorString(cudaError_t e) { return text_of(e).text; }
const char *cudaGetErrorName(cudaError_t e) { return text_of(e).name; }

}  // extern "C"
}  // namespace emu
