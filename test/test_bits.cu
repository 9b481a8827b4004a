// test_bits.cu: every function of device:: (cpu or gpu, by the include path) against plain<float>: 0 differing bits, at
// odd sizes, for every kind of value, with 1, 2 and 3 threads, nothing written outside the result, inputs left alone.
// Argument: emulated, quick, essential (default) or all.
#include "backend.cuh"

#include "../layers/adamw.cuh"
#include "../layers/attention.cuh"
#include "../layers/crossentropy.cuh"
#include "../layers/embedding.cuh"
#include "../layers/init.cuh"
#include "../layers/matmul.cuh"
#include "../layers/residual.cuh"
#include "../layers/rmsnorm.cuh"
#include "../layers/rope.cuh"
#include "../layers/swiglu.cuh"
#include "bits_check.h"

using namespace bits;
using exact::Carry;

struct Count {  // of the calls of one test: each gets its own seed
  uint64_t n = 0;
  uint64_t next() { return n += 100; }
};
static std::string sizes(const char *text, std::initializer_list<int64_t> n, Kind kind) {
  std::string s = text;
  for (int64_t x : n) s += format(" %lld", (long long)x);
  return s + " " + name_of(kind);
}
static Kind kind_number(int64_t i) { return KINDS[i % 6]; }
// All kinds, or for kernels that are emulated one, in turn
static std::vector<Kind> kinds(Mode mode, const Count &cases) {
  if (mode == Mode::emulated) return {kind_number((int64_t)(cases.n / 100))};
  return {std::begin(KINDS), std::end(KINDS)};
}
static Sizes few(Mode mode, Sizes emulated, Sizes otherwise) { return mode == Mode::emulated ? emulated : otherwise; }
static std::vector<int32_t> tokens_below(int64_t V, int64_t n, uint64_t seed) {
  Random r{seed};
  std::vector<int32_t> x(n);
  for (int32_t &t : x)
    t = (int32_t)(r.next() % (uint64_t)(V > 4 && r.next() % 2 ? V / 4 : V));  // some tokens are rare or absent
  return x;
}

// What is tested of the build itself (test_build), and the sizes around the tiles of its products and of attention
struct Edge {
  int64_t rows, columns, chain;
};
#if __has_include("simd.cuh")
#include "bits_cpu.h"
#else
#include "bits_gpu.h"
#endif

// ---- rows and elements

static void test_sums(Mode mode) {
  check::test("add_sequences: the counter as a tree, with carries", [&] {
    Count seed;
    for (int64_t B = 1; B <= 17; B++)
      for (int64_t n : few(mode, {B == 5 ? 700 : 7 + B}, {1, 7, 33}))
        for (Kind kind : kinds(mode, seed))
          for (int adds = 0; adds <= 2; adds++)
            both(sizes("B n carries", {B, n, adds}, kind),
                 {levels("out", n, kind, seed.next()), scratch("sums", B * n, kind, seed.n + 1)},
                 plain::add_sequences<float>, device::add_sequences, Slot{0}, Slot{1}, B, n, carry_of(n, adds));
  });
}

static void gradient_case(Count &seed, int64_t V, int64_t B, int64_t T, int64_t C) {
  const Kind kind = kind_number((int64_t)seed.n / 100);
  const int64_t n = V * C;
  both(sizes("V B T C", {V, B, T, C}, kind), {levels("dweight", n, kind, seed.next())},
       plain::embedding_backward<float>, device::embedding_backward, Slot{0}, values(B * T * C, kind, seed.n + 1),
       tokens_below(V, B * T, seed.n + 2), B, T, V, C, carry_of(n, (int)(seed.n / 100 % 3)));
}
static void test_embedding(Mode mode) {
  check::test("embedding_forward", [&] {
    Count seed;
    for (int64_t V : few(mode, {2, 65, 1000}, {1, 2, 27, 65, 129, 1000}))
      for (int64_t C : few(mode, {7, 36}, {1, 7, 20, 36, 100})) {
        const int64_t N = 33;
        both(sizes("V C", {V, C}, Kind::normal), {fresh("out", N * C)}, plain::embedding_forward<float>,
             device::embedding_forward, Slot{0}, values(V * C, Kind::normal, seed.next()),
             tokens_below(V, N, seed.n + 1), N, C);
      }
  });
  check::test("embedding_backward, with carries", [&] {
    Count seed;
    const int64_t last = pick<int64_t>(mode, 65, 65, 129, 1000);
    for (int64_t V : few(mode, {1, 27, 65}, {1, 2, 27, 65, 129, 1000}))
      for (int64_t B : few(mode, {1, 3, 5}, {1, 2, 3, 5, 8}))
        for (int64_t C : few(mode, {7, 100}, {1, 7, 36}))
          if (V <= last) gradient_case(seed, V, B, V % 2 ? 33 : 7, C);
    if (mode >= Mode::essential) gradient_case(seed, 1000, 17, 1, 1056);  // in slabs of symbols, on a GPU
  });
}

static void test_rmsnorm(Mode mode) {
  const Sizes widths =
      pick<Sizes>(mode, {1, 7, 33, 100, 1056}, {1, 7, 36, 100}, {1, 7, 20, 31, 32, 33, 36, 100, 384, 1056},
                  {1, 7, 15, 16, 17, 20, 31, 32, 33, 36, 63, 64, 65, 100, 384, 1056});
  check::test("rmsnorm_forward and rmsnorm_apply", [&] {
    Count seed;
    for (int64_t C : widths)
      for (int64_t N : few(mode, {1, 33}, {1, 7, 33, 65}))
        for (Kind kind : kinds(mode, seed)) {
          const std::vector<float> x = values(N * C, kind, seed.next()), gain = values(C, kind, seed.n + 1);
          both(sizes("forward N C", {N, C}, kind), {fresh("out", N * C), fresh("rstd", N)},
               plain::rmsnorm_forward<float>, device::rmsnorm_forward, Slot{0}, Slot{1}, x, gain, N, C,
               kind == Kind::tiny ? 1e-30 : 1e-5);
          both(sizes("apply N C", {N, C}, kind), {fresh("out", N * C)}, plain::rmsnorm_apply<float>,
               device::rmsnorm_apply, Slot{0}, x, values(N, kind, seed.n + 2), gain, N, C);
        }
  });
  check::test("rmsnorm_backward, in place and apart, with carries", [&] {
    Count seed;
    for (int64_t C : widths)
      for (int64_t B : few(mode, {1, 3, 5}, {1, 2, 3, 5, 8})) {
        const int64_t T = B == 3 ? 33 : 7, N = B * T;
        const Kind kind = kind_number((int64_t)seed.n / 100);
        const std::vector<float> x = values(N * C, kind, seed.next()), gain = values(C, kind, seed.n + 1);
        const std::vector<float> rstd = values(N, kind, seed.n + 2), dout = values(N * C, kind, seed.n + 3);
        const Carry carry = carry_of(C, (int)(B % 3));
        const Array dgain = levels("dgain", C, kind, seed.n + 4);
        both(sizes("apart B T C", {B, T, C}, kind), {fresh("dinp", N * C), dgain}, plain::rmsnorm_backward<float>,
             device::rmsnorm_backward, Slot{0}, Slot{1}, dout, x, rstd, gain, B, T, C, carry);
        both(sizes("in place B T C", {B, T, C}, kind), {holding("dinp", dout), dgain}, plain::rmsnorm_backward<float>,
             device::rmsnorm_backward, Slot{0}, Slot{1}, Slot{0}, x, rstd, gain, B, T, C, carry);
      }
  });
}

static void test_initial_values(Mode mode) {
  check::test("normal_fill", [&] {
    for (int64_t n : few(mode, {1, 7, 2001}, {1, 2, 7, 8191, 8192, 8193, 20001}))
      both(sizes("n", {n}, Kind::normal), {fresh("p", n)}, plain::normal_fill<float>, device::normal_fill, Slot{0}, n,
           0.02, rng::key_of(1, "embed"));
  });
}

static void test_swiglu(Mode mode) {
  check::test("swiglu_forward and swiglu_backward, in place and apart", [&] {
    Count seed;
    for (int64_t H : few(mode, {1, 33, 100, 384}, {1, 7, 20, 31, 32, 33, 36, 100, 384}))
      for (int64_t N : few(mode, {1, 7, 33}, {1, 7, 33, 65}))
        for (Kind kind : kinds(mode, seed)) {
          const std::vector<float> x = values(2 * N * H, kind, seed.next()), dout = values(N * H, kind, seed.n + 1);
          both(sizes("forward N H", {N, H}, kind), {fresh("out", N * H)}, plain::swiglu_forward<float>,
               device::swiglu_forward, Slot{0}, x, N, H);
          both(sizes("backward apart N H", {N, H}, kind), {fresh("dgateup", 2 * N * H), fresh("out", N * H)},
               plain::swiglu_backward<float>, device::swiglu_backward, Slot{0}, Slot{1}, dout, x, N, H);
          both(sizes("backward in place N H", {N, H}, kind), {holding("dgateup", x), holding("out", dout)},
               plain::swiglu_backward<float>, device::swiglu_backward, Slot{0}, Slot{1}, Slot{1}, Slot{0}, N, H);
        }
  });
}

static void test_rope(Mode mode) {
  check::test("rope_forward and rope_backward, with their table", [&] {
    Count seed;
    for (int64_t HS : few(mode, {2, 10, 36, 128}, {2, 6, 10, 32, 36, 64, 128}))
      for (int64_t T : few(mode, {7, 33}, {1, 7, 33, 65})) {
        const int64_t B = T == 7 ? 3 : 2, NH = T == 33 ? 3 : 1, n = B * T * 3 * NH * HS;
        const Kind kind = kind_number((int64_t)seed.n / 100);
        const std::vector<float> table = both(
            sizes("table T HS", {T, HS}, kind), {fresh("table", T * HS)}, plain::rope_table<float>,
            [](float *to, int64_t T, int64_t HS) { device::rope_table(to, T, HS); }, Slot{0}, T, HS)[0];
        const Array x = holding("qkv", values(n, kind, seed.next()));
        both(sizes("forward B T NH HS", {B, T, NH, HS}, kind), {x}, plain::rope_forward<float>, device::rope_forward,
             Slot{0}, table, B, T, NH, HS);
        both(sizes("backward B T NH HS", {B, T, NH, HS}, kind), {x}, plain::rope_backward<float>, device::rope_backward,
             Slot{0}, table, B, T, NH, HS);
      }
  });
}

static void scales_case(Count &seed, int64_t B, int64_t T, int64_t C, Kind kind) {
  const int64_t N = B * T;
  const std::vector<float> x = values(N * C, kind, seed.next()), u = values(N * C, kind, seed.n + 1);
  const std::vector<float> a = values(1, Kind::normal, seed.n + 2), l = values(C, kind, seed.n + 3);
  const int adds = (int)(seed.n / 100 % 3);
  both(sizes("rezero forward N C", {N, C}, kind), {fresh("out", N * C)}, plain::rezero_forward<float>,
       device::rezero_forward, Slot{0}, x, u, a, N, C);
  both(sizes("rezero backward B T C", {B, T, C}, kind), {fresh("du", N * C), levels("da", 1, kind, seed.n + 4)},
       plain::rezero_backward<float>, device::rezero_backward, Slot{0}, Slot{1}, x, u, a, B, T, C, carry_of(1, adds));
  both(sizes("layerscale forward N C", {N, C}, kind), {fresh("out", N * C)}, plain::layerscale_forward<float>,
       device::layerscale_forward, Slot{0}, x, u, l, N, C);
  both(sizes("layerscale backward B T C", {B, T, C}, kind), {fresh("du", N * C), levels("dl", C, kind, seed.n + 5)},
       plain::layerscale_backward<float>, device::layerscale_backward, Slot{0}, Slot{1}, x, u, l, B, T, C,
       carry_of(C, adds));
}
static void test_residual(Mode mode) {
  check::test("residual_forward, in place and apart", [&] {
    Count seed;
    for (int64_t n : few(mode, {1, 7, 33, 2001}, {1, 7, 31, 33, 8191, 8192, 8193, 20001}))
      for (Kind kind : kinds(mode, seed)) {
        const std::vector<float> x = values(n, kind, seed.next()), u = values(n, kind, seed.n + 1);
        both(sizes("apart n", {n}, kind), {fresh("out", n)}, plain::residual_forward<float>, device::residual_forward,
             Slot{0}, x, u, n);
        both(sizes("in place n", {n}, kind), {holding("out", x)}, plain::residual_forward<float>,
             device::residual_forward, Slot{0}, Slot{0}, u, n);
      }
  });
  check::test("rezero and layerscale, forward and backward, with carries", [&] {
    Count seed;
    for (int64_t C : few(mode, {1, 7, 36, 600}, {1, 7, 20, 36, 100, 384}))
      for (int64_t B : few(mode, {1, 3, 5}, {1, 2, 3, 5, 8})) {
        int64_t T = 7;
        if (B == 2) T = 65;
        if (B == 3) T = 33;
        scales_case(seed, B, T, C, kind_number((int64_t)seed.n / 100));
      }
    scales_case(seed, 70, 3, 7, Kind::normal);
  });
}

static void test_crossentropy(Mode mode) {
  const Sizes counts = pick<Sizes>(mode, {1, 33}, {7}, {1, 33, 65}, {1, 7, 33, 64, 65, 129});
  check::test("crossentropy_forward and crossentropy_backward, padded rows", [&] {
    Count seed;
    for (int64_t V : few(mode, {1, 2, 27, 33, 129, 1000}, {1, 2, 16, 27, 31, 32, 33, 64, 65, 129, 1000}))
      for (int64_t N : counts)
        for (Kind kind : kinds(mode, seed)) {
          const int64_t padding[] = {0, 3, round_up(V, 16) - V}, ld = V + padding[seed.n / 100 % 3];
          Array logits = rows("logits", N, ld, V);
          const std::vector<float> z = values(N * ld, kind, seed.next());
          for (int64_t i = 0; i < N * ld; i++)
            if (i % ld < V) logits.x[i] = z[i];
          const std::vector<int32_t> targets = tokens_below(V, N, seed.n + 1);
          both(sizes("forward N V ld", {N, V, ld}, kind), {fresh("losses", N), logits},
               plain::crossentropy_forward<float>, device::crossentropy_forward, Slot{0}, Slot{1}, ld, targets, N, V);
          both(sizes("backward N V ld", {N, V, ld}, kind), {fresh("losses", N), logits},
               plain::crossentropy_backward<float>, device::crossentropy_backward, Slot{0}, Slot{1}, ld, targets, N, V,
               3 * N + 1);
        }
  });
}

// ---- matrix products

static void product_case(Count &seed, int64_t N, int64_t C, int64_t OC, Kind kind) {
  const int64_t ld = OC + (int64_t)(seed.n / 100 % 2) * 5;
  std::vector<float> inp = values(N * C, kind, seed.next()), weight = values(OC * C, kind, seed.n + 1);
  std::vector<float> dout = values(N * ld, kind, seed.n + 2);
  for (int64_t i = 0; i < N * ld; i++)
    if (i % ld >= OC) dout[i] = poison();  // padding is not read
  both(sizes("forward N C OC", {N, C, OC}, kind), {rows("out", N, ld, OC)}, plain::matmul_forward<float>,
       device::matmul_forward, Slot{0}, ld, inp, weight, N, C, OC);
  both(sizes("dinp N C OC", {N, C, OC}, kind), {fresh("dinp", N * C)}, plain::matmul_backward_dinp<float>,
       device::matmul_backward_dinp, Slot{0}, dout, ld, weight, N, C, OC);
}
static void dweight_case(Count &seed, int64_t B, int64_t T, int64_t C, int64_t OC, Kind kind) {
  const int64_t ld = OC + (int64_t)(seed.n / 100 % 2) * 5, N = B * T;
  std::vector<float> inp = values(N * C, kind, seed.next()), dout = values(N * ld, kind, seed.n + 1);
  for (int64_t i = 0; i < N * ld; i++)
    if (i % ld >= OC) dout[i] = poison();
  both(sizes("dweight B T C OC", {B, T, C, OC}, kind), {levels("dweight", OC * C, kind, seed.n + 2)},
       plain::matmul_backward_dweight<float>, device::matmul_backward_dweight, Slot{0}, dout, ld, inp, B, T, C, OC,
       carry_of(OC * C, (int)(seed.n / 100 % 3)));
}
static void test_matmul(Mode mode) {
  check::test("matmul_forward and matmul_backward_dinp: every tile edge", [&] {
    Count seed;
    for (const auto &[N, OC, C] : product_edges(mode)) product_case(seed, N, C, OC, kind_number(OC + N));
  });
  check::test("matmul_forward and matmul_backward_dinp: odd sizes, long chains", [&] {
    Count seed;
    const int64_t small[][3] = {{1, 1, 1},     {1, 7, 1},      {7, 1, 20},   {33, 7, 36},   {65, 20, 7},
                                {64, 36, 100}, {129, 100, 36}, {257, 36, 7}, {33, 100, 65}, {97, 384, 1},
                                {33, 385, 7},  {1, 384, 384},  {7, 769, 36}, {95, 20, 385}, {96, 7, 769},
                                {193, 36, 20}, {7, 1056, 100}};
    for (const auto &s : small)
      for (Kind kind : kinds(mode, seed))
        if (mode == Mode::emulated ? s[0] * s[1] * s[2] < 300000
                                   : mode != Mode::quick || kind == Kind::normal || kind == Kind::zeros)
          product_case(seed, s[0], s[1], s[2], kind);
    if (mode < Mode::essential) return;
    const int64_t big[][3] = {{33, 1056, 385}, {7, 385, 2800}, {5, 2800, 20}, {257, 100, 384}};
    for (const auto &s : big) product_case(seed, s[0], s[1], s[2], Kind::normal);
    if (mode == Mode::all) {
      product_case(seed, 129, 1056, 1056, Kind::normal);
      product_case(seed, 257, 384, 1056, Kind::zeros);
    }
  });
  check::test("matmul_backward_dweight: every tile edge, with carries", [&] {
    Count seed;
    for (const auto &[OC, C, T] : dweight_edges(mode))
      dweight_case(seed, 1 + (OC + C) % 5, T, C, OC, kind_number(OC + C));
  });
  check::test("products and weight gradients in blocks for other caches", [&] {
    with_other_caches([&] {
      Count seed;
      product_case(seed, 65, 200, 385, Kind::normal);
      product_case(seed, 257, 65, 300, Kind::zeros);
      product_case(seed, 1000, 33, 36, Kind::normal);  // rows enough for several pieces a thread
      dweight_case(seed, 3, 65, 385, 65, Kind::normal);
    });
  });
  check::test("matmul_backward_dweight: sequences, odd sizes", [&] {
    Count seed;
    const int64_t cases[][4] = {{1, 1, 1, 1},    {2, 7, 7, 20},    {3, 33, 20, 7},   {5, 64, 36, 36},
                                {8, 65, 36, 20}, {8, 1, 100, 7},   {1, 129, 100, 1}, {2, 257, 36, 65},
                                {3, 7, 384, 36}, {5, 33, 1056, 7}, {3, 7, 7, 1056},  {8, 7, 36, 100},
                                {7, 7, 20, 100}, {6, 5, 36, 33},   {12, 3, 33, 36},  {13, 1, 17, 9}};
    for (const auto &s : cases)
      for (Kind kind : kinds(mode, seed))
        if (mode == Mode::emulated ? s[0] * s[1] * s[2] * s[3] < 300000
                                   : mode != Mode::quick || kind == Kind::normal || kind == Kind::zeros)
          dweight_case(seed, s[0], s[1], s[2], s[3], kind);
    if (mode < Mode::essential) return;
    dweight_case(seed, 2, 257, 1056, 36, Kind::normal);
    if (mode == Mode::all) {
      dweight_case(seed, 3, 129, 384, 1056, Kind::zeros);
      dweight_case(seed, 8, 33, 385, 100, Kind::tiny);
    }
    dweight_case(seed, 17, 1, 1056, 1056, Kind::zeros);  // more sums of sequences than a GPU's scratch holds at a time
  });
}

static void test_slabs() {
  check::test("weight gradients, a few rows at a time where the device's scratch holds no more", [] {
    Count seed;
    with_little_scratch([&] {
      for (Kind kind : {Kind::normal, Kind::zeros}) {
        dweight_case(seed, 3, 7, 20, 33, kind);
        dweight_case(seed, 5, 9, 65, 7, kind);
        gradient_case(seed, 27, 3, 7, 100);
      }
    });
  });
}

// ---- attention

static void attention_case(Count &seed, int64_t B, int64_t T, int64_t NH, int64_t HS, Kind kind) {
  const int64_t C = NH * HS;
  const std::vector<float> qkv = values(B * T * 3 * C, kind, seed.next());
  const std::vector<std::vector<float>> saved =
      both(sizes("forward B T NH HS", {B, T, NH, HS}, kind),
           {fresh("out", B * T * C), fresh("m", B * NH * T), fresh("n", B * NH * T)}, plain::attention_forward<float>,
           device::attention_forward, Slot{0}, Slot{1}, Slot{2}, qkv, B, T, NH, HS);
  both(sizes("backward B T NH HS", {B, T, NH, HS}, kind), {fresh("dqkv", B * T * 3 * C)},
       plain::attention_backward<float>, device::attention_backward, Slot{0}, values(B * T * C, kind, seed.n + 1),
       saved[0], saved[1], saved[2], qkv, B, T, NH, HS);
}
static void test_attention(Mode mode) {
  check::test("attention: odd sizes", [&] {
    Count seed;
    for (int64_t T : few(mode, {1, 7, 33, 65, 129}, {1, 7, 33, 64, 65, 129, 257}))
      for (int64_t HS : few(mode, {2, 10, 36, 128}, {2, 6, 10, 32, 36, 64, 128})) {
        const int64_t i = (int64_t)seed.n / 100;
        if (mode == Mode::quick && T > 65 && HS > 10 && !(T == 257 && HS == 32)) continue;
        const int64_t count = pick<int64_t>(mode, 1, 1, T > 128 && HS > 36 ? 1 : 2, 5);
        for (int64_t k = 0; k < count; k++)
          attention_case(seed, i % 3 == 0 ? 2 : 1, T, T < 129 && i % 2 ? 3 : 1, HS, kind_number(i + k));
      }
    attention_case(seed, 1, 40, 2, 264, Kind::normal);
  });
  check::test("attention: every length", [&] {
    Count seed;
    for (int64_t T : attention_edges(mode)) attention_case(seed, 1, T, 1, T % 3 ? 4 : 18, kind_number(T));
  });
  if (mode >= Mode::essential)
    check::test("attention: long, several sequences and heads, large scores", [&] {
      Count seed;
      attention_case(seed, 2, 300, 2, 36, Kind::large);
      attention_case(seed, 1, 513, 1, 10, Kind::normal);
      attention_case(seed, 1, 385, 1, 32, Kind::zeros);
      if (mode == Mode::all) {
        attention_case(seed, 3, 257, 6, 64, Kind::large);
        attention_case(seed, 1, 1030, 2, 64, Kind::normal);
      }
    });
  check::test("attention_decode: row t of attention_forward", [&] {
    Count seed;
    const int64_t T = 65, NH = 3, HS = 10, C = NH * HS;
    for (Kind kind : kinds(mode, seed)) {
      const std::vector<float> host = values(T * 3 * C, kind, seed.next());
      std::vector<float> want(T * C), m(NH * T), n(NH * T);
      plain::attention_forward(want.data(), m.data(), n.data(), host.data(), 1, T, NH, HS);
      const std::vector<float> nothing(T * C, poison());
      const Memory<float> qkv(host.data(), T * 3 * C);
      Memory<float> row(nothing.data(), C), k(nothing.data(), T * C), v(nothing.data(), T * C);
      for (int64_t t = 0; t < T; t++) {
        const float *at = qkv.data + t * 3 * C;
        device::copy(k.data + t * C, at + C, C);
        device::copy(v.data + t * C, at + 2 * C, C);
        device::attention_decode(row.data, at, k.data, v.data, t, NH, HS);
        check::same_bits(sizes("row", {t}, kind).c_str(), row.on_host().data(), &want[t * C], C);
      }
    }
  });
}

// ---- optimizer

static void test_adamw(Mode mode) {
  const Sizes lengths = few(mode, {1, 32, 1001, 200001}, {1, 31, 32, 8193, 65535, 65536, 200001});
  check::test("adamw_update, several steps", [&] {
    Count seed;
    for (int64_t n : lengths)
      for (Kind kind : kinds(mode, seed)) {
        if (n > 10000 && (mode == Mode::emulated || (kind != Kind::normal && kind != Kind::tiny))) continue;
        std::vector<float> start[4] = {
            values(n, kind, seed.next()), {}, std::vector<float>(n, 0.f), std::vector<float>(n, 0.f)};
        for (int t = 1; t <= pick(mode, 2, 2, 4, 6); t++) {
          const AdamW h{1e-3 * t,        0.9, 0.95, 1e-8, t % 2 ? 0.1 : 0, 1 - std::pow(0.9, t), 1 - std::pow(0.95, t),
                        t == 2 ? 0.3 : 1};
          const std::vector<float> g = values(n, kind, seed.n + (uint64_t)t);
          both(sizes("n step", {n, t}, kind), {holding("p", start[0]), holding("m", start[2]), holding("v", start[3])},
               plain::adamw_update<float>, device::adamw_update, Slot{0}, g, Slot{1}, Slot{2}, n, h);
          plain::adamw_update(start[0].data(), g.data(), start[2].data(), start[3].data(), n, h);
        }
      }
  });
  check::test("sum_of_squares", [&] {
    Count seed;
    for (int64_t n : lengths)
      for (Kind kind : kinds(mode, seed)) {
        const std::vector<float> g = values(n, kind, seed.next());
        const Memory<float> on_device(g.data(), n);
        const double want = plain::sum_of_squares(g.data(), n);
        for (int threads = 1; threads <= 3; threads++) {
          if (device::set_threads(threads) != threads) break;
          const double got = device::sum_of_squares(on_device.data, n);
          check::same_bits(sizes("n", {n}, kind).c_str(), &got, &want, 1);
        }
      }
  });
}

int main(int argc, char **argv) {
  const Mode mode = mode_of(argc, argv);
  check::arguments(argc, argv);
  set_float_mode();
  test_build(mode);
  test_sums(mode);
  test_initial_values(mode);
  test_embedding(mode);
  test_rmsnorm(mode);
  test_swiglu(mode);
  test_rope(mode);
  test_residual(mode);
  test_crossentropy(mode);
  test_matmul(mode);
  test_slabs();
  test_attention(mode);
  test_adamw(mode);
  return check::report();
}
