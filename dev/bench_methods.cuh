// bench_methods.cuh: the whole step of every method against prenorm's, and the depth mixer alone. Included by bench.cu.
//
//   step    prenorm, method, prenorm, method, ... in one process: a ratio divides by the mean of the prenorm steps just
//           before and after; the median of the rounds that count (Rounds in measure.cuh). Memory is the plan.
//   mixer   all reads and writes of a step without the sublayers between them, so with warmer caches than in the step;
//           bytes as programmed (mixer_rows), against the bandwidth loop of measure.cuh
#pragma once

// Rows of (N,C) floats that the mixer reads and writes in one step; the scores z (N,n,8) count too
static double mixer_rows(const Config &c, const MixPlan &plan, bool backward) {
  double rows = 0;
  for (const MixPlan::Group &g : plan.groups) {
    const double n = (double)g.sources.size();
    double ds = 0;
    for (const bool fresh : g.fresh) ds += fresh ? 1 : 2;
    const bool mixes = g.reads > 1 || g.first == FirstLane::mix;
    if (mixes || backward) rows += n + g.reads + (backward ? ds : 0) + n * GROUP / (double)c.C;
  }
  for (const MixPlan::Read &read : plan.reads) {
    if (!read.queries) continue;
    const bool block = !plan.full && read.name != "final";
    const double open = (double)(block ? read.position : read.partials);
    rows += 2 + open;  // o (or dh), h, the updates
    if (backward && open > 0) rows += block ? 2 * plan.bases + 1 : 2 * open;
    if (plan.delta) rows += 3;
  }
  for (const MixPlan::Block &b : plan.blocks)
    rows += backward ? 2 * (plan.bases - 1) + plan.bases + 1 : (double)b.length + plan.bases;
  if (!backward) rows += plan.full ? 1 + (double)plan.M : 1;  // 1/rms of the sources
  return rows + (plan.delta ? 3 * (double)plan.M : 0);        // the stream
}

static void bench_mixer(Bench &bench, Model &m, double step) {
  Router<float> &router = *m.gpt.router;
  const MixPlan plan(m.s.c);
  const Pass<float> &p = m.pass;
  const int64_t M = m.s.c.M();
  m.step();
  for (const bool backward : {false, true}) {
    const double bytes = 4 * (double)(m.s.N() * m.s.c.C) * mixer_rows(m.s.c, plan, backward);
    const Result r = bench.measure(0.02, Bound::bytes, bytes, [&] {
      if (backward) router.read_final_backward(p);
      for (int64_t j = M - 1; j >= 0 && backward; j--) {
        router.write_backward(j, p);
        router.read_backward(j, p);
      }
      if (!backward) router.embedding();
      for (int64_t j = 0; j < M && !backward; j++) {
        router.read(j, p);
        router.write(j, p);
      }
      if (!backward) router.read_final(p);
    });
    printf("    mixer %-9s %8.2f ms, %4.1f %% of the step; %.2f GB, %.1f GB/s, %s%.0f %% of the bandwidth\n",
           backward ? "backward" : "forward", r.seconds * 1e3, 100 * r.seconds / step, bytes / 1e9,
           bytes / r.seconds / 1e9, r.disturbed ? "~" : "", 100 * r.share);
  }
}

static void bench_method(Bench &bench, Model &base, const std::string &name) {
  Shape s = base.s;
  s.c.router = name;
  Model m(s);
  const auto time = [&](Model &model) {
    const double start = bench.time();
    model.step();
    return bench.time() - start;
  };
  m.step();
  base.step();
  Rounds tried{bench.rounds, 0, {}};
  std::vector<double> all, ratio, seconds;
  double before = time(base);
  while (tried.more()) {
    const double t = time(m), after = time(base);
    tried.add(Rounds::near(before, after));
    all.push_back(2 * t / (before + after));
    seconds.push_back(t);
    before = after;
  }
  for (size_t i = 0; i < all.size(); i++)
    if (tried.counts(i)) ratio.push_back(all[i]);
  const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
  const int threads = device::threads();
  const double plan = (double)GPT<float>::plan(base.s.c, Sizes{s.B, 1, true}, threads).total();
  const double bytes = (double)GPT<float>::plan(s.c, Sizes{s.B, 1, true}, threads).total();
  printf("  %-12s %s%9.3f       (%.3f to %.3f) %12lld %7.2fx\n", name.c_str(), tried.disturbed() ? "~" : " ",
         median(ratio), *low, *high, (long long)(m.gpt.table.parameters - base.gpt.table.parameters), bytes / plan);
  if (s.c.mixes()) bench_mixer(bench, m, median(seconds));
  fflush(stdout);
}

static void bench_methods(Bench &bench, const Arguments &args) {
  for (const Shape &shape : args.shapes) {
    Shape s = shape;
    s.c.router = METHODS[0].name;
    Model base(s);
    printf("\nmethods C=%d L=%d T=%d B=%d, blocks of %d sublayers: whole step relative to prenorm\n", (int)s.c.C,
           (int)s.c.L, (int)s.c.T, (int)s.B, (int)s.c.block);
    printf("  %-12s %10s %22s %12s %8s\n", "method", "time", "(lowest to highest)", "parameters +", "memory");
    for (const Method &method : METHODS)
      if (&method != METHODS && (shape.c.router == METHODS[0].name || shape.c.router == method.name))
        bench_method(bench, base, method.name);
  }
}
