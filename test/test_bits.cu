// Every function of cpu:: against plain<float>: 0 differing bits, at odd sizes, for every kind of value, with 1, 2 and
// 3 threads, nothing written outside the result, inputs left alone. Argument: quick, essential (default) or all.
#include "backend.cuh"

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
static std::vector<int32_t> tokens_below(int64_t V, int64_t n, uint64_t seed) {
  Random r{seed};
  std::vector<int32_t> x(n);
  for (int32_t &t : x)
    t = (int32_t)(r.next() % (uint64_t)(V > 4 && r.next() % 2 ? V / 4 : V));  // some tokens are rare or absent
  return x;
}

// ---- elementary functions

static void compare_lanes(const char *name, const float *x, cpu::vec got, float (*want)(float)) {
  for (int i = 0; i < cpu::VL; i++) {
    const float g = got[i], w = want(x[i]);
    if (!same(g, w)) check::that(false, "%s(%.9g): got %.9g want %.9g", name, (double)x[i], (double)g, (double)w);
  }
}
static void test_elementary(Mode mode) {
  const uint64_t stride = pick<uint64_t>(mode, 262147, 4099, 257);  // primes
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

static void test_sums() {
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
  check::test("add_sequences: the counter as a tree, with carries", [] {
    Count seed;
    for (int64_t B = 1; B <= 17; B++)
      for (int64_t n : {1, 7, 33})
        for (Kind kind : KINDS)
          for (int adds = 0; adds <= 2; adds++)
            both(sizes("B n carries", {B, n, adds}, kind),
                 {levels("out", n, kind, seed.next()), scratch("sums", B * n, kind, seed.n + 1)},
                 plain::add_sequences<float>, cpu::add_sequences, Slot{0}, Slot{1}, B, n, carry_of(n, adds));
  });
}

// ---- rows and elements

static void test_embedding(Mode mode) {
  check::test("embedding_forward", [&] {
    Count seed;
    for (int64_t V : {1, 2, 27, 65, 129, 1000})
      for (int64_t C : {1, 7, 20, 36, 100}) {
        const int64_t N = 33;
        both(sizes("V C", {V, C}, Kind::normal), {fresh("out", N * C)}, plain::embedding_forward<float>,
             cpu::embedding_forward, Slot{0}, values(V * C, Kind::normal, seed.next()), tokens_below(V, N, seed.n + 1),
             N, C);
      }
  });
  check::test("embedding_backward, with carries", [&] {
    Count seed;
    const int64_t last = pick<int64_t>(mode, 65, 129, 1000);
    for (int64_t V : {1, 2, 27, 65, 129, 1000})
      for (int64_t B : {1, 2, 3, 5, 8})
        for (int64_t C : {1, 7, 36}) {
          if (V > last) continue;
          const int64_t T = V % 2 ? 33 : 7, n = V * C;
          const Kind kind = kind_number((int64_t)seed.n / 100);
          both(sizes("V B T C", {V, B, T, C}, kind), {levels("dweight", n, kind, seed.next())},
               plain::embedding_backward<float>, cpu::embedding_backward, Slot{0}, values(B * T * C, kind, seed.n + 1),
               tokens_below(V, B * T, seed.n + 2), B, T, V, C, carry_of(n, (int)(seed.n / 100 % 3)));
        }
  });
}

static void test_rmsnorm(Mode mode) {
  const std::vector<int64_t> widths =
      pick<std::vector<int64_t>>(mode, {1, 7, 36, 100}, {1, 7, 20, 31, 32, 33, 36, 100, 384, 1056},
                                 {1, 7, 15, 16, 17, 20, 31, 32, 33, 36, 63, 64, 65, 100, 384, 1056});
  check::test("rmsnorm_forward and rmsnorm_apply", [&] {
    Count seed;
    for (int64_t C : widths)
      for (int64_t N : {1, 7, 33, 65})
        for (Kind kind : KINDS) {
          const std::vector<float> x = values(N * C, kind, seed.next()), gain = values(C, kind, seed.n + 1);
          both(sizes("forward N C", {N, C}, kind), {fresh("out", N * C), fresh("rstd", N)},
               plain::rmsnorm_forward<float>, cpu::rmsnorm_forward, Slot{0}, Slot{1}, x, gain, N, C,
               kind == Kind::tiny ? 1e-30 : 1e-5);
          both(sizes("apply N C", {N, C}, kind), {fresh("out", N * C)}, plain::rmsnorm_apply<float>, cpu::rmsnorm_apply,
               Slot{0}, x, values(N, kind, seed.n + 2), gain, N, C);
        }
  });
  check::test("rmsnorm_backward, in place and apart, with carries", [&] {
    Count seed;
    for (int64_t C : widths)
      for (int64_t B : {1, 2, 3, 5, 8}) {
        const int64_t T = B == 3 ? 33 : 7, N = B * T;
        const Kind kind = kind_number((int64_t)seed.n / 100);
        const std::vector<float> x = values(N * C, kind, seed.next()), gain = values(C, kind, seed.n + 1);
        const std::vector<float> rstd = values(N, kind, seed.n + 2), dout = values(N * C, kind, seed.n + 3);
        const Carry carry = carry_of(C, (int)(B % 3));
        const Array dgain = levels("dgain", C, kind, seed.n + 4);
        both(sizes("apart B T C", {B, T, C}, kind), {fresh("dinp", N * C), dgain}, plain::rmsnorm_backward<float>,
             cpu::rmsnorm_backward, Slot{0}, Slot{1}, dout, x, rstd, gain, B, T, C, carry);
        both(sizes("in place B T C", {B, T, C}, kind), {holding("dinp", dout), dgain}, plain::rmsnorm_backward<float>,
             cpu::rmsnorm_backward, Slot{0}, Slot{1}, Slot{0}, x, rstd, gain, B, T, C, carry);
      }
  });
}

static void test_initial_values() {
  check::test("normal_fill", [] {
    for (int64_t n : {1, 2, 7, 8191, 8192, 8193, 20001})
      both(sizes("n", {n}, Kind::normal), {fresh("p", n)}, plain::normal_fill<float>, cpu::normal_fill, Slot{0}, n,
           0.02, rng::key_of(1, "embed"));
  });
}

static void test_swiglu(Mode) {
  check::test("swiglu_forward and swiglu_backward, in place and apart", [&] {
    Count seed;
    for (int64_t H : {1, 7, 20, 31, 32, 33, 36, 100, 384})
      for (int64_t N : {1, 7, 33, 65})
        for (Kind kind : KINDS) {
          const std::vector<float> x = values(2 * N * H, kind, seed.next()), dout = values(N * H, kind, seed.n + 1);
          both(sizes("forward N H", {N, H}, kind), {fresh("out", N * H)}, plain::swiglu_forward<float>,
               cpu::swiglu_forward, Slot{0}, x, N, H);
          both(sizes("backward apart N H", {N, H}, kind), {fresh("dgateup", 2 * N * H), fresh("out", N * H)},
               plain::swiglu_backward<float>, cpu::swiglu_backward, Slot{0}, Slot{1}, dout, x, N, H);
          both(sizes("backward in place N H", {N, H}, kind), {holding("dgateup", x), holding("out", dout)},
               plain::swiglu_backward<float>, cpu::swiglu_backward, Slot{0}, Slot{1}, Slot{1}, Slot{0}, N, H);
        }
  });
}

static void test_rope(Mode) {
  check::test("rope_forward and rope_backward", [&] {
    Count seed;
    for (int64_t HS : {2, 6, 10, 32, 36, 64, 128})
      for (int64_t T : {1, 7, 33, 65}) {
        const int64_t B = T == 7 ? 3 : 2, NH = T == 33 ? 3 : 1, n = B * T * 3 * NH * HS;
        const Kind kind = kind_number((int64_t)seed.n / 100);
        std::vector<float> table(T * HS);
        plain::rope_table(table.data(), T, HS);
        const Array x = holding("qkv", values(n, kind, seed.next()));
        both(sizes("forward B T NH HS", {B, T, NH, HS}, kind), {x}, plain::rope_forward<float>, cpu::rope_forward,
             Slot{0}, table, B, T, NH, HS);
        both(sizes("backward B T NH HS", {B, T, NH, HS}, kind), {x}, plain::rope_backward<float>, cpu::rope_backward,
             Slot{0}, table, B, T, NH, HS);
      }
  });
}

static void test_residual(Mode) {
  check::test("residual_forward, in place and apart", [&] {
    Count seed;
    for (int64_t n : {1, 7, 31, 33, 8191, 8192, 8193, 20001})
      for (Kind kind : KINDS) {
        const std::vector<float> x = values(n, kind, seed.next()), u = values(n, kind, seed.n + 1);
        both(sizes("apart n", {n}, kind), {fresh("out", n)}, plain::residual_forward<float>, cpu::residual_forward,
             Slot{0}, x, u, n);
        both(sizes("in place n", {n}, kind), {holding("out", x)}, plain::residual_forward<float>, cpu::residual_forward,
             Slot{0}, Slot{0}, u, n);
      }
  });
  check::test("rezero and layerscale, forward and backward, with carries", [&] {
    Count seed;
    for (int64_t C : {1, 7, 20, 36, 100, 384})
      for (int64_t B : {1, 2, 3, 5, 8}) {
        const int64_t T = B == 2 ? 65 : B == 3 ? 33 : 7, N = B * T;
        const Kind kind = kind_number((int64_t)seed.n / 100);
        const std::vector<float> x = values(N * C, kind, seed.next()), u = values(N * C, kind, seed.n + 1);
        const std::vector<float> a = values(1, Kind::normal, seed.n + 2), l = values(C, kind, seed.n + 3);
        const int adds = (int)(seed.n / 100 % 3);
        both(sizes("rezero forward N C", {N, C}, kind), {fresh("out", N * C)}, plain::rezero_forward<float>,
             cpu::rezero_forward, Slot{0}, x, u, a, N, C);
        both(sizes("rezero backward B T C", {B, T, C}, kind), {fresh("du", N * C), levels("da", 1, kind, seed.n + 4)},
             plain::rezero_backward<float>, cpu::rezero_backward, Slot{0}, Slot{1}, x, u, a, B, T, C,
             carry_of(1, adds));
        both(sizes("layerscale forward N C", {N, C}, kind), {fresh("out", N * C)}, plain::layerscale_forward<float>,
             cpu::layerscale_forward, Slot{0}, x, u, l, N, C);
        both(sizes("layerscale backward B T C", {B, T, C}, kind),
             {fresh("du", N * C), levels("dl", C, kind, seed.n + 5)}, plain::layerscale_backward<float>,
             cpu::layerscale_backward, Slot{0}, Slot{1}, x, u, l, B, T, C, carry_of(C, adds));
      }
  });
}

static void test_crossentropy(Mode mode) {
  const std::vector<int64_t> counts = pick<std::vector<int64_t>>(mode, {7}, {1, 33, 65}, {1, 7, 33, 64, 65, 129});
  check::test("crossentropy_forward and crossentropy_backward, padded rows", [&] {
    Count seed;
    for (int64_t V : {1, 2, 16, 27, 31, 32, 33, 64, 65, 129, 1000})
      for (int64_t N : counts)
        for (Kind kind : KINDS) {
          const int64_t padding[] = {0, 3, round_up(V, 16) - V}, ld = V + padding[seed.n / 100 % 3];
          Array logits = rows("logits", N, ld, V);
          const std::vector<float> z = values(N * ld, kind, seed.next());
          for (int64_t i = 0; i < N * ld; i++)
            if (i % ld < V) logits.x[i] = z[i];
          const std::vector<int32_t> targets = tokens_below(V, N, seed.n + 1);
          both(sizes("forward N V ld", {N, V, ld}, kind), {fresh("losses", N), logits},
               plain::crossentropy_forward<float>, cpu::crossentropy_forward, Slot{0}, Slot{1}, ld, targets, N, V);
          both(sizes("backward N V ld", {N, V, ld}, kind), {fresh("losses", N), logits},
               plain::crossentropy_backward<float>, cpu::crossentropy_backward, Slot{0}, Slot{1}, ld, targets, N, V,
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
       cpu::matmul_forward, Slot{0}, ld, inp, weight, N, C, OC);
  both(sizes("dinp N C OC", {N, C, OC}, kind), {fresh("dinp", N * C)}, plain::matmul_backward_dinp<float>,
       cpu::matmul_backward_dinp, Slot{0}, dout, ld, weight, N, C, OC);
}
static void dweight_case(Count &seed, int64_t B, int64_t T, int64_t C, int64_t OC, Kind kind) {
  const int64_t ld = OC + (int64_t)(seed.n / 100 % 2) * 5, N = B * T;
  std::vector<float> inp = values(N * C, kind, seed.next()), dout = values(N * ld, kind, seed.n + 1);
  for (int64_t i = 0; i < N * ld; i++)
    if (i % ld >= OC) dout[i] = poison();
  both(sizes("dweight B T C OC", {B, T, C, OC}, kind), {levels("dweight", OC * C, kind, seed.n + 2)},
       plain::matmul_backward_dweight<float>, cpu::matmul_backward_dweight, Slot{0}, dout, ld, inp, B, T, C, OC,
       carry_of(OC * C, (int)(seed.n / 100 % 3)));
}
static void test_matmul(Mode mode) {
  check::test("matmul_forward and matmul_backward_dinp: every tile edge", [&] {
    Count seed;
    const int64_t step = pick<int64_t>(mode, 7, 3, 1);
    for (int64_t N = 1; N <= 2 * cpu::MR + 1; N++)
      for (int64_t OC = 1 + N % step; OC <= 2 * cpu::NR + 1; OC += step)
        product_case(seed, N, 1 + (N + OC) % 19, OC, kind_number(OC + N));
  });
  check::test("matmul_forward and matmul_backward_dinp: odd sizes, long chains", [&] {
    Count seed;
    const int64_t small[][3] = {{1, 1, 1},     {1, 7, 1},      {7, 1, 20},   {33, 7, 36},   {65, 20, 7},
                                {64, 36, 100}, {129, 100, 36}, {257, 36, 7}, {33, 100, 65}, {97, 384, 1},
                                {33, 385, 7},  {1, 384, 384},  {7, 769, 36}, {95, 20, 385}, {96, 7, 769},
                                {193, 36, 20}, {7, 1056, 100}};
    for (const auto &s : small)
      for (Kind kind : KINDS)
        if (kind == Kind::normal || kind == Kind::zeros || mode != Mode::quick)
          product_case(seed, s[0], s[1], s[2], kind);
    if (mode == Mode::quick) return;
    const int64_t big[][3] = {{33, 1056, 385}, {7, 385, 2800}, {5, 2800, 20}, {257, 100, 384}};
    for (const auto &s : big) product_case(seed, s[0], s[1], s[2], Kind::normal);
    if (mode == Mode::all)
      product_case(seed, 129, 1056, 1056, Kind::normal), product_case(seed, 257, 384, 1056, Kind::zeros);
  });
  check::test("matmul_backward_dweight: every tile edge, with carries", [&] {
    Count seed;
    const int64_t step = pick<int64_t>(mode, 11, 4, 1);
    for (int64_t OC = 1; OC <= 2 * cpu::SH + 1; OC++)
      for (int64_t C = 1 + OC % step; C <= 2 * cpu::NR + 1; C += step)
        dweight_case(seed, 1 + (OC + C) % 5, 1 + (3 * OC + C) % 11, C, OC, kind_number(OC + C));
  });
  check::test("matmul_backward_dweight: sequences, odd sizes", [&] {
    Count seed;
    const int64_t cases[][4] = {{1, 1, 1, 1},    {2, 7, 7, 20},    {3, 33, 20, 7},   {5, 64, 36, 36},
                                {8, 65, 36, 20}, {8, 1, 100, 7},   {1, 129, 100, 1}, {2, 257, 36, 65},
                                {3, 7, 384, 36}, {5, 33, 1056, 7}, {3, 7, 7, 1056},  {8, 7, 36, 100},
                                {7, 7, 20, 100}, {6, 5, 36, 33},   {12, 3, 33, 36},  {13, 1, 17, 9}};
    for (const auto &s : cases)
      for (Kind kind : KINDS)
        if (kind == Kind::normal || kind == Kind::zeros || mode != Mode::quick)
          dweight_case(seed, s[0], s[1], s[2], s[3], kind);
    if (mode == Mode::quick) return;
    dweight_case(seed, 2, 257, 1056, 36, Kind::normal);
    if (mode == Mode::all)
      dweight_case(seed, 3, 129, 384, 1056, Kind::zeros), dweight_case(seed, 8, 33, 385, 100, Kind::tiny);
  });
}

// ---- attention

struct Saved { std::vector<float> out, m, n; };  // what the forward keeps for the backward
static Saved attention_case(Count &seed, int64_t B, int64_t T, int64_t NH, int64_t HS, Kind kind) {
  const int64_t C = NH * HS;
  const std::vector<float> qkv = values(B * T * 3 * C, kind, seed.next());
  both(sizes("forward B T NH HS", {B, T, NH, HS}, kind),
       {fresh("out", B * T * C), fresh("m", B * NH * T), fresh("n", B * NH * T)}, plain::attention_forward<float>,
       cpu::attention_forward, Slot{0}, Slot{1}, Slot{2}, qkv, B, T, NH, HS);
  Saved s{std::vector<float>(B * T * C), std::vector<float>(B * NH * T), std::vector<float>(B * NH * T)};
  cpu::attention_forward(s.out.data(), s.m.data(), s.n.data(), qkv.data(), B, T, NH, HS);
  both(sizes("backward B T NH HS", {B, T, NH, HS}, kind), {fresh("dqkv", B * T * 3 * C)},
       plain::attention_backward<float>, cpu::attention_backward, Slot{0}, values(B * T * C, kind, seed.n + 1), s.out,
       s.m, s.n, qkv, B, T, NH, HS);
  return s;
}
static void test_attention(Mode mode) {
  check::test("attention: odd sizes", [&] {
    Count seed;
    for (int64_t T : {1, 7, 33, 64, 65, 129, 257})
      for (int64_t HS : {2, 6, 10, 32, 36, 64, 128}) {
        const int64_t i = (int64_t)seed.n / 100;
        if (mode == Mode::quick && T > 65 && HS > 10 && !(T == 257 && HS == 32)) continue;
        const int64_t kinds = pick<int64_t>(mode, 1, T > 128 && HS > 36 ? 1 : 2, 5);
        for (int64_t k = 0; k < kinds; k++)
          attention_case(seed, i % 3 == 0 ? 2 : 1, T, T < 129 && i % 2 ? 3 : 1, HS, kind_number(i + k));
      }
  });
  check::test("attention: every length", [&] {
    Count seed;
    for (int64_t T = 1; T <= 3 * cpu::MR * 4 + 5; T += pick<int64_t>(mode, 5, 1, 1))
      attention_case(seed, 1, T, 1, T % 3 ? 4 : 18, kind_number(T));
  });
  if (mode != Mode::quick)
    check::test("attention: long, several sequences and heads, large scores", [&] {
      Count seed;
      attention_case(seed, 2, 300, 2, 36, Kind::large);
      attention_case(seed, 1, 513, 1, 10, Kind::normal), attention_case(seed, 1, 385, 1, 32, Kind::zeros);
      if (mode == Mode::all)
        attention_case(seed, 3, 257, 6, 64, Kind::large), attention_case(seed, 1, 1030, 2, 64, Kind::normal);
    });
  check::test("attention_decode: row t of attention_forward", [&] {
    Count seed;
    const int64_t T = 65, NH = 3, HS = 10, C = NH * HS;
    for (Kind kind : KINDS) {
      const std::vector<float> qkv = values(T * 3 * C, kind, seed.next());
      std::vector<float> out(T * C), m(NH * T), n(NH * T), k(T * C), v(T * C), row(C);
      cpu::attention_forward(out.data(), m.data(), n.data(), qkv.data(), 1, T, NH, HS);
      for (int64_t t = 0; t < T; t++) {
        const float *at = &qkv[t * 3 * C];
        std::copy_n(at + C, C, &k[t * C]), std::copy_n(at + 2 * C, C, &v[t * C]);
        cpu::attention_decode(row.data(), at, k.data(), v.data(), t, NH, HS);
        check::same_bits(sizes("row", {t}, kind).c_str(), row.data(), &out[t * C], C);
      }
    }
  });
}

// ---- optimizer

static void test_adamw(Mode mode) {
  const std::vector<int64_t> lengths = {1, 31, 32, 8193, 65535, 65536, 200001};
  check::test("adamw_update, several steps", [&] {
    Count seed;
    for (int64_t n : lengths)
      for (Kind kind : KINDS) {
        if (n > 10000 && kind != Kind::normal && kind != Kind::tiny) continue;
        std::vector<float> start[4] = {
            values(n, kind, seed.next()), {}, std::vector<float>(n, 0.f), std::vector<float>(n, 0.f)};
        for (int t = 1; t <= pick(mode, 2, 4, 6); t++) {
          const AdamW h{1e-3 * t,        0.9, 0.95, 1e-8, t % 2 ? 0.1 : 0, 1 - std::pow(0.9, t), 1 - std::pow(0.95, t),
                        t == 2 ? 0.3 : 1};
          const std::vector<float> g = values(n, kind, seed.n + (uint64_t)t);
          both(sizes("n step", {n, t}, kind), {holding("p", start[0]), holding("m", start[2]), holding("v", start[3])},
               plain::adamw_update<float>, cpu::adamw_update, Slot{0}, g, Slot{1}, Slot{2}, n, h);
          plain::adamw_update(start[0].data(), g.data(), start[2].data(), start[3].data(), n, h);
        }
      }
  });
  check::test("sum_of_squares", [&] {
    Count seed;
    for (int64_t n : lengths)
      for (Kind kind : KINDS) {
        const std::vector<float> g = values(n, kind, seed.next());
        const double want = plain::sum_of_squares(g.data(), n);
        for (int threads = 1; threads <= 3; threads++) {
          cpu::set_threads(threads);
          const double got = cpu::sum_of_squares(g.data(), n);
          check::same_bits(sizes("n", {n}, kind).c_str(), &got, &want, 1);
        }
      }
  });
}

int main(int argc, char **argv) {
  const std::string word = argc > 1 ? argv[1] : "essential";
  if (argc > 2 || (word != "quick" && word != "essential" && word != "all")) {
    fprintf(stderr, "usage: test_bits [quick|essential|all]\n");
    return 2;
  }
  const Mode mode = word == "quick" ? Mode::quick : word == "all" ? Mode::all : Mode::essential;
  set_float_mode();
  test_elementary(mode), test_sums(), test_initial_values(), test_embedding(mode), test_rmsnorm(mode),
      test_swiglu(mode), test_rope(mode), test_residual(mode);
  test_crossentropy(mode), test_matmul(mode), test_attention(mode), test_adamw(mode);
  return check::report();
}
