// bits_gpu.h: of test_bits, what concerns the gpu builds alone: the arithmetic of the device, lane sums of a warp, and
// the sizes around its tiles.
#pragma once
#include "bits_check.h"

// ---- sizes: tiles of 64 x 64 outputs, 16 links of a chain; attention's of 32
inline std::vector<Edge> edges(Mode mode) {
  const Sizes ends = {1, 7, 33, 63, 64, 65, 129, 200}, chains = {1, 15, 16, 17, 33, 40};
  std::vector<Edge> x;
  for (size_t i = 0; i < ends.size(); i++)
    for (size_t j = 0; j < ends.size(); j++)
      if (mode != Mode::emulated || i == j || (i * 3 + 1) % 8 == j)
        x.push_back({ends[i], ends[j], chains[x.size() % 6]});
  return x;
}
inline std::vector<Edge> product_edges(Mode mode) {  // the columns of forward are OC, those of dinp are C
  std::vector<Edge> x;
  for (const Edge &e : edges(mode)) {
    x.push_back(e);
    x.push_back({e.rows, e.chain, e.columns});
  }
  return x;
}
inline std::vector<Edge> dweight_edges(Mode mode) { return edges(mode); }
inline Sizes attention_edges(Mode mode) {
  if (mode == Mode::emulated) return {2, 31, 32, 63, 64, 97};
  Sizes lengths;
  for (int64_t T = 1; T <= 4 * 32 + 5; T += mode == Mode::quick ? 5 : 1) lengths.push_back(T);
  return lengths;
}

// ---- scratch
template <class F> void with_other_caches(F) {}
template <class F> void with_little_scratch(F f) {
  const int64_t floats = gpu::context().slab_floats;
  gpu::context().slab_floats = 700;
  f();
  gpu::context().slab_floats = floats;
}

// ---- arithmetic
constexpr int FUNCTIONS = 5;
HD inline float elementary(int f, float x, float y) {
  const float positive = x < 0 ? -x : x;
  switch (f) {
    case 0:
      return exact::exp_neg(-positive);
    case 1:
      return exact::sigmoid(x);
    case 2:
      return exact::log(positive);
    case 3:
      return exact::sqrt(positive);
    default:
      return x / y;
  }
}
__global__ void elementary_kernel(float *out, const float *x, const float *y, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (int f = 0; f < FUNCTIONS && i < n; f++) out[f * n + i] = elementary(f, x[i], y[i]);
}
inline void compare_elementary(const std::vector<float> &x, uint64_t seed) {
  const char *const names[] = {"exp_neg", "sigmoid", "log", "sqrt", "a quotient"};
  const int64_t n = (int64_t)x.size();
  const std::vector<float> y = values(n, kind_number((int64_t)seed), seed);
  const Memory<float> out(std::vector<float>(FUNCTIONS * n).data(), FUNCTIONS * n), dx(x.data(), n), dy(y.data(), n);
  gpu::launch(elementary_kernel, gpu::blocks_of(n, 256), dim3(256), 0, gpu::context().stream, out.data, dx.data,
              dy.data, n);
  const std::vector<float> got = out.on_host();
  for (int f = 0; f < FUNCTIONS; f++) {
    std::vector<float> want(n);
    for (int64_t i = 0; i < n; i++) want[i] = elementary(f, x[i], y[i]);
    check::same_bits(names[f], &got[f * n], want.data(), n);
  }
}
inline void test_elementary(Mode mode) {
  const uint64_t stride = pick<uint64_t>(mode, 262147, 262147, 4099, 257);  // primes
  check::test("exp_neg, sigmoid, log, sqrt and division on the device, over all exponents", [&] {
    std::vector<float> x;
    uint64_t seed = 0;
    const auto push = [&](uint32_t pattern) {
      x.push_back(exact::bit_cast<float>(pattern));
      if (x.size() == 1 << 20) {
        compare_elementary(x, ++seed);
        x.clear();
      }
    };
    const uint32_t infinity = 0x7f800000, cut = exact::bit_cast<uint32_t>(87.f);
    for (uint64_t sign = 0; sign <= 0x80000000u; sign += 0x80000000u) {
      for (uint64_t p = 0; p <= infinity; p += stride) push((uint32_t)(sign | p));
      for (uint32_t p = cut - 200; p < cut + 200; p++) push((uint32_t)sign | p);
      for (uint32_t p = 0; p < 64; p++) push((uint32_t)sign | p);
    }
    compare_elementary(x, ++seed);
  });
}

// ---- lane sums: block n sums the first n products
__global__ void lane_dot_kernel(float *out, const float *a, const float *b) {
  const float sum = gpu::lane_dot(a, b, blockIdx.x);
  out[blockIdx.x * gpu::WARP + threadIdx.x] = sum;  // every lane has it
}
inline void test_lanes() {
  check::test("lane sums of warps, every length", [] {
    const int64_t lengths = 131;
    Count seed;
    for (int i = 0; i <= 6; i++) {
      std::vector<float> a = values(lengths, kind_number(i), seed.next()),
                         b = values(lengths, kind_number(i), seed.n + 1);
      // every product underflows to -0: a lane that an absent element touched would be +0
      if (i == 6) {
        a.assign(lengths, 1e-30f);
        b.assign(lengths, -1e-30f);
      }
      const std::vector<float> nothing(lengths * gpu::WARP, poison());
      const Memory<float> out(nothing.data(), lengths * gpu::WARP), da(a.data(), lengths), db(b.data(), lengths);
      gpu::launch(lane_dot_kernel, dim3(lengths), dim3(gpu::WARP), 0, gpu::context().stream, out.data, da.data,
                  db.data);
      const std::vector<float> got = out.on_host();
      for (int64_t n = 0; n < lengths; n++) {
        const std::vector<float> want(gpu::WARP, exact::lane_dot(a.data(), b.data(), n));
        check::same_bits(sizes("lane_dot n", {n}, kind_number(i)).c_str(), &got[n * gpu::WARP], want.data(), gpu::WARP);
      }
    }
  });
}

inline void test_build(Mode mode) {
  test_elementary(mode);
  test_lanes();
}
