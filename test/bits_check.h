// bits_check.h: one function of plain:: and of device:: on the same arrays; every bit must be the same. device:: is the
// backend of the include path: cpu or gpu.
//
//   both(label, outputs, plain::f<float>, device::f, arguments...)
//
// calls the first once and the second with 1, 2 and 3 threads where it has threads, on memory of the device. Arguments:
// Slot{i} stands for outputs[i] (twice where a function works in place), a vector for a copy of its data, which must be
// left as it is; the rest is passed as it stands. Returns what plain:: made of the outputs.
// An output lies between guards, and may have a part that the function must not write (levels of a carry, the padding
// between rows): those must keep their bits too, in both builds. Results must be finite: the promise is for finite
// values, and what a function forgot to write is a NaN.
#pragma once
#include "../layers/exact.cuh"
#include "check.h"
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace bits {

// emulated: few cases of every function, but of more than two blocks in each direction of a grid: for kernels that a CPU
// executes, about a thousand times slower
enum class Mode { emulated, quick, essential, all };
template <class T> T pick(Mode mode, T emulated, T quick, T essential, T all) {
  const T list[] = {emulated, quick, essential, all};
  return list[(int)mode];
}
// The first argument, if it is a mode, is taken out; the rest is for check::arguments
inline Mode mode_of(int &argc, char **argv) {
  const char *const words[] = {"emulated", "quick", "essential", "all"};
  const std::string word = argc > 1 ? argv[1] : "";
  for (int i = 0; i < 4; i++)
    if (word == words[i]) {
      for (int j = 1; j < argc; j++) argv[j] = argv[j + 1];
      argc--;
      return (Mode)i;
    }
  return Mode::essential;
}
using Sizes = std::vector<int64_t>;

// ---- values
enum class Kind { normal, large, tiny, zeros, equal, underflow };
constexpr Kind KINDS[] = {Kind::normal, Kind::large, Kind::tiny, Kind::zeros, Kind::equal, Kind::underflow};
inline const char *name_of(Kind kind) {
  static const char *const names[] = {"normal", "large", "tiny", "signed zeros", "all equal", "underflow"};
  return names[(int)kind];
}

struct Random {  // splitmix64 (Steele et al. 2014)
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  double unit() { return (double)(next() >> 11) * 0x1p-53; }
  float normal() {
    return (float)((unit() + unit() - 1) * 2.449489742783178);
  }  // a triangle; every mantissa bit random
};

inline float value(Random &r, Kind kind) {
  const float x = r.normal();
  const uint64_t u = r.next();
  if (kind == Kind::large) return 12 * x;
  if (kind == Kind::equal) return 0.37f;
  if (kind == Kind::underflow) return (u & 1 ? -1.4e-45f : 1.4e-45f) * (float)(u >> 1 & 1);  // chains that end in -0
  if (kind == Kind::zeros && u % 8 < 6) return u % 8 < 3 ? 0.f : -0.f;
  if (kind != Kind::tiny) return x;
  if (u % 4 == 0) return (float)((int)(u >> 32) % 7) * 1.4e-45f;
  const float scale[] = {0.f, 1e-22f, 1e-38f, 1e-10f};
  return x * scale[u % 4];
}
inline std::vector<float> values(int64_t n, Kind kind, uint64_t seed) {
  Random r{seed * 0x9e3779b97f4a7c15ull + 1};
  std::vector<float> x(n);
  for (float &v : x) v = value(r, kind);
  return x;
}

// ---- outputs
constexpr int64_t GUARD = 67;  // odd: the arrays themselves are not aligned to vectors
inline float poison() { return exact::bit_cast<float>(0x7fc0dead); }

struct Array {
  std::string name;
  std::vector<float> x;   // as the function finds it; it gets the address of x[at]
  int64_t at = 0, n = 0;  // it may write x[at .. at+n), and of every ld of these the first `width`
  int64_t ld = 1, width = 1;
  bool compared = true;
  bool writable(int64_t i) const { return i >= at && i < at + n && (i - at) % ld < width; }
};
inline Array fresh(const char *name, int64_t n) { return {name, std::vector<float>(n, poison()), 0, n}; }
inline Array rows(const char *name, int64_t count, int64_t ld, int64_t width) {
  return {name, std::vector<float>(count * ld, poison()), 0, count * ld, ld, width};
}
inline Array holding(const char *name, std::vector<float> x) { return {name, x, 0, (int64_t)x.size()}; }
// An output with one level of the counter before it and one behind it, as gradients and levels share one allocation
inline Array levels(const char *name, int64_t n, Kind kind, uint64_t seed) {
  Array a{name, values(3 * n, kind, seed), n, n};
  std::fill_n(a.x.begin() + n, n, poison());
  return a;
}
// What the fast form may destroy and the definition leaves: only its surroundings are compared
inline Array scratch(const char *name, int64_t n, Kind kind, uint64_t seed) {
  Array a = holding(name, values(n, kind, seed));
  a.compared = false;
  return a;
}
inline exact::Carry carry_of(int64_t n, int adds) {
  exact::Carry c;
  c.adds = adds;
  c.offset[0] = -n;
  c.offset[1] = n;
  return c;
}

// ---- memory of the fast side
constexpr bool ON_HOST = std::is_pointer<decltype(device::on_host((const float *)nullptr, 0))>::value;

template <class T> struct HostMemory {  // a vector: a sanitizer knows its ends
  std::vector<T> x;
  T *data;
  HostMemory(const T *from, int64_t n)
      : x(from, from + n),
        data(x.data()) {}
  std::vector<T> on_host() const { return x; }
};
template <class T> struct GpuMemory {
  device::Buffer<T> x;
  T *data;
  GpuMemory(const T *from, int64_t n)
      : x(n, "an array"),
        data(x.data) {
    device::upload(data, from, n);
  }
  std::vector<T> on_host() const {
    std::vector<T> host((size_t)x.n);
    device::download(host.data(), data, x.n);
    return host;
  }
};
template <class T> using Memory = std::conditional_t<ON_HOST, HostMemory<T>, GpuMemory<T>>;

// ---- the call
struct Slot {
  int i;
};
template <template <class> class M, class T> struct Argument {  // passed as it stands
  const T &x;
  explicit Argument(const T &x)
      : x(x) {}
  const T &given(const std::vector<float *> &) const { return x; }
  bool unchanged() const { return true; }
};
template <template <class> class M> struct Argument<M, Slot> {
  Slot slot;
  explicit Argument(Slot slot)
      : slot(slot) {}
  float *given(const std::vector<float *> &out) const { return out[slot.i]; }
  bool unchanged() const { return true; }
};
template <template <class> class M, class T> struct Argument<M, std::vector<T>> {
  const std::vector<T> &before;
  M<T> memory;
  explicit Argument(const std::vector<T> &x)
      : before(x),
        memory(x.data(), (int64_t)x.size()) {}
  const T *given(const std::vector<float *> &) const { return memory.data; }
  bool unchanged() const {
    const std::vector<T> now = memory.on_host();
    return before.empty() || !memcmp(now.data(), before.data(), before.size() * sizeof(T));
  }
};

inline bool same(float a, float b) { return !memcmp(&a, &b, sizeof a); }

inline void check_bounds(const std::string &label, const char *build, const Array &a, const std::vector<float> &whole) {
  const int64_t size = (int64_t)a.x.size();
  for (int64_t i = -GUARD; i < size + GUARD; i++) {
    const float now = whole[i + GUARD], before = i < 0 || i >= size ? poison() : a.x[i];
    if (a.writable(i) ? now - now == 0 : same(now, before)) continue;
    check::that(false, "%s: %s::, %s[%lld] %s", label.c_str(), build, a.name.c_str(), (long long)(i - a.at),
                a.writable(i) ? "is not finite, or was not written" : "was written, but is not part of the result");
    return;
  }
}

// f with outputs and copies of the vectors in memory M; returns each output as guard, array, guard
template <template <class> class M, class F, class... Args>
std::vector<std::vector<float>> call(const std::string &label, const char *build, const std::vector<Array> &outputs,
                                     F f, const Args &...args) {
  std::vector<M<float>> memory;
  std::vector<float *> out;
  memory.reserve(outputs.size());
  for (const Array &a : outputs) {
    std::vector<float> whole(GUARD, poison());
    whole.insert(whole.end(), a.x.begin(), a.x.end());
    whole.resize(whole.size() + GUARD, poison());
    memory.emplace_back(whole.data(), (int64_t)whole.size());
    out.push_back(memory.back().data + GUARD + a.at);
  }
  const std::tuple<Argument<M, Args>...> held(args...);
  std::apply([&](const auto &...a) { f(a.given(out)...); }, held);
  std::apply(
      [&](const auto &...a) {
        check::that((a.unchanged() && ...), "%s: %s::, an input was changed", label.c_str(), build);
      },
      held);
  std::vector<std::vector<float>> results;
  for (size_t i = 0; i < outputs.size(); i++) {
    results.push_back(memory[i].on_host());
    check_bounds(label, build, outputs[i], results[i]);
  }
  return results;
}

template <class Reference, class Fast, class... Args>
std::vector<std::vector<float>> both(const std::string &label, const std::vector<Array> &outputs, Reference reference,
                                     Fast fast, const Args &...args) {
  std::vector<std::vector<float>> want = call<HostMemory>(label, "plain", outputs, reference, args...);
  for (int threads = 1; threads <= 3; threads++) {
    if (device::set_threads(threads) != threads) break;  // no more than that
    const std::string name = label + format(", %d thread%s", threads, threads > 1 ? "s" : "");
    const std::vector<std::vector<float>> got = call<Memory>(name, "device", outputs, fast, args...);
    for (size_t i = 0; i < outputs.size(); i++) {
      const int64_t first = GUARD + outputs[i].at;
      if (outputs[i].compared)
        check::same_bits((name + ": " + outputs[i].name).c_str(), &got[i][first], &want[i][first],
                         (int64_t)outputs[i].x.size() - outputs[i].at);
    }
  }
  for (size_t i = 0; i < outputs.size(); i++)
    want[i] = std::vector<float>(want[i].begin() + GUARD, want[i].end() - GUARD);
  return want;
}

}  // namespace bits
