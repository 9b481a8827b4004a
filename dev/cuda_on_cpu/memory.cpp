// memory.cpp: device memory and copies.
//
// An allocation has pages of its own. It ends (rounded up to 256 bytes) at a page that may not be touched, so a kernel
// that runs over the end stops at once; what lies between, and a little before the start, is guarded by a pattern that
// is looked at after every kernel. Addresses are never used twice: a freed allocation stays forbidden.
// New memory is NaN (0xff) at any size: large allocations are mapped, copy on write, from one file of such bytes, so
// they cost nothing until they are written. Under AddressSanitizer allocations come from its heap, and only the first
// 16 MB are NaN.
#include "emulator.h"
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>

namespace emu {

constexpr size_t ARENA = (size_t)256 << 30, LARGE = 16 << 20, ALIGN = 256, BEFORE = 64;  // bytes
constexpr int POISON = 0xff, GUARD = 0xa5;

static auto &allocations = *new std::vector<Allocation>(1);  // never destroyed: the program may free at its very end
static auto &alive = *new std::map<const char *, uint32_t>;  // by start
static auto &pinned = *new std::map<const char *, size_t>;
static char *arena, *arena_next;
static size_t in_use;

const Allocation &allocation(uint32_t owner) { return allocations[owner]; }
static size_t round_to(size_t n, size_t to) { return (n + to - 1) / to * to; }
static char *page_of(const char *p) { return (char *)((uintptr_t)p / PAGE * PAGE); }
static char *end_of(const Allocation &a) { return a.start + round_to(a.size, ALIGN); }

// Not memset: AddressSanitizer would look at every byte, and some of these are redzones.
void fill_bytes(void *p, int value, size_t bytes) {
  asm volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(value) : "memory");
}

static bool in_arena(const void *p) { return arena && (size_t)((const char *)p - arena) < ARENA; }
static const Allocation *find(const void *p, size_t bytes) {
  auto next = alive.upper_bound((const char *)p);
  if (next == alive.begin()) return nullptr;
  const Allocation &a = allocations[std::prev(next)->second];
  return (const char *)p + bytes <= a.start + a.size ? &a : nullptr;
}

// ---- allocations

static void make_arena() {
  void *p = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("cannot reserve %zu GB of addresses: %s", ARENA >> 30, strerror(errno));
  arena = arena_next = (char *)p;
  set_space(Space::global, arena, ARENA);
}
static bool map_poison(char *start, size_t bytes) {
  static const int file = [] {
    const int f = memfd_create("poison", 0);
    const std::vector<char> page(LARGE, (char)POISON);
    return f >= 0 && write(f, page.data(), LARGE) == (ssize_t)LARGE ? f : -1;
  }();
  for (size_t at = 0; at < bytes; at += LARGE) {
    const size_t n = std::min(bytes - at, LARGE);
    if (mmap(start + at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
      return false;
  }
  return true;
}
static char *take_pages(size_t size) {
  if (!arena) make_arena();
  const size_t bytes = round_to(size, ALIGN), whole = round_to(bytes, PAGE);
  if (arena_next + whole + PAGE > arena + ARENA) fail("all %zu GB of addresses have been handed out", ARENA >> 30);
  char *first = arena_next, *start = first + whole - bytes;
  if (whole >= LARGE) {
    if (!map_poison(first, whole)) return nullptr;
  } else {
    if (mprotect(first, whole, PROT_READ | PROT_WRITE)) return nullptr;
    fill_bytes(start, POISON, size);
  }
  fill_bytes(first, GUARD, (size_t)(start - first));
  fill_bytes(start + size, GUARD, bytes - size);
  set_owner(first, whole + PAGE, (uint32_t)allocations.size());
  arena_next += whole + PAGE;
  return start;
}
static void drop_pages(const Allocation &a) {
  char *first = page_of(a.start);
  const size_t bytes = (size_t)(end_of(a) - first);
  forget_cells(first, bytes);
  mmap(first, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool guarded(const char *p, size_t n) {
  static const std::string pattern(ALIGN, (char)GUARD);
  return !memcmp(p, pattern.data(), n);
}
static void check_guard(const Allocation &a) {
  const size_t before = std::min((size_t)(a.start - page_of(a.start)), BEFORE);
  const char *end = a.start + a.size;
  for (const char *p : {(const char *)a.start - before, end})
    if (!guarded(p, p == end ? (size_t)(end_of(a) - end) : before))
      fail("%s wrote just %s the allocation %p of %zu bytes", function_name(running.kernel).c_str(),
           p == end ? "behind" : "before", (void *)a.start, a.size);
}
void check_guards() {
  if (has_asan() || checking) return;  // exact anyway
  for (const auto &a : alive) check_guard(allocations[a.second]);
}

extern "C" cudaError_t cudaMalloc(void **p, size_t bytes) {
  static const int64_t capacity = bytes_of(setting("EMU_MEMORY", "16G"));
  if (!p) return last_error = cudaErrorInvalidValue;
  *p = nullptr;
  if (!bytes) return cudaSuccess;
  if ((int64_t)(in_use + bytes) > capacity) return last_error = cudaErrorMemoryAllocation;
  Allocation a{nullptr, bytes, true};
  if (has_asan()) {
    if (posix_memalign((void **)&a.start, ALIGN, bytes)) a.start = nullptr;
    if (a.start) fill_bytes(a.start, POISON, std::min(bytes, LARGE));
  } else {
    a.start = take_pages(bytes);
  }
  if (!a.start) return last_error = cudaErrorMemoryAllocation;
  alive[a.start] = (uint32_t)allocations.size();
  allocations.push_back(a);
  in_use += bytes;
  *p = a.start;
  return cudaSuccess;
}
extern "C" cudaError_t cudaFree(void *p) {
  drain_all();
  if (!p) return cudaSuccess;
  const auto found = alive.find((const char *)p);
  if (found == alive.end()) return last_error = cudaErrorInvalidValue;
  Allocation &a = allocations[found->second];
  if (has_asan())
    free(p);
  else
    drop_pages(a);
  a.alive = false;
  in_use -= a.size;
  alive.erase(found);
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *total = (size_t)bytes_of(setting("EMU_MEMORY", "16G"));
  *left = *total - in_use;
  return cudaSuccess;
}
extern "C" cudaError_t cudaMallocHost(void **p, size_t bytes) {
  *p = malloc(bytes ? bytes : 1);
  if (!*p) return last_error = cudaErrorMemoryAllocation;
  pinned[(char *)*p] = bytes;
  return cudaSuccess;
}
extern "C" cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) { return cudaMallocHost(p, bytes); }
extern "C" cudaError_t cudaFreeHost(void *p) {
  drain_all();
  if (!p) return cudaSuccess;
  if (!pinned.erase((char *)p)) return last_error = cudaErrorInvalidValue;
  free(p);
  return cudaSuccess;
}

// ---- copies

static bool is_pinned(const void *p) {
  const auto next = pinned.upper_bound((const char *)p);
  return next != pinned.begin() && (const char *)p < std::prev(next)->first + std::prev(next)->second;
}
static void to_host(void *to, const void *from, size_t bytes, uintptr_t caller) {
  if (const char *p = first_unwritten(from, bytes)) {
    const Allocation &a = *find(from, bytes);
    fail("%s: copy to the host of memory that was never written: byte %td of the allocation %p of %zu bytes",
         place(caller).c_str(), p - a.start, (void *)a.start, a.size);
  }
  memcpy(to, from, bytes);
}
static cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                        uintptr_t caller) {
  if (!is_stream(stream)) return last_error = cudaErrorInvalidResourceHandle;
  if (!bytes) return cudaSuccess;
  const bool to_device = find(to, bytes), from_device = find(from, bytes);
  const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (says_to != to_device || says_from != from_device))
    return last_error = cudaErrorInvalidValue;
  for (const auto &[p, device] : {std::pair(to, to_device), std::pair((void *)from, from_device)})
    if (!device && (find(p, 1) || in_arena(p))) return last_error = cudaErrorInvalidValue;  // over an end, or freed
  if (!from_device && to_device) {
    const void *source = from;
    std::shared_ptr<void> staged;
    if (runs_late() && !is_pinned(from)) {  // the host may change pageable memory as soon as the call has returned
      staged.reset(malloc(bytes), free);
      source = memcpy(staged.get(), from, bytes);
    }
    enqueue(stream, [=] {
      memcpy(to, source, bytes);
      (void)staged;
      set_written(to, bytes, true);
      return true;
    });
  } else if (from_device && to_device) {
    enqueue(stream, [=] {
      memmove(to, from, bytes);
      copy_written(to, from, bytes);
      return true;
    });
  } else if (from_device) {
    enqueue(stream, [=] {
      to_host(to, from, bytes, caller);
      return true;
    });
    if (!is_pinned(to)) drain(stream);
  } else {
    enqueue(stream, [=] {
      memcpy(to, from, bytes);
      return true;
    });
  }
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream, CALLER);
}
extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind, nullptr, CALLER);
}
// Large zeroed ranges cost nothing either
static void set_bytes(char *p, int value, size_t bytes) {
  char *first = page_of(p + PAGE - 1), *last = page_of(p + bytes);
  const bool map = !has_asan() && value == 0 && bytes >= LARGE &&
                   mmap(first, (size_t)(last - first), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  memset(p, value, map ? (size_t)(first - p) : bytes);
  if (map) memset(last, value, (size_t)(p + bytes - last));
  set_written(p, bytes, true);
}
extern "C" cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  if (!is_stream(stream)) return last_error = cudaErrorInvalidResourceHandle;
  if (!bytes) return cudaSuccess;
  if (!find(p, bytes)) return last_error = cudaErrorInvalidValue;
  enqueue(stream, [=] {
    set_bytes((char *)p, value, bytes);
    return true;
  });
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);
}

}  // namespace emu
