// routers_truth.h: what must hold between the methods, in double: h and p of every read, not only logits (at q = 0 the
// logits of any split of the stream agree).
#pragma once
#include "test/routers_common.h"

namespace routers {

constexpr int64_t BLOCKS[] = {1, 2, 4, 6, 8, 12, 20, 200};
constexpr int64_t DEPTHS[] = {1, 2, 3, 6, 12};

// Every pair (L, m) where the method is allowed; attnres and delta know no blocks
template <class F> void every_shape(const Method &m, const std::vector<int64_t> &depths, F body) {
  for (int64_t L : depths)
    for (int64_t block : BLOCKS) {
      const Config c = configure(m, L, block);
      if (c.full() ? block == 8 : allowed(c)) body(c);
    }
}
inline std::vector<int64_t> depths(bool deepest = false) {
  std::vector<int64_t> L(std::begin(DEPTHS), std::end(DEPTHS));
  if (deepest) L.push_back(48);
  return L;
}
// Number of sources of read j without details
inline int64_t sources_of(const Config &c, int64_t j) {
  if (c.full()) return 1 + j;
  return 1 + divide_up(j, c.block);
}

// ---- 1. at q = 0 the mix is the stream divided by the number of sources

inline void same_backbone_gradients(const std::string &what, GPT<double> &got, GPT<double> &want, double tolerance) {
  for (const Tensor &t : want.table.rows)
    check::close((what + ": d" + t.name).c_str(), row(got, t.name, got.grads.data), want.grads.data + t.offset,
                 t.size(), tolerance);
}
// Largest difference of the normalised outputs, relative
inline double output_difference(const GPT<double> &a, const GPT<double> &b, int64_t n) {
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    worst = std::max(worst, std::fabs(a.a.normed[i] - b.a.normed[i]));
    largest = std::max(largest, std::fabs(b.a.normed[i]));
  }
  return worst / largest;
}
inline void equal_at_zero(const Method &m, Config c, bool initialized) {
  const Batch batch(2, c.T, c.V, 11);
  const int64_t N = batch.B * c.T, n = N * c.C;
  if (!initialized) c.eps = 1e-30;
  double tolerance = 1e-9;
  if (initialized) tolerance = c.L >= 12 ? 1e-4 : 1e-6;
  GPT<double> model(c, Sizes{2, 1, true}), stream(prenorm_of(c), Sizes{2, 1, true});
  for (GPT<double> *g : {&model, &stream}) {
    initialized ? g->initialize(3) : scatter(*g, Start::zero);
    forward(*g, batch);
  }
  const std::string what = label(m, c);
  check::close((what + ": normalised output").c_str(), model.a.normed, stream.a.normed, n, tolerance);
  for (int64_t j = 1; j < read_count(c); j++) {
    const double *x = j == c.M() ? stream.router->output() : stream.router->input(j);
    const double count = (double)sources_of(c, j), factor = (c.delta() ? 1 : 0) + 1 / count;
    std::vector<double> want(x, x + n);
    for (double &v : want) v *= factor;
    const std::string read = what + ": read " + read_name(c, j);
    check::close((read + ": h").c_str(), mixer(model).h[j], want.data(), n, tolerance);
    const std::vector<double> p = weights(mixer(model), j, N);
    that((int64_t)p.size() == N * (int64_t)count, "%s has %d weights", read.c_str(), (int)p.size());
    for (double weight : p) that(std::fabs(weight * count - 1) < 1e-14, "%s: p = %g", read.c_str(), weight);
  }
  gradients(model, batch);
  gradients(stream, batch);
  same_backbone_gradients(what, model, stream, tolerance);
}
inline void zero_queries() {
  for (const char *name : {"attnres", "block", "delta", "delta-block"}) {
    const Method &m = method(name);
    check::test(format("1: %s at q = 0 is prenorm: output, h, p, gradients", name).c_str(), [&] {
      every_shape(m, depths(true), [&](const Config &c) {
        if (c.L == 48 && c.block < 8 && c.block != 1) return;
        equal_at_zero(m, c, false);
      });
    });
    check::test(format("1: %s at q = 0 is prenorm at initialization, at the default eps", name).c_str(), [&] {
      every_shape(m, depths(true), [&](const Config &c) {
        if (c.block == 8 || (c.L == 3 && c.block < 12)) equal_at_zero(m, c, true);
      });
    });
  }
  check::test("1: what eps inside the norms does to it at 48 layers", [] {
    double last = 1e9;
    for (double eps : {1e-5, 1e-8, 1e-12}) {
      Config c = configure(method("attnres"), 48, 8);
      c.C = 32;
      c.eps = eps;
      const Batch batch(1, c.T, c.V, 11);
      GPT<double> model(c, Sizes{1, 1, false}), stream(prenorm_of(c), Sizes{1, 1, false});
      for (GPT<double> *g : {&model, &stream}) {
        g->initialize(3);
        forward(*g, batch);
      }
      const double d = output_difference(model, stream, c.T * c.C);
      printf("    attnres, L = 48, eps %g: the normalised output differs from prenorm's by %.2g of its largest\n", eps,
             d);
      that(d < last && (eps < 1e-5 || d > 0.3) && (eps > 1e-12 || d < 1e-4), "eps %g: %g", eps, d);
      last = d;
    }
  });
}

// ---- 2. equal methods

inline void same_reads(const std::string &what, GPT<double> &got, GPT<double> &want, int64_t N, double tolerance) {
  const Config &c = got.c;
  for (int64_t j = 1; j < read_count(c); j++) {
    const std::string read = what + ": read " + read_name(c, j);
    check::close((read + ": h").c_str(), mixer(got).h[j], mixer(want).h[j], N * c.C, tolerance);
    const std::vector<double> p = weights(mixer(got), j, N), q = weights(mixer(want), j, N);
    if (that(p.size() == q.size(), "%s: %d and %d weights", read.c_str(), (int)p.size(), (int)q.size()))
      check::close((read + ": p").c_str(), p.data(), q.data(), (int64_t)p.size(), tolerance);
  }
}
inline void blocks_of_one() {
  for (const auto &pair : {std::make_pair("attnres", "block"), std::make_pair("delta", "delta-block")})
    check::test(format("2: %s with m = 1 is %s: h, p, loss, every gradient", pair.second, pair.first).c_str(), [&] {
      for (int64_t L : depths(true))
        for (Start start : {Start::zero, Start::random}) {
          const Config c = configure(method(pair.first), L, 8), one = configure(method(pair.second), L, 1);
          const Batch batch(2, c.T, c.V, 12);
          GPT<double> full(c, Sizes{2, 1, true}), block(one, Sizes{2, 1, true});
          scatter(full, start);
          scatter(block, start);
          const double a = gradients(full, batch), b = gradients(block, batch);
          const std::string what = label(method(pair.second), one);
          check::close("loss", &b, &a, 1, 1e-12);
          same_reads(what, block, full, batch.B * c.T, 1e-11);
          for (const Tensor &t : full.table.rows)
            check::close((what + ": d" + t.name).c_str(), row(block, t.name, block.grads.data),
                         full.grads.data + t.offset, t.size(), 1e-10);
        }
    });
}
template <class real> void same_model(const std::string &what, Config a, Config b) {
  const Batch batch(3, a.T, a.V, 13);
  GPT<real> one(a, Sizes{2, 2, true}), two(b, Sizes{2, 2, true});
  scatter(one, Start::random);
  scatter(two, Start::random);
  const double loss = gradients(one, batch), want = gradients(two, batch);
  check::same_bits((what + ": loss").c_str(), &loss, &want, 1);
  that(one.table.floats == two.table.floats, "%s: the same parameters", what.c_str());
  check::same_bits((what + ": gradients").c_str(), one.grads.data, two.grads.data, one.table.floats);
}
inline void no_details() {
  check::test("2: details none is block, bit for bit", [] {
    for (const char *router : {"wav", "haares"})
      every_shape(method("block"), {1, 2, 3, 6}, [&](const Config &block) {
        Config none = block;
        none.router = router;
        none.details = "none";
        same_model<float>(label(method("block"), none) + " float", none, block);
        same_model<double>(label(method("block"), none) + " double", none, block);
      });
  });
}

// ---- 3. details with beta = -1e4 weigh nothing; their share at q = 0

template <class real> void without_details(const Method &m, const Config &c) {
  Config block = c;
  block.router = "block";
  block.details = "none";
  block.fixed_beta = false;
  const Batch batch(2, c.T, c.V, 14);
  GPT<real> got(c, Sizes{2, 1, true}), want(block, Sizes{2, 1, true});
  scatter(got, Start::random);
  scatter(want, Start::random);
  for (const Tensor &t : got.table.rows)
    if (t.name.find(".beta") != std::string::npos) std::fill_n(got.params.data + t.offset, t.size(), (real)-1e4);
  const double loss = gradients(got, batch), loss_want = gradients(want, batch);
  const std::string what = label(m, c);
  that(loss == loss_want, "%s: loss %.17g, of block %.17g", what.c_str(), loss, loss_want);
  for (int64_t j = 1; j <= c.M(); j++)
    for (int64_t i = 0; i < batch.B * c.T * c.C; i++)
      that(mixer(got).h[j][i] == mixer(want).h[j][i], "%s: h of read %d", what.c_str(), (int)j);
  for (const Tensor &t : want.table.rows) {
    const real *a = row(got, t.name, got.grads.data), *b = want.grads.data + t.offset;
    for (int64_t i = 0; i < t.size(); i++)
      that(a[i] == b[i], "%s: d%s[%d] %g, of block %g", what.c_str(), t.name.c_str(), (int)i, (double)a[i],
           (double)b[i]);
  }
}
inline void share_of_details(const Method &m, Config c, double beta) {
  c.beta = beta;
  const int64_t D = c.detail_count(), N = 2 * c.T;
  const Batch batch(2, c.T, c.V, 15);
  GPT<double> model(c, Sizes{2, 1, true});
  scatter(model, Start::zero);
  gradients(model, batch);
  for (int64_t j = 1; j <= c.M(); j++) {
    const std::vector<double> p = weights(mixer(model), j, N);
    const int64_t n = divide_up(j, c.block), all = (int64_t)p.size() / N;
    const int64_t d = j == c.M() && !c.final_all ? 0 : D;
    that(all == 1 + n + d * n, "%s: %d sources in read %d", label(m, c).c_str(), (int)all, (int)j);
    const double E = std::exp(beta), want = (double)(d * n) * E / (1 + (double)n + (double)(d * n) * E);
    for (int64_t t = 0; t < N; t++) {
      double share = 0;
      for (int64_t i = 1; i < all; i++)
        if ((i - 1) % (1 + d)) share += p[t * all + i];
      that(std::fabs(share - want) < 1e-13, "%s: read %d: share of details %g, want %g", label(m, c).c_str(), (int)j,
           share, want);
    }
  }
}
inline void beta() {
  const std::vector<Method> with = {method("wav"), method("haares"), method("random,duplicate,learned"),
                                    method("wav --final-read all")};
  check::test("3: beta = -1e4 is block: h, loss, every gradient (==)", [&] {
    for (const Method &m : with)
      every_shape(m, {1, 3, 6, 12}, [&](const Config &c) {
        if (c.L == 12 && c.block < 8) return;
        without_details<double>(m, c);
        without_details<float>(m, c);
      });
  });
  check::test("3: the share of details at q = 0, every read", [&] {
    for (const Method &m : with)
      every_shape(m, {1, 3, 6, 12}, [&](const Config &c) {
        for (double beta : {-2., 0.5}) share_of_details(m, c, beta);
      });
    const double E = std::exp(-2.);
    that(std::fabs(2 * E / (2 + 2 * E) - 0.12) < 0.005 && std::fabs(24 * E / (13 + 24 * E) - 0.2) < 0.005, "published");
  });
}

// ---- 4. the details

inline Config with_details(int64_t L, int64_t m, const char *details) {
  Config c = configure(method("wav"), L, m);
  c.details = details;
  return c;
}
inline void coefficients() {
  check::test("4: coefficients: signs, zero sums, orthogonal where 4 divides the length", [] {
    for (int64_t L : {1, 2, 3, 6, 12, 48})
      for (int64_t m : BLOCKS) {
        const Config c = with_details(L, m, "phase,split,random,duplicate,learned");
        if (!allowed(c)) continue;
        const MixPlan plan(c);
        for (size_t block = 0; block < plan.blocks.size(); block++) {
          const MixPlan::Block &b = plan.blocks[block];
          std::vector<std::vector<double>> coef;
          for (int d = 0; d < plan.bases; d++) coef.push_back(detail_coefficients(plan, (int64_t)block, d, c.seed));
          double sum[5] = {}, product = 0;
          for (int64_t k = 0; k < b.length; k++) {
            const auto at = [&](int d) { return coef[d][k]; };
            const double split = 2 * k < b.length ? 1 : -1, phase = (b.first + k) % 2 ? -1 : 1;
            that(at(0) == 1 && at(1) == phase && at(2) == split && at(4) == 1 && at(5) == split, "m=%d: %d of %d",
                 (int)m, (int)k, (int)b.length);
            that(std::fabs(at(3)) == 1, "random is a sign");
            for (int d = 0; d < 5; d++) sum[d] += at(d + 1);
            product += phase * split;
          }
          that(!sum[0] && !sum[1] && !sum[2] && sum[3] == b.length && !sum[4], "sums of a block of %d", (int)b.length);
          that((product == 0) == (b.length % 4 == 0), "phase and split of a block of %d", (int)b.length);
        }
      }
  });
  check::test("4: random signs differ by block and by seed, and come from the configuration alone", [] {
    std::vector<std::vector<double>> seen;
    for (uint64_t seed : {1, 2, 1}) {
      Config c = with_details(48, 20, "random");
      c.seed = seed;
      for (int b = 0; b < 4; b++) seen.push_back(detail_coefficients(MixPlan(c), b, 1, seed));
    }
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < i; k++) that(seen[i] != seen[k], "blocks %d and %d", i, k);
    for (int i = 0; i < 4; i++) that(seen[i] == seen[8 + i], "block %d again", i);
  });
}
inline void raw_sums() {
  check::test("4: raw sums: after one update all equal, split the sum in the first half, m = 2 phase = split", [] {
    for (int64_t m : BLOCKS) {
      const Config c = with_details(12, m, "phase,split");
      if (!allowed(c)) continue;
      GPT<double> model(c, Sizes{2, 1, true});
      scatter(model, Start::random);
      forward(model, Batch(2, c.T, c.V, 16));
      const MixRouter<double> &r = mixer(model);
      for (size_t block = 0; block < r.blocks.size(); block++)
        for (int64_t n = 1; n <= r.plan.blocks[block].length; n++) {
          const MixPlan::Block &b = r.plan.blocks[block];
          const BlockPartials<double> open = r.block_partials((int64_t)block, n);
          const auto read = reader(open, c.C);
          for (int64_t t = 0; t < 2 * c.T; t++) {
            const auto x = read(t);
            bool phase_is_sum = true, split_is_sum = true, equal = true;
            for (int64_t i = 0; i < c.C; i++) {
              phase_is_sum &= x.row[1][i] == x.row[0][i];
              split_is_sum &= x.row[2][i] == x.row[0][i];
              equal &= x.row[1][i] == x.row[2][i];
            }
            that(phase_is_sum == (n == 1) && split_is_sum == (2 * n <= b.length || n == 1), "m=%d: %d of %d updates",
                 (int)m, (int)n, (int)b.length);
            that(equal == (b.length == 2 || n == 1), "m=%d: %d of %d updates: phase and split", (int)m, (int)n,
                 (int)b.length);
          }
        }
    }
  });
}

// ---- 5. the two-phase read is the direct softmax

inline void same_as_direct(const Method &m, const Config &c, Start start) {
  const Batch batch(2, c.T, c.V, 17);
  const int64_t N = batch.B * c.T;
  GPT<double> model(c, Sizes{2, 1, true}), direct(c, Sizes{2, 1, true});
  scatter(model, start);
  scatter(direct, start);
  DirectRouter &router = make_direct(direct);
  forward(model, batch);
  forward(direct, batch);
  const std::string what = label(m, c);
  for (int64_t j = 1; j < read_count(c); j++) {
    const std::string read = what + ": read " + read_name(c, j);
    check::close((read + ": mix").c_str(), mixer(model).y[j], router.y[j], N * c.C, 1e-12);
    check::close((read + ": h").c_str(), mixer(model).h[j], router.h[j], N * c.C, 1e-12);
    const std::vector<double> p = weights(mixer(model), j, N);
    if (that(p.size() == router.p[j].size(), "%s: %d weights, want %d", read.c_str(), (int)p.size(),
             (int)router.p[j].size()))
      check::close((read + ": p").c_str(), p.data(), router.p[j].data(), (int64_t)p.size(), 1e-12);
  }
  const Scales scales = recorded_scales(mixer(model), N);
  for (const auto &[key, c_of_key] : router.found)
    check::close(format("%s: c %d", what.c_str(), (int)key).c_str(), scales.at(key).data(), c_of_key.data(),
                 (int64_t)c_of_key.size(), 1e-12);
  check::close((what + ": output").c_str(), model.router->output(), direct.router->output(), N * c.C, 1e-12);
  check::close((what + ": logits").c_str(), logits(model, N).data(), logits(direct, N).data(), N * c.V, 1e-12);
}
inline void two_phases() {
  for (const Method &m : methods())
    check::test(format("5: %s: the two-phase read is the direct softmax: h, p, c of every read", m.name).c_str(), [&] {
      every_shape(m, depths(), [&](const Config &c) {
        for (Start start : {Start::zero, Start::random}) same_as_direct(m, c, start);
      });
      Config c = configure(m, 6, 8);  // all options that enter the scores
      c.rho = 1.1;
      c.wav_eps = 0.3;
      c.key_eps = 0.05;
      c.beta = 0.4;
      same_as_direct(m, c, Start::random);
    });
}

// ---- 6. a key has no length

inline void scaling() {
  check::test("6: scaling one source, finished or open, does not change its score", [] {
    const int64_t N = 3, C = 10, n = 5, K = 3;
    std::vector<double> s(n * N * C), r(n * N), z(N * n * GROUP), mx1(GROUP * N), l1(GROUP * N), mx(GROUP * N),
        inv(GROUP * N), o(GROUP * N * C), w(GROUP * C), bias(GROUP), h(N * C), saved(N * 2 * 3);
    for (size_t i = 0; i < s.size(); i++) s[i] = rng::normal(1, i);
    for (size_t i = 0; i < w.size(); i++) w[i] = rng::normal(2, i);
    MixGroup<double> g;
    g.reads = K;
    g.stride = N * C;
    g.w = w.data();
    g.bias = bias.data();
    g.z = z.data();
    g.mx1 = mx1.data();
    g.l1 = l1.data();
    g.mx = mx.data();
    g.inv = inv.data();
    g.o = o.data();
    std::vector<Source<double>> all;
    for (int64_t i = 0; i < n; i++) all.push_back({&s[i * N * C], &r[i * N], nullptr, 0});
    g.sources.assign(all.begin(), all.begin() + 3);  // the last two are partials
    const auto run = [&] {
      for (int64_t i = 0; i < n; i++) plain::source_scale(&r[i * N], &s[i * N * C], N, C, 1e-12);
      plain::mix_phase1(g, N, C);
      plain::mix_phase2(MixRead<double>{g, 2, h.data(), saved.data()}, UpdatePartials<double>{2, &all[3]}, N, C);
    };
    run();
    const std::vector<double> z0 = z, saved0 = saved;
    for (int64_t i : {1, 4})
      for (int64_t k = 0; k < N * C; k++) s[i * N * C + k] *= i == 1 ? 37.5 : 1e-3;
    const std::vector<double> h0 = h;
    run();
    check::close("scores", z.data(), z0.data(), (int64_t)z.size(), 1e-9);
    for (int64_t d : {0, 1}) check::close("open", &saved[d * 3 * N], &saved0[d * 3 * N], N, 1e-5);
    that(h != h0, "the values keep their length");
  });
}

inline void truths() {
  zero_queries();
  blocks_of_one();
  no_details();
  beta();
  coefficients();
  raw_sums();
  two_phases();
  scaling();
}

}  // namespace routers
