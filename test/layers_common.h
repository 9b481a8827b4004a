// layers_common.h: what the tests of layers/ share: test inputs, comparisons, and the sums over sequences in passes.
#pragma once
#include "layers/plain/backend.cuh"
#include "layers/random.cuh"
#include "test/check.h"
#include "test/difference.h"
#include "test/golden.h"
#include <algorithm>
#include <limits>
#include <numeric>

using check::that;
template <class real> using Vec = std::vector<real>;
const double TO_GOLDEN = 1e-10;

template <class real> Vec<real> random(int64_t n, uint64_t seed, double scale = 1, double shift = 0) {
  Vec<real> x(n);
  for (int64_t i = 0; i < n; i++) x[i] = (real)(shift + scale * rng::normal(seed, i));
  return x;
}
inline Vec<int32_t> random_tokens(int64_t n, uint64_t seed, int64_t V) {
  Vec<int32_t> x(n);
  for (int64_t i = 0; i < n; i++) x[i] = (int32_t)rng::below(seed, i, V);
  return x;
}
inline double dot(const Vec<double> &a, const Vec<double> &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.);
}
inline void close(const char *name, const Vec<double> &got, const Vec<double> &want, double tolerance = TO_GOLDEN) {
  const int have = (int)got.size(), need = (int)want.size();
  if (that(have == need && need > 0, "%s: %d entries, want %d", name, have, need))
    check::close(name, got.data(), want.data(), (int64_t)want.size(), tolerance);
}
template <class real> void same(const char *name, const Vec<real> &got, const Vec<real> &want) {
  if (that(got.size() == want.size(), "%s: sizes", name))
    check::same_bits(name, got.data(), want.data(), (int64_t)want.size());
}

// ---- gradients of parameters in passes

// s[0..n) as rule 3 brackets them: split before the largest power of two below n
template <class real> real tree(const real *s, int64_t n) {
  if (n == 1) return s[0];
  int64_t left = 1;
  while (2 * left < n) left *= 2;
  return tree(s, left) + tree(s + left, n - left);
}

// gradient(out, first, B, carry) writes n elements: the sum over the sequences first .. first+B-1, continued by the
// carry. Compares whole batches with the tree of single sequences, and passes with whole batches, bit for bit. What has
// not been written is NaN, and nothing but the n elements may be touched.
template <class real, class F> void sums_over_sequences(const char *name, int64_t n, F gradient) {
  const real nan = std::numeric_limits<real>::quiet_NaN(), guard = 12345;
  const int64_t stride = n + 3;
  for (int64_t B = 1; B <= 9; B++) {
    Vec<real> single(B * n), whole(stride, nan), sum(B), want(n);
    std::fill(whole.begin() + n, whole.end(), guard);
    for (int64_t b = 0; b < B; b++) gradient(&single[b * n], b, 1, exact::Carry{});
    for (int64_t i = 0; i < n; i++) {
      for (int64_t b = 0; b < B; b++) sum[b] = single[b * n + i];
      want[i] = tree(sum.data(), B);
    }
    gradient(whole.data(), 0, B, exact::Carry{});
    that(std::count(whole.begin() + n, whole.end(), guard) == 3, "%s: wrote behind the end", name);
    whole.resize(n);
    same(format("%s, B = %d", name, (int)B).c_str(), whole, want);
    for (int64_t pass = 1; pass < B; pass *= 2) {
      Vec<real> slots(6 * stride, nan);  // slot 0 is the result; the others hold the levels, placed backwards
      Vec<int64_t> used;
      for (int64_t p = 0; p * pass < B; p++) {
        const bool last = (p + 1) * pass >= B;
        size_t adds = 0;
        while (adds < used.size() && (last || p >> adds & 1)) adds++;
        int64_t place = last ? 0 : 5;
        while (std::count(used.begin(), used.end(), place)) place--;
        exact::Carry carry;
        for (size_t k = 0; k < adds; k++) carry.offset[carry.adds++] = (used[used.size() - 1 - k] - place) * stride;
        gradient(&slots[place * stride], p * pass, std::min(pass, B - p * pass), carry);
        used.resize(used.size() - adds);
        used.push_back(place);
      }
      slots.resize(n);
      same(format("%s, B = %d in passes of %d", name, (int)B, (int)pass).c_str(), slots, want);
    }
  }
}
// ... with inputs of very different sizes, so that another order gives other bits
template <class real> Vec<real> uneven(int64_t n, uint64_t seed) {
  Vec<real> x = random<real>(n, seed);
  for (int64_t i = 0; i < n; i++) x[i] *= (real)(1 << rng::below(seed, i, 8));
  return x;
}
