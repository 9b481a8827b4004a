// plain/memory.cuh: memory where the device is the CPU itself: what gpu/launch.cuh does between host and GPU.
#pragma once
#include "../device.cuh"
#include <sys/mman.h>
#include <algorithm>
#include <cerrno>
#include <utility>

namespace plain {

// Zeroed memory, owned; n elements, page-aligned, in huge pages where the system has them. Fails with a sentence that
// names what it was for.
template <class T> struct Buffer {
  T *data = nullptr;
  int64_t n = 0;
  Buffer() = default;
  Buffer(int64_t n, const char *what)
      : n(n) {
    void *p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw Error(format("cannot allocate %.1f MB for %s: %s", (double)bytes() / 1e6, what, strerror(errno)));
    data = (T *)p;
    if (bytes() >= 4 << 20) madvise(p, bytes(), MADV_HUGEPAGE);
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
    if (data) munmap(data, bytes());
  }
  T &operator[](int64_t i) const { return data[i]; }
  size_t bytes() const { return (size_t)round_up((n > 0 ? n : 1) * (int64_t)sizeof(T), 4096); }
};

// ---- between host and device: the same memory here
template <class T> void fill(T *p, int64_t n, T value) { std::fill_n(p, n, value); }
template <class T> void copy(T *to, const T *from, int64_t n) { std::copy_n(from, n, to); }
template <class T> void upload(T *to, const T *host, int64_t n) { std::copy_n(host, n, to); }
template <class T> void download(T *host, const T *from, int64_t n) { std::copy_n(from, n, host); }
template <class T> const T *on_host(const T *p, int64_t) { return p; }  // what the host can read and index

}  // namespace plain
