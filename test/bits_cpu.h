// bits_cpu.h: of test_bits, what concerns the cpu build alone: its vectors, and the sizes around its tiles.
#pragma once
#include "bits_check.h"

template <class F> void with_little_scratch(F f) { f(); }
// For processors with other caches than this one's: chains in shorter and longer pieces, fewer and more rows at a time
template <class F> void with_other_caches(F f) {
  const cpu::Blocks own = cpu::blocks();
  for (const cpu::Caches &x : {cpu::Caches{8 << 10, 128 << 10}, {48 << 10, 2 << 20}, {192 << 10, 1 << 20}}) {
    cpu::blocks() = cpu::blocks_for(x);
    cpu::blocks().packed = x.l2 / 8;
    f();
  }
  cpu::blocks() = own;
}

// Every number of rows up to two tiles and one, columns in steps
inline std::vector<Edge> edges(int64_t rows, int64_t columns, int64_t step) {
  std::vector<Edge> x;
  for (int64_t i = 1; i <= rows; i++)
    for (int64_t j = 1 + i % step; j <= columns; j += step) x.push_back({i, j, 0});
  return x;
}
inline std::vector<Edge> product_edges(Mode mode) {
  std::vector<Edge> x = edges(2 * cpu::MR + 1, 2 * cpu::NR + 1, pick<int64_t>(mode, 7, 7, 3, 1));
  for (Edge &e : x) e.chain = 1 + (e.rows + e.columns) % 19;
  return x;
}
inline std::vector<Edge> dweight_edges(Mode mode) {
  std::vector<Edge> x = edges(2 * cpu::SH + 1, 2 * cpu::NR + 1, pick<int64_t>(mode, 11, 11, 4, 1));
  for (Edge &e : x) e.chain = 1 + (3 * e.rows + e.columns) % 11;
  return x;
}
inline Sizes attention_edges(Mode mode) {
  Sizes lengths;
  for (int64_t T = 1; T <= 3 * cpu::AR * 4 + 5; T += pick<int64_t>(mode, 5, 5, 1, 1)) lengths.push_back(T);
  return lengths;
}

inline void compare_lanes(const char *name, const float *x, cpu::vec got, float (*want)(float)) {
  for (int i = 0; i < cpu::VL; i++) {
    const float g = got[i], w = want(x[i]);
    if (!same(g, w)) check::that(false, "%s(%.9g): got %.9g want %.9g", name, (double)x[i], (double)g, (double)w);
  }
}
inline void test_elementary(Mode mode) {
  const uint64_t stride = pick<uint64_t>(mode, 262147, 262147, 4099, 257);  // primes
  check::test("exp_neg and sigmoid of vectors, over all exponents", [&] {
    float x[cpu::VL] = {};
    int n = 0;
    const auto push = [&](uint32_t pattern) {
      x[n++] = exact::bit_cast<float>(pattern);
      if (n < cpu::VL) return;
      n = 0;
      compare_lanes("sigmoid", x, cpu::sigmoid(cpu::load(x)), exact::sigmoid<float>);
      for (float &v : x) v = v > 0 ? -v : v;
      compare_lanes("exp_neg", x, cpu::exp_neg(cpu::load(x)), exact::exp_neg);
    };
    const uint32_t infinity = 0x7f800000, cut = exact::bit_cast<uint32_t>(87.f);
    for (uint64_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
      for (uint64_t p = 0; p <= infinity; p += stride) push((uint32_t)(sign | p));
      for (uint32_t p = cut - 200; p < cut + 200; p++) push((uint32_t)sign | p);
      for (uint32_t p = 0; p < 64; p++) push((uint32_t)sign | p);
    }
  });
}
inline void test_lanes() {
  check::test("lane sums of vectors, every length", [] {
    Count seed;
    for (int64_t n = 0; n <= 130; n++)
      for (Kind kind : KINDS) {
        const std::vector<float> a = values(n, kind, seed.next()), b = values(n, kind, seed.n + 1);
        const float got = cpu::lane_dot(a.data(), b.data(), n), want = exact::lane_dot(a.data(), b.data(), n);
        check::same_bits(sizes("lane_dot n", {n}, kind).c_str(), &got, &want, 1);
      }
    // every product underflows to -0: a lane that an absent element touched would be +0
    for (int64_t n : {32, 33, 47, 63, 65, 96}) {
      const std::vector<float> a(n, 1e-30f), b(n, -1e-30f);
      const float got = cpu::lane_dot(a.data(), b.data(), n), want = -0.f;
      check::same_bits(sizes("all -0 n", {n}, Kind::underflow).c_str(), &got, &want, 1);
    }
  });
}

inline void test_build(Mode mode) {
  test_elementary(mode);
  test_lanes();
}
