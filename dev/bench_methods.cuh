// bench_methods.cuh: the whole step of every method against prenorm's, and the depth mixer alone. Included by bench.cu.
//
//   step    prenorm, method, prenorm, method, ... in one process: a ratio divides by the mean of the prenorm steps just
//           before and after; the median of the rounds that count (Rounds in measure.cuh). Memory is the plan.
//   mixer   all reads and writes of a step without the sublayers between them, so with warmer caches than in the step;
//           bytes as programmed (mixer_rows), against the bandwidth loop of measure.cuh
#pragma once

// Rows of (N,C) floats that the mixer reads and writes in one step; the scores z (N,n,8) count too
static double mixer_rows(const MixRouter<float> &r, bool backward) {
  const Config &c = r.c;
  double rows = 0;
  for (const auto &g : r.groups) {
    const double n = (double)g.sources.size();
    double ds = 0;
    for (const auto &s : g.sources) ds += s.fresh ? 1 : 2;
    if (g.begin() < g.K || backward) rows += n + g.K + (backward ? ds : 0) + n * GROUP / (double)c.C;
  }
  for (int64_t j = 1; j < (int64_t)r.reads.size(); j++) {
    const bool final = j == r.final_read(), block = !final && !c.full();
    const double open = final ? 0 : (double)(c.full() ? r.reads[j].lane : r.reads[j].position);
    rows += 2 + open;  // o (or dh), h, the updates
    if (backward && open > 0) rows += block ? 2 * r.bases + 1 : 2 * open;
    if (c.delta()) rows += 3;
  }
  for (const auto &b : r.blocks) rows += backward ? 2 * (r.bases - 1) + r.bases + 1 : (double)b.length + r.bases;
  if (!backward) rows += c.full() ? 1 + (double)c.M() : 1;  // 1/rms of the sources
  return rows + (c.delta() ? 3 * (double)c.M() : 0);        // the stream
}

static void bench_mixer(Bench &bench, Model &m, double step) {
  auto &router = dynamic_cast<MixRouter<float> &>(*m.gpt.router);
  const Pass<float> &p = m.pass;
  const int64_t M = m.s.c.M();
  m.step();
  for (const bool backward : {false, true}) {
    const double bytes = 4 * (double)(m.s.N() * m.s.c.C) * mixer_rows(router, backward);
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
  set_router(s.c, name);
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
    set_router(s.c, "prenorm");
    Model base(s);
    printf("\nmethods C=%d L=%d T=%d B=%d, blocks of %d sublayers: whole step relative to prenorm\n", (int)s.c.C,
           (int)s.c.L, (int)s.c.T, (int)s.B, (int)s.c.block);
    printf("  %-12s %10s %22s %12s %8s\n", "method", "time", "(lowest to highest)", "parameters +", "memory");
    for (const std::string &name : METHODS)
      if (name != "prenorm" && (shape.c.router == "prenorm" || shape.c.router == name)) bench_method(bench, base, name);
  }
}
