// bits_check.h: one function of plain:: and of cpu:: on the same arrays; every bit must be the same.
//
//   both(label, outputs, plain::f<float>, cpu::f, arguments...)
//
// calls the first once and the second with 1, 2 and 3 threads. Arguments: Slot{i} stands for outputs[i] (twice where a
// function works in place), a vector for its data, which must be left as they are; the rest is passed as it stands.
// An output lies between guards, and may have a part that the function must not write (levels of a carry, the padding
// between rows): those must keep their bits too, in both builds. Results must be finite: the promise is for finite
// values, and what a function forgot to write is a NaN.
#pragma once
#include "../layers/exact.cuh"
#include "check.h"
#include <string>
#include <vector>

namespace bits {

enum class Mode { quick, essential, all };
template <class T> T pick(Mode mode, T quick, T essential, T all) {
  return mode == Mode::quick ? quick : mode == Mode::essential ? essential : all;
}

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
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull;
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
  if (kind == Kind::zeros) return u % 8 < 3 ? 0.f : u % 8 < 6 ? -0.f : x;
  if (kind != Kind::tiny) return x;
  if (u % 4 == 0) return (float)((int)(u >> 32) % 7) * 1.4e-45f;
  return x * (u % 4 == 1 ? 1e-22f : u % 4 == 2 ? 1e-38f : 1e-10f);
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
  std::vector<float> x;          // as the function finds it; it gets the address of x[at]
  int64_t at = 0, n = 0;         // it may write x[at .. at+n), and of every ld of these the first `width`
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
  c.adds = adds, c.offset[0] = -n, c.offset[1] = n;
  return c;
}

// ---- the call
struct Slot { int i; };
inline float *given(Slot s, const std::vector<float *> &out) { return out[s.i]; }
template <class T> const T *given(const std::vector<T> &v, const std::vector<float *> &) { return v.data(); }
template <class T> const T &given(const T &x, const std::vector<float *> &) { return x; }

struct Inputs {  // what the vectors among the arguments held
  std::vector<std::vector<char>> copies;
  template <class T> void keep(const std::vector<T> &v) {
    copies.emplace_back((const char *)v.data(), (const char *)(v.data() + v.size()));
  }
  template <class T> void keep(const T &) {}
  size_t i = 0;
  template <class T> void compare(const std::string &label, const std::vector<T> &v) {
    const std::vector<char> &copy = copies[i++ % copies.size()];
    if (!copy.empty())
      check::that(!memcmp(copy.data(), v.data(), copy.size()), "%s: an input was changed", label.c_str());
  }
  template <class T> void compare(const std::string &, const T &) {}
};

struct Result {
  std::vector<std::vector<float>> x;  // guard, array, guard
  std::vector<float *> out;
  explicit Result(const std::vector<Array> &arrays) {
    for (const Array &a : arrays) {
      std::vector<float> whole(GUARD, poison());
      whole.insert(whole.end(), a.x.begin(), a.x.end()), whole.resize(whole.size() + GUARD, poison());
      x.push_back(whole);
    }
    for (size_t i = 0; i < x.size(); i++) out.push_back(x[i].data() + GUARD + arrays[i].at);
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

template <class Reference, class Fast, class... Args>
void both(const std::string &label, const std::vector<Array> &outputs, Reference reference, Fast fast,
          const Args &...args) {
  Inputs inputs;
  (inputs.keep(args), ...);
  Result want(outputs);
  reference(given(args, want.out)...);
  (inputs.compare(label + ": plain::", args), ...);
  for (size_t i = 0; i < outputs.size(); i++) check_bounds(label, "plain", outputs[i], want.x[i]);
  for (int threads = 1; threads <= 3; threads++) {
    if (cpu::set_threads(threads) != threads) break;  // built without OpenMP
    const std::string name = label + format(", %d thread%s", threads, threads > 1 ? "s" : "");
    Result got(outputs);
    fast(given(args, got.out)...);
    (inputs.compare(name + ": cpu::", args), ...);
    for (size_t i = 0; i < outputs.size(); i++) {
      check_bounds(name, "cpu", outputs[i], got.x[i]);
      if (!outputs[i].compared) continue;
      check::same_bits((name + ": " + outputs[i].name).c_str(), got.out[i], want.out[i],
                       (int64_t)outputs[i].x.size() - outputs[i].at);
    }
  }
}

}  // namespace bits
