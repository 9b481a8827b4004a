// test_exact.cu: the shared arithmetic against the C library, trees written down a second time and published vectors;
// and pinned hashes, so that every machine and compiler must give the same bits. A hash may change only together with
// exact::FLOAT_ORDER.
#include "layers/exact.cuh"
#include "layers/random.cuh"
#include "test/check.h"
#include "test/hash.h"
#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using check::that;

const float NAN_F = std::numeric_limits<float>::quiet_NaN();
const double NAN_D = std::numeric_limits<double>::quiet_NaN();

static float float_of(uint32_t bits) { return exact::bit_cast<float>(bits); }
static bool same(float a, float b) { return check::pattern(a) == check::pattern(b); }
static bool same(double a, double b) { return check::pattern(a) == check::pattern(b); }

// |got - truth| in units of the last place of the truth, subnormals included
template <class real> double ulps(real got, long double truth) {
  int exponent;
  std::frexp((double)truth, &exponent);
  const int digits = std::numeric_limits<real>::digits, lowest = std::numeric_limits<real>::min_exponent;
  return (double)(fabsl((long double)got - truth) / ldexpl(1, std::max(exponent, lowest) - digits));
}

// Calls f with every `stride`-th float from `first` away from zero to `last`, both of one sign
template <class F> void floats_between(float first, float last, uint32_t stride, F f) {
  const uint32_t end = exact::bit_cast<uint32_t>(last);
  for (uint64_t bits = exact::bit_cast<uint32_t>(first); bits <= end; bits += stride) f(float_of((uint32_t)bits));
}
// n doubles spread evenly over [low, high]; every element is one rounding of an exact product
template <class F> void doubles_between(double low, double high, int n, F f) {
  for (int i = 0; i < n; i++) f(exact::fma(high - low, (double)i / n, low));
}

static void exponentials() {
  check::test("exp_neg in float: within 1.01 ulp of exp down to -87", [] {
    double worst = 0;
    float at = 0;
    floats_between(-0.f, -87.f, 997, [&](float x) {
      const double error = ulps(exact::exp_neg(x), expl(x));
      if (!(error <= worst)) {
        worst = error;
        at = x;
      }
    });
    that(worst <= 1.01, "%.3f ulp at %.9g", worst, at);
    that(worst > 0.5, "an error of %.3f ulp is too good to be true: the grid is empty", worst);
  });
  check::test("exp_neg in float: special cases", [] {
    that(same(exact::exp_neg(0.f), 1.f) && same(exact::exp_neg(-0.f), 1.f), "exp(0) = 1");
    that(exact::exp_neg(-87.f) > 0x1p-126f, "exp(-87) = %g is still a normal number", exact::exp_neg(-87.f));
    that(same(exact::exp_neg(std::nextafterf(-87.f, -88.f)), 0.f), "below -87: +0");
    for (float x : {-87.5f, -88.f, -103.f, -104.f, -200.f, -1e6f, -1e30f, -3.4e38f, -HUGE_VALF})
      that(same(exact::exp_neg(x), 0.f), "exp_neg(%g) = %g, want +0", x, exact::exp_neg(x));
    that(exact::exp_neg(NAN_F) != exact::exp_neg(NAN_F), "NaN stays NaN");
    for (float x : {-0x1p-149f, -0x1p-126f, -0x1.8p-130f, -0x1p-30f})
      that(same(exact::exp_neg(x), 1.f), "exp(%g) = 1", x);
    that(same(exact::exp_neg(-0x1p-24f), 1 - 0x1p-24f), "exp(-2^-24) = 1 - 2^-24");
  });
  check::test("exp in double: within 1 ulp, subnormal results within 1", [] {
    double worst = 0, tiny = 0;
    doubles_between(-708, 709.7, 200000, [&](double x) { worst = std::max(worst, ulps(exact::exp(x), expl(x))); });
    doubles_between(-1, 1, 200000, [&](double x) { worst = std::max(worst, ulps(exact::exp(x), expl(x))); });
    doubles_between(-745, -708, 20000, [&](double x) { tiny = std::max(tiny, ulps(exact::exp(x), expl(x))); });
    that(worst <= 1, "%.3f ulp", worst);
    that(tiny <= 1, "%.3f ulp where the result is subnormal", tiny);
    that(same(exact::exp(0.), 1.) && same(exact::exp(-0.), 1.), "exp(0) = 1");
    that(exact::exp(-HUGE_VAL) == 0 && exact::exp(HUGE_VAL) == HUGE_VAL && exact::exp(-746.) == 0, "limits");
    that(exact::exp(710.) == HUGE_VAL && exact::exp(709.78) < HUGE_VAL, "overflow above 709.78");
    that(exact::exp(NAN_D) != exact::exp(NAN_D), "NaN stays NaN");
    that(exact::exp(-745.) == 0x1p-1074, "exp(-745) is the smallest subnormal, got %g", exact::exp(-745.));
  });
}

static void logarithms() {
  check::test("log in float and double: within 2 ulp", [] {
    double worst = 0, worst_double = 0;
    const auto both = [&](float x) {
      worst = std::max(worst, ulps(exact::log(x), logl(x)));
      const double y = x * 1.0000001234567;
      worst_double = std::max(worst_double, ulps(exact::log(y), logl(y)));
    };
    floats_between(0x1p-149f, 3.4e38f, 4999, both);
    floats_between(0.99f, 1.01f, 7, both);
    that(worst <= 2, "float: %.3f ulp", worst);
    that(worst_double <= 2, "double: %.3f ulp", worst_double);
  });
  check::test("log: special cases", [] {
    that(same(exact::log(1.f), 0.f) && same(exact::log(1.), 0.), "log(1) = +0");
    that(exact::log(0.f) == -HUGE_VALF && exact::log(-0.) == -HUGE_VAL, "log(0)");
    that(exact::log(HUGE_VALF) == HUGE_VALF && exact::log(HUGE_VAL) == HUGE_VAL, "log(inf)");
    const float f = exact::log(-1.f), g = exact::log(NAN_F);
    const double d = exact::log(-1.), e = exact::log(NAN_D);
    that(f != f && g != g && d != d && e != e, "negative and NaN give NaN");
    const double lowest = exact::log(0x1p-1074), want = (double)logl(0x1p-1074L);
    that(std::fabs(lowest - want) <= 2e-13, "log of the smallest subnormal double: %.17g want %.17g", lowest, want);
    for (float x : {0x1p-149f, 0x1.4p-130f})
      that(ulps(exact::log(x), logl(x)) <= 2, "log of the subnormal %g: %.9g", x, exact::log(x));
  });
  check::test("sigmoid: within 2.5 ulp, symmetric, saturates", [] {
    double worst = 0;
    for (float sign : {1.f, -1.f})
      floats_between(0x1p-30f, 86.f, 4999, [&](float a) {
        const float x = sign * a;
        worst = std::max(worst, ulps(exact::sigmoid(x), 1 / (1 + expl(-(long double)x))));
      });
    that(worst <= 2.5, "%.3f ulp", worst);
    that(same(exact::sigmoid(0.f), .5f) && same(exact::sigmoid(-0.f), .5f), "sigmoid(0) = 1/2 in float");
    that(same(exact::sigmoid(0.), .5), "sigmoid(0) = 1/2 in double");
    that(exact::sigmoid(100.f) == 1 && same(exact::sigmoid(-100.f), 0.f), "sigmoid(+-100) in float");
    double double_worst = 0;
    doubles_between(-40, 40, 50001, [&](double x) {
      double_worst = std::max(double_worst, ulps(exact::sigmoid(x), 1 / (1 + expl(-(long double)x))));
    });
    that(double_worst <= 2.5, "double: %.3f ulp", double_worst);
    that(exact::sigmoid(NAN_F) != exact::sigmoid(NAN_F), "NaN stays NaN");
  });
}

static void circles() {
  check::test("sin and cos: within 1.3e-16 up to 1e8", [] {
    double worst = 0, at = 0;
    const auto both = [&](double x) {
      const double s = (double)fabsl(exact::sin(x) - sinl(x)), c = (double)fabsl(exact::cos(x) - cosl(x));
      if (!(std::max(s, c) <= worst)) {
        worst = std::max(s, c);
        at = x;
      }
    };
    doubles_between(-10, 10, 100000, both);
    doubles_between(0, 5000, 100000, both);
    doubles_between(-1e8, 1e8, 100000, both);
    for (int k = 1; k < 2000; k++) {
      both(k * 1.5707963267948966);
      both(std::nextafter(k * .7853981633974483, 1e9));
    }
    that(worst <= 1.3e-16, "%.3g at %.17g", worst, at);
    that(same(exact::sin(0.), 0.) && same(exact::cos(0.), 1.), "sin(0) = 0, cos(0) = 1");
  });
  check::test("sin near its zeros: within 2 ulp", [] {
    double worst = 0;
    for (int k = 1; k <= 40; k++) {
      const double x = k * 3.141592653589793;
      worst = std::max(worst, ulps(exact::sin(x), sinl(x)));
    }
    doubles_between(1e-9, .78, 20000, [&](double x) { worst = std::max(worst, ulps(exact::sin(x), sinl(x))); });
    that(worst <= 2, "%.3g ulp", worst);
  });
}

// ---- sums

// Numbers of very different size, so that another order gives other bits
template <class real> std::vector<real> mixed(int64_t n, uint64_t seed) {
  std::vector<real> x(n);
  for (int64_t i = 0; i < n; i++)
    x[i] = (real)rng::normal(rng::key_of(seed, "mixed"), i) * (real)std::ldexp(1., (int)rng::below(seed, i, 12));
  return x;
}

// The sum of lanes first, first+stride, ... : what a butterfly 16, 8, 4, 2, 1 leaves in lane `first`
template <class real> real lanes(const real *x, int first, int stride) {
  if (stride == 32) return x[first];
  const real low = lanes(x, first, 2 * stride), high = lanes(x, first + stride, 2 * stride);
  return low + high;
}

template <class real> void lane_sums(const char *name) {
  check::test(name, [] {
    int order_matters = 0;
    for (int64_t n : {0, 1, 2, 31, 32, 33, 64, 65, 100, 257}) {
      const std::vector<real> a = mixed<real>(n, 1), b = mixed<real>(n, 2);
      real sum[32], dot[32], straight = 0;
      for (int lane = 0; lane < 32; lane++) {
        sum[lane] = dot[lane] = 0;
        for (int64_t i = lane; i < n; i += 32) {
          sum[lane] += a[i];
          dot[lane] = exact::fma(a[i], b[i], dot[lane]);
        }
      }
      for (int64_t i = 0; i < n; i++) straight += a[i];
      that(same(exact::lane_sum(a.data(), n), lanes(sum, 0, 1)), "lane_sum of %d", (int)n);
      that(same(exact::lane_dot(a.data(), b.data(), n), lanes(dot, 0, 1)), "lane_dot of %d", (int)n);
      order_matters += !same(straight, exact::lane_sum(a.data(), n));
      real copy[32];
      std::copy(sum, sum + 32, copy);
      that(same(exact::butterfly(copy), lanes(sum, 0, 1)), "butterfly of %d", (int)n);
    }
    that(order_matters >= 5, "the numbers should tell orders apart");
    const real zeros[3] = {-(real)0, -(real)0, -(real)0};
    that(same(exact::lane_sum(zeros, 3), (real)0), "lanes start from +0");
  });
}

// ---- the counter

const char *const TREES[18] = {  // sequences a, b, c, ...
    "",
    "a",
    "(ab)",
    "((ab)c)",
    "((ab)(cd))",
    "(((ab)(cd))e)",
    "(((ab)(cd))(ef))",
    "(((ab)(cd))((ef)g))",
    "(((ab)(cd))((ef)(gh)))",
    "((((ab)(cd))((ef)(gh)))i)",
    "((((ab)(cd))((ef)(gh)))(ij))",
    "((((ab)(cd))((ef)(gh)))((ij)k))",
    "((((ab)(cd))((ef)(gh)))((ij)(kl)))",
    "((((ab)(cd))((ef)(gh)))(((ij)(kl))m))",
    "((((ab)(cd))((ef)(gh)))(((ij)(kl))(mn)))",
    "((((ab)(cd))((ef)(gh)))(((ij)(kl))((mn)o)))",
    "((((ab)(cd))((ef)(gh)))(((ij)(kl))((mn)(op))))",
    "(((((ab)(cd))((ef)(gh)))(((ij)(kl))((mn)(op))))q)"};

template <class real> real evaluate(const char *&tree, const real *x) {
  if (*tree != '(') return x[*tree++ - 'a'];
  tree++;
  const real left = evaluate(tree, x), right = evaluate(tree, x);
  tree++;  // the closing bracket
  return left + right;
}

// An item that writes down what was added to what
struct Words {
  std::string text;
  Words(int zero = 0)
      : text(zero ? "?" : "") {}
  Words(const char *s)
      : text(s) {}
};
static Words operator+(const Words &a, const Words &b) { return ("(" + a.text + b.text + ")").c_str(); }

static void counters() {
  check::test("Counter: the trees of 1 to 17 sequences, as written down", [] {
    for (int n = 1; n <= 17; n++) {
      exact::Counter<Words> counter;
      for (int i = 0; i < n; i++) counter.push(std::string(1, (char)('a' + i)).c_str());
      that(counter.finish().text == TREES[n], "n = %d: %s, want %s", n, counter.finish().text.c_str(), TREES[n]);
    }
  });
  check::test("Counter: bits of those trees in float and double", [] {
    for (int n = 1; n <= 17; n++) {
      const std::vector<float> x = mixed<float>(n, 77);
      const std::vector<double> y = mixed<double>(n, 78);
      exact::Counter<float> a;
      exact::Counter<double> b;
      for (float v : x) a.push(v);
      for (double v : y) b.push(v);
      const char *left = TREES[n], *right = TREES[n];
      that(same(a.finish(), evaluate(left, x.data())) && same(b.finish(), evaluate(right, y.data())), "n = %d", n);
    }
    exact::Counter<float> none, negative;
    that(same(none.finish(), 0.f), "nothing pushed: +0");
    for (int i = 0; i < 3; i++) negative.push(-0.f);
    that(same(negative.finish(), -0.f), "-0 and -0 is -0: nothing else is added");
  });
  check::test("Counter in passes: carried() continues the same tree", [] {
    for (int n = 1; n <= 17; n++)
      for (int pass : {1, 2, 4, 8, 16}) {
        std::vector<Words> slots(8, Words("!"));  // 0: the result; behind it the levels, in order of age
        std::vector<int> sums;                    // slots in use
        for (int first = 0, p = 0; first < n; first += pass, p++) {
          exact::Counter<Words> counter;
          for (int i = first; i < std::min(n, first + pass); i++) counter.push(std::string(1, (char)('a' + i)).c_str());
          const bool last = first + pass >= n;
          size_t merge = 0;  // how many sums this pass completes: one per trailing 1 of its number; the last pass, all
          while (merge < sums.size() && (last || p >> merge & 1)) merge++;
          int place = 0;
          while (!last && (place == 0 || std::count(sums.begin(), sums.end(), place))) place++;
          exact::Carry carry;
          for (size_t k = 0; k < merge; k++) carry.offset[carry.adds++] = sums[sums.size() - 1 - k] - place;
          slots[place] = exact::carried(slots.data() + place, 0, counter.finish(), carry);
          sums.resize(sums.size() - merge);
          sums.push_back(place);
        }
        const char *got = slots[0].text.c_str();
        that(slots[0].text == TREES[n], "n = %d in passes of %d: %s, want %s", n, pass, got, TREES[n]);
      }
  });
}

// ---- random numbers

static void random_numbers() {
  check::test("Philox4x32-10: the published vectors of Random123", [] {
    const struct {
      uint64_t key, counter, stream;
      uint32_t want[4];
    } vectors[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (const auto &v : vectors) {
      const rng::Words got = rng::philox(v.key, v.counter, v.stream);
      for (int i = 0; i < 4; i++) that(got.x[i] == v.want[i], "word %d: %08x want %08x", i, got.x[i], v.want[i]);
    }
  });
  check::test("key_of: other seeds and names give other keys", [] {
    std::vector<uint64_t> keys;
    for (uint64_t seed : {0, 1, 2, 1 << 30})
      for (const char *name : {"", "embed", "head", "layer.0.attn.qkv", "layer.1.attn.qkv"})
        keys.push_back(rng::key_of(seed, name));
    std::sort(keys.begin(), keys.end());
    that(std::unique(keys.begin(), keys.end()) == keys.end(), "two keys are equal");
  });
  check::test("permute: a bijection of 0..n-1, other keys permute otherwise", [] {
    for (uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
      std::vector<char> seen(n, 0);
      uint64_t fixed = 0, equal = 0;
      for (uint64_t i = 0; i < n; i++) {
        const uint64_t place = rng::permute(11, i, n);
        if (that(place < n && !seen[place], "n = %d: place %d of %d", (int)n, (int)place, (int)i)) seen[place] = 1;
        fixed += place == i;
        equal += place == rng::permute(12, i, n);
      }
      that(n < 63 || (fixed < 12 && equal < 12), "n = %d: %d fixed, %d as with key 12", (int)n, (int)fixed, (int)equal);
    }
    const uint64_t large = 3000000001ull;
    for (uint64_t i = 0; i < 1000; i++) that(rng::permute(5, large - 1 - i, large) < large, "beyond 32 bits");
  });
}
static void moments() {
  check::test("uniform, below and normal: moments of 200,000 draws", [] {
    const int n = 200000;
    double u = 0, uu = 0, m[5] = {}, lag = 0, largest = 0;
    int64_t histogram[10] = {};
    for (int i = 0; i < n; i++) {
      const double x = rng::uniform(21, i), z = rng::normal(22, i);
      that(x >= 0 && x < 1, "uniform %g", x);
      u += x / n;
      uu += x * x / n;
      histogram[rng::below(23, i, 10)]++;
      for (int k = 1; k < 5; k++) m[k] += std::pow(z, k) / n;
      lag += z * rng::normal(22, i + 1) / n;
      largest = std::max(largest, std::fabs(z));
    }
    const double s = 1 / std::sqrt((double)n);  // five standard deviations each
    that(std::fabs(u - .5) < 5 * s * .29 && std::fabs(uu - 1. / 3) < 5 * s * .3, "uniform: %g %g", u, uu);
    that(std::fabs(m[1]) < 5 * s && std::fabs(m[2] - 1) < 5 * s * 1.42, "normal: mean %g, variance %g", m[1], m[2]);
    that(std::fabs(m[3]) < 5 * s * 3.9 && std::fabs(m[4] - 3) < 5 * s * 9.8, "normal: moments 3, 4: %g %g", m[3], m[4]);
    that(std::fabs(lag) < 5 * s, "neighbours correlate: %g", lag);
    that(largest > 3.9 && largest < 8.6, "largest of %d normal deviates: %g", n, largest);
    for (int64_t count : histogram) that(std::llabs(count - n / 10) < 700, "below: %d of %d", (int)count, n / 10);
    that(rng::below(1, 2, 1) == 0, "below 1");
  });
}

// ---- pinned bits

static void pinned() {
  const auto pin = [](const char *name, uint64_t want, const std::function<void(Hash &)> &fill) {
    check::test(name, [&] {
      Hash hash;
      fill(hash);
      that(hash.value == want, "0x%016" PRIx64 ", want 0x%016" PRIx64, hash.value, want);
    });
  };
  pin("pinned: exp_neg on every 101st float, on each from -0.25 to -0.36", 0x5508f9d88679a38d, [](Hash &h) {
    floats_between(-0.f, -90.f, 101, [&](float x) { h.add(exact::exp_neg(x)); });
    floats_between(-.25f, -.36f, 1, [&](float x) { h.add(exact::exp_neg(x)); });
  });
  pin("pinned: log in float", 0x250223b532570c94,
      [](Hash &h) { floats_between(0x1p-149f, 3.4e38f, 1009, [&](float x) { h.add(exact::log(x)); }); });
  pin("pinned: sigmoid in float", 0x9b6ba44d28b3eccd, [](Hash &h) {
    for (float sign : {1.f, -1.f})
      floats_between(0x1p-20f, 90.f, 1009, [&](float x) { h.add(exact::sigmoid(sign * x)); });
  });
  pin("pinned: exp and log in double", 0xa14705d73de60f26, [](Hash &h) {
    doubles_between(-745.5, 710, 100000, [&](double x) { h.add(exact::exp(x)); });
    doubles_between(1e-9, 3, 100000, [&](double x) {
      h.add(exact::log(x));
      h.add(exact::log(x * 0x1p-1040));
    });
  });
  pin("pinned: sin and cos", 0x3ca1e38c1a47e5b2, [](Hash &h) {
    doubles_between(-1e4, 1e5, 200000, [&](double x) {
      h.add(exact::sin(x));
      h.add(exact::cos(x));
    });
  });
  pin("pinned: keys, uniform, normal and permute", 0x60884fc61513b6ec, [](Hash &h) {
    const uint64_t key = rng::key_of(42, "layer.3.mlp.down");
    h.add(key);
    for (int i = 0; i < 100000; i++) {
      h.add(rng::normal(key, i));
      h.add(rng::uniform(key, i));
    }
    for (int i = 0; i < 1000; i++) {
      h.add(rng::permute(key, i, 1000));
      h.add(rng::below(key, i, 12345));
    }
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  exponentials();
  logarithms();
  circles();
  lane_sums<float>("lane sums in float: the order written a second time");
  lane_sums<double>("lane sums in double: the order written a second time");
  counters();
  random_numbers();
  moments();
  pinned();
  return check::report();
}
