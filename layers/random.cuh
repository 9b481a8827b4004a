// random.cuh: counter-based random numbers (Philox4x32-10, Salmon et al. 2011). A number is a pure function of a key
// and a counter: no state, the same on every machine, for any number of threads.
//
//   key_of(seed, name)         key of one purpose ("embed", "order", ...)
//   uniform(key, i)            double in [0, 1), 53 bits
//   normal(key, i)             standard normal deviate (Box-Muller in double, our own log, sin, cos)
//   permute(key, i, n)         place of i in a permutation of 0..n-1 (Feistel network, cycle walking)
#pragma once
#include "exact.cuh"

namespace rng {

struct Words {
  uint32_t x[4];
};

HD inline Words philox(uint64_t key, uint64_t counter, uint64_t stream = 0) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  Words w{{(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = 0xD2511F53ull * w.x[0], b = 0xCD9E8D57ull * w.x[2];
    w = {{(uint32_t)(b >> 32) ^ w.x[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ w.x[3] ^ k1, (uint32_t)a}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return w;
}

// FNV-1a of the name, mixed with the seed by one Philox call
inline uint64_t key_of(uint64_t seed, const char *name) {
  uint64_t h = 14695981039346656037ull;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211ull;
  const Words w = philox(seed, h);
  return (uint64_t)w.x[1] << 32 | w.x[0];
}

HD inline double unit(uint32_t high, uint32_t low) {  // 53 bits, [0, 1)
  return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
HD inline double uniform(uint64_t key, uint64_t i) {
  const Words w = philox(key, i);
  return unit(w.x[0], w.x[1]);
}
// Elements 2k and 2k+1 are the cosine and sine of one draw
struct Pair {
  double even, odd;
};
HD inline Pair normal_pair(uint64_t key, uint64_t k) {
  const Words w = philox(key, k);
  const double u = 1 - unit(w.x[0], w.x[1]), angle = 6.283185307179586 * unit(w.x[2], w.x[3]);
  const double radius = exact::sqrt(-2 * exact::log(u));
  return {radius * exact::cos(angle), radius * exact::sin(angle)};
}
HD inline double normal(uint64_t key, uint64_t i) {
  const Pair pair = normal_pair(key, i / 2);
  return i % 2 ? pair.odd : pair.even;
}
HD inline uint64_t below(uint64_t key, uint64_t i, uint64_t n) {  // 0..n-1; n < 2^53, bias under n / 2^53
  const uint64_t x = (uint64_t)(uniform(key, i) * (double)n);
  return x < n ? x : n - 1;
}

// A bijection of 0..n-1: four Feistel rounds on the smallest even number of bits that hold n, walked until below n
HD inline uint64_t permute(uint64_t key, uint64_t i, uint64_t n) {
  int half = 1;
  while (half < 31 && (1ull << (2 * half)) < n) half++;
  const uint64_t mask = (1ull << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < 4; round++) {
      const uint64_t mixed = philox(key, right, round + 1).x[0] & mask, next = left ^ mixed;
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

}  // namespace rng
