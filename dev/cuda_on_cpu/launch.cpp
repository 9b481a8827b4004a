// launch.cpp: from a launch to its blocks, which run one after the other, in the order of EMU_ORDER; shared memory; and
// the report that EMU_REPORT=FILE (or -) asks for at the end of the program.
#include "emulator.h"
#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

namespace emu {

// ---- shared memory

static Range dynamic;  // of the running kernel: the end of a mapping, before a page that may not be touched
const Range &dynamic_range() { return dynamic; }
void *dynamic_shared() {
  if (!current) fail("DYNAMIC_SHARED in host code");
  return dynamic.start;
}

extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void *start, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *start, size_t bytes);
}
static void take_dynamic(size_t bytes) {
  constexpr size_t WHOLE = (MAX_SHARED + PAGE) / PAGE * PAGE;
  static char *const start = [] {
    void *p = mmap(nullptr, WHOLE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("no memory for dynamic shared memory");
    mprotect((char *)p + WHOLE, PAGE, PROT_NONE);
    set_space(Space::dynamic_shared, p, WHOLE + PAGE);
    return (char *)p;
  }();
  dynamic = {start + WHOLE - (bytes + 15) / 16 * 16, bytes};
  if (!has_asan()) return;
  __asan_poison_memory_region(start, WHOLE);
  __asan_unpoison_memory_region(dynamic.start, bytes);
}

// A variable of a kernel is called _ZZ<kernel>E..., where the kernel is called _Z<kernel>; others belong to functions
// that any kernel may call.
static bool belongs(const Symbol &variable, const std::string &function) {
  return function.size() > 2 && !variable.name.compare(2, function.size() - 1, function.substr(1) + "E");
}
static const std::string &symbol_of(const void *kernel) {
  static auto &names = *new std::map<const void *, std::string>;
  std::string &name = names[kernel];
  if (name.empty())
    for (const Symbol &f : image().functions)
      if (f.start == (uintptr_t)kernel) name = f.name;
  return name;
}
size_t static_shared(const void *kernel) {
  size_t bytes = 0;
  for (const Symbol &v : image().shared)
    if (belongs(v, symbol_of(kernel))) bytes += v.size;
  return bytes;
}
// Its own variables, and those of functions that were never launched
static const std::vector<const Symbol *> &variables_of(const void *kernel) {
  static auto &launched = *new std::set<std::string>;
  static auto &lists = *new std::map<const void *, std::vector<const Symbol *>>;
  const std::string &mine = symbol_of(kernel);
  if (launched.insert(mine).second) lists.clear();
  const auto found = lists.find(kernel);
  if (found != lists.end()) return found->second;
  auto &list = lists[kernel];
  for (const Symbol &v : image().shared)
    if (belongs(v, mine) || std::none_of(launched.begin(), launched.end(), [&](auto &f) { return belongs(v, f); }))
      list.push_back(&v);
  return list;
}
static void spoil_shared(const std::vector<const Symbol *> &variables) {
  for (const Symbol *v : variables) {
    fill_bytes((void *)v->start, 0xff, v->size);
    set_written((void *)v->start, v->size, false);
  }
  fill_bytes(dynamic.start, 0xff, dynamic.size);
  set_written(dynamic.start, dynamic.size, false);
}

// ---- the report

static int64_t volume(dim3 d) { return (int64_t)d.x * d.y * d.z; }
struct Row {
  int64_t launches = 0, blocks = 0, threads = 0, writers = 0;
  dim3 grid{0, 0, 0}, block{0, 0, 0};
};
static auto &rows = *new std::map<const void *, Row>;
static std::string text(dim3 d) { return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z); }
static void write_report() {
  const char *name = setting("EMU_REPORT", "-");
  FILE *f = strcmp(name, "-") ? fopen(name, "w") : stdout;
  if (!f) {
    fprintf(stderr, "cuda_on_cpu: cannot write EMU_REPORT=%s\n", name);
    return;
  }
  std::map<std::string, Row> by_name;  // the two pointers of a name, if ever, are one row
  for (const auto &[kernel, row] : rows) by_name[function_name(kernel)] = row;
  fprintf(f, "%9s %16s %14s %11s %12s %12s  %s\n", "launches", "largest grid", "largest block", "blocks", "threads",
          "writers", "kernel");
  for (const auto &[kernel, r] : by_name)
    fprintf(f, "%9lld %16s %14s %11lld %12lld %12s  %s\n", (long long)r.launches, text(r.grid).c_str(),
            text(r.block).c_str(), (long long)r.blocks, (long long)r.threads,
            checking ? std::to_string(r.writers).c_str() : "-", kernel.c_str());
  if (f != stdout) fclose(f);
}

// ---- launches

static auto &largest_shared = *new std::map<const void *, int>;

// The i-th block to run, in the order of EMU_ORDER; shuffled: for `random`
static int64_t block_at(int64_t i, int64_t blocks, const std::vector<int64_t> &shuffled) {
  if (order() == 'r') return shuffled[(size_t)i];
  return order() == 'd' ? blocks - 1 - i : i;
}
static void run_blocks() {
  const dim3 g = running.grid;
  const int64_t blocks = volume(g);
  set_threads((int)volume(running.block));
  blockDim = running.block;
  gridDim = g;
  take_dynamic(running.shared);
  const auto &variables = variables_of(running.kernel);
  set_static_shared(variables);
  launch_begins();
  Row &row = rows[running.kernel];
  row.launches++;
  row.blocks += blocks;
  row.threads += blocks * threads;
  if (blocks > volume(row.grid)) row.grid = g;
  if (threads > volume(row.block)) row.block = running.block;
  std::vector<int64_t> shuffled((size_t)(order() == 'r' ? blocks : 0));
  for (size_t i = 0; i < shuffled.size(); i++) shuffled[i] = (int64_t)i;
  for (size_t i = shuffled.size(); i > 1; i--) std::swap(shuffled[i - 1], shuffled[draw(i)]);
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t id = block_at(i, blocks, shuffled);
    spoil_shared(variables);
    block_begins();
    run_block((unsigned)(id % g.x), (unsigned)(id / g.x % g.y), (unsigned)(id / g.x / g.y));
    if (checking) row.writers += writers();
  }
  check_guards();
}
static void run(const Launch &what) {
  static std::atomic<bool> busy{false};
  if (busy.exchange(true)) fail("two threads of the host, or a kernel, launch kernels at the same time");
  running = what;
  run_blocks();
  what.destroy(what.args);
  busy = false;
}
static bool begin() {
  image();
  catch_faults();
  if (getenv("EMU_REPORT")) atexit(write_report);
  return true;
}

cudaError_t launch(const cudaLaunchConfig_t *config, void (*body)(void *), void (*destroy)(void *), void *args,
                   size_t args_size, const void *kernel) {
  static const bool begun = begin();
  (void)begun;
  const dim3 g = config->gridDim, d = config->blockDim;
  const auto limit = largest_shared.find(kernel);
  cudaError_t error = cudaSuccess;
  if (volume(d) < 1 || volume(d) > MAX_THREADS || d.z > 64 || volume(g) < 1 || g.x > 0x7fffffffu || g.y > 65535 ||
      g.z > 65535)
    error = cudaErrorInvalidConfiguration;
  else if (config->dynamicSmemBytes > (size_t)(limit == largest_shared.end() ? 48 << 10 : limit->second))
    error = cudaErrorInvalidValue;
  else if (!is_stream(config->stream))
    error = cudaErrorInvalidResourceHandle;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) fail("clusters of blocks are not emulated");
  if (error != cudaSuccess) {
    destroy(args);
    return last_error = error;
  }
  const Launch what{g, d, config->dynamicSmemBytes, body, destroy, args, args_size, kernel};
  enqueue(config->stream, [what] {
    run(what);
    return true;
  });
  return cudaSuccess;
}

cudaError_t set_attribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || (size_t)value + static_shared(kernel) > MAX_SHARED) return last_error = cudaErrorInvalidValue;
  largest_shared[kernel] = value;
  return cudaSuccess;
}
extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel) {
  const auto limit = largest_shared.find(kernel);
  *attributes = cudaFuncAttributes{};
  attributes->sharedSizeBytes = static_shared(kernel);
  attributes->maxThreadsPerBlock = MAX_THREADS;
  attributes->maxDynamicSharedSizeBytes = limit == largest_shared.end() ? 48 << 10 : limit->second;
  return cudaSuccess;
}

}  // namespace emu
