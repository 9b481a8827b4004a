// bench_methods.cuh: the whole step of every method against prenorm's, alternating in one process: rounds of
// prenorm, A, B, ...; a ratio is the median over the rounds of (time of the method) / (time of prenorm in that round).
// Memory is the plan. Included by bench.cu.
#pragma once

static void bench_methods(const Bench &bench, const Arguments &args) {
  struct Method {
    std::string name;
    std::unique_ptr<Shape> shape;
    std::unique_ptr<Model> model;
    std::vector<double> ratio;
  };
  for (const Shape &s : args.shapes) {
    std::vector<Method> methods;
    for (const char *name :
         {"prenorm", "block", "wav", "attnres", "rezero", "layerscale", "delta", "delta-block", "haares"}) {
      auto shape = std::make_unique<Shape>(s);
      Config &c = shape->c;
      c.router = name;
      if (c.router == "wav") c.details = {"phase", "split"};
      if (c.router == "haares") c.details = {"split"};
      methods.push_back({name, std::move(shape), nullptr, {}});
      methods.back().model = std::make_unique<Model>(*methods.back().shape);
      methods.back().model->step();
    }
    for (int64_t round = 0; round < bench.rounds; round++) {
      double base = 0;
      for (Method &m : methods) {
        const double start = bench.time();
        m.model->step();
        const double t = bench.time() - start;
        if (m.name == "prenorm") base = t;
        m.ratio.push_back(t / base);
      }
    }
    printf("\nmethods C=%d L=%d T=%d B=%d, blocks of %d sublayers: whole step relative to prenorm\n", (int)s.c.C,
           (int)s.c.L, (int)s.c.T, (int)s.B, (int)s.c.block);
    const double plan = (double)GPT<float>::plan(s.c, Sizes{s.B, 1, true}, device::threads()).total();
    const int64_t parameters = methods[0].model->gpt.table.parameters;
    printf("  %-12s %10s %22s %12s %8s\n", "method", "time", "(lowest to highest)", "parameters +", "memory");
    for (Method &m : methods) {
      const auto [low, high] = std::minmax_element(m.ratio.begin(), m.ratio.end());
      const double bytes = (double)GPT<float>::plan(m.shape->c, Sizes{s.B, 1, true}, device::threads()).total();
      printf("  %-12s %10.3f       (%.3f to %.3f) %12lld %7.2fx\n", m.name.c_str(), median(m.ratio), *low, *high,
             (long long)(m.model->gpt.table.parameters - parameters), bytes / plan);
    }
    fflush(stdout);
  }
}
