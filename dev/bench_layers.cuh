// bench_layers.cuh: every function of the step on the buffers of a model. Included by bench.cu.
//
// A function is called for every layer in turn, as the step does: what a layer owns comes from memory, what layers
// share may be in cache.
#pragma once

// The gain of the norm before sublayer j
static Row norm_row(const GPT<float> &g, int64_t j) {
  const Backbone::Layer &layer = g.rows.layer[j / 2];
  return j % 2 ? layer.mlp_norm : layer.attn_norm;
}

struct Piece {
  std::string name;
  int64_t calls;  // per step
  Bound bound;
  double work;                       // of one call
  std::function<void(int64_t)> run;  // l = 0..calls-1
  bool spoils = false;               // needs a forward before each sweep
};

struct Product {
  const char *name;
  int64_t C, OC, calls;
};
static std::vector<Product> products_of(const Config &c) {
  return {{"qkv", c.C, 3 * c.C, c.L},
          {"proj", c.C, c.C, c.L},
          {"gateup", c.C, 2 * c.H(), c.L},
          {"down", c.H(), c.C, c.L},
          {"head", c.C, c.V, 1}};
}
static std::string product_name(const char *what, const Product &p) {
  return format("%s %s (%lld -> %lld)", what, p.name, (long long)p.C, (long long)p.OC);
}

// Operands of the products, as gpt.cuh has them: out = inp weight^T
struct Operands {
  float *out, *inp, *weight, *dweight;
  int64_t ld;
};
static Operands operands(Model &m, const std::string &name, int64_t l) {
  auto &a = m.gpt.a;
  const Flat<float> &w = m.gpt.w, &g = m.pass.grads;
  const Backbone &rows = m.gpt.rows;
  const int64_t C = m.s.c.C, H = m.s.c.H();
  float *u = m.gpt.router->update(2 * l + (name == "down"));
  if (name == "qkv") return {a.layer[l].qkv, a.normed, w[rows.layer[l].qkv], g[rows.layer[l].qkv], 3 * C};
  if (name == "proj") return {u, a.layer[l].heads, w[rows.layer[l].proj], g[rows.layer[l].proj], C};
  if (name == "gateup") return {a.layer[l].gateup, a.normed, w[rows.layer[l].gateup], g[rows.layer[l].gateup], 2 * H};
  if (name == "down") return {u, a.hidden, w[rows.layer[l].down], g[rows.layer[l].down], C};
  return {a.logits, a.normed, w[rows.head], g[rows.head], m.s.c.ld_logits()};
}

static void add_products(std::vector<Piece> &pieces, Model &m) {
  const int64_t N = m.s.N();
  const std::vector<Product> products = products_of(m.s.c);
  auto add = [&](const char *what, const Product &p, std::function<void(int64_t)> run) {
    pieces.push_back({product_name(what, p), p.calls, Bound::flops, 2. * (double)(N * p.C * p.OC), std::move(run)});
  };
  for (const Product &p : products)
    add("matmul", p, [&m, p, N](int64_t l) {
      const Operands o = operands(m, p.name, l);
      device::matmul_forward(o.out, o.ld, o.inp, o.weight, N, p.C, p.OC);
    });
  for (const Product &p : products)
    add("dinp", p, [&m, p, N](int64_t l) {
      const Operands o = operands(m, p.name, l);
      float *dinp = p.C == m.s.c.C ? m.gpt.a.dnormed : m.gpt.a.hidden;
      device::matmul_backward_dinp(dinp, o.out, o.ld, o.weight, N, p.C, p.OC);
    });
  for (const Product &p : products)
    add("dweight", p, [&m, p](int64_t l) {
      const Operands o = operands(m, p.name, l);
      device::matmul_backward_dweight(o.dweight, o.out, o.ld, o.inp, m.s.B, m.s.c.T, p.C, p.OC, m.pass.carry);
    });
}

static void add_forward(std::vector<Piece> &pieces, Model &m) {
  auto &g = m.gpt;
  const Config &c = m.s.c;
  const int64_t N = m.s.N(), B = m.s.B, T = c.T, C = c.C, H = c.H(), NH = c.NH, HS = c.HS();
  const double row = 4. * (double)N * (double)C, hidden = 4. * (double)N * (double)H;  // bytes of (N,C) and (N,H)
  auto add = [&](const char *name, int64_t calls, Bound bound, double work, std::function<void(int64_t)> run) {
    pieces.push_back({name, calls, bound, work, std::move(run)});
  };
  add("embedding: 2 NC", 1, Bound::bytes, 2 * row, [&, N, C](int64_t) {
    device::embedding_forward(g.router->embedding(), g.w[g.rows.embed], m.inputs.data(), N, C);
  });
  add("rmsnorm: 2 NC", c.M() + 1, Bound::bytes, 2 * row, [&, N, C](int64_t j) {
    const float *h = j < g.c.M() ? g.router->input(j) : g.router->output(), *gain = g.w[g.rows.final_norm];
    if (j < g.c.M()) gain = g.w[norm_row(g, j)];
    device::rmsnorm_forward(g.a.normed, g.a.rstd[j], h, gain, N, C, g.c.eps);
  });
  add("rope: 4 NC", c.L, Bound::bytes, 4 * row,
      [&, B, T, NH, HS](int64_t l) { device::rope_forward(g.a.layer[l].qkv, g.a.rope, B, T, NH, HS); });
  add("attention: 2 products", c.L, Bound::flops, 2. * (double)(N * C * T), [&, B, T, NH, HS](int64_t l) {
    const auto &x = g.a.layer[l];
    device::attention_forward(x.heads, x.m, x.n, x.qkv, B, T, NH, HS);
  });
  add("swiglu: 3 NH", c.L, Bound::bytes, 3 * hidden,
      [&, N, H](int64_t l) { device::swiglu_forward(g.a.hidden, g.a.layer[l].gateup, N, H); });
  if (!c.mixes())
    add("router write: 3 NC", c.M(), Bound::bytes, 3 * row, [&](int64_t j) { g.router->write(j, m.pass); });
  add("cross-entropy: 2 NV", 1, Bound::bytes, 8. * (double)N * (double)c.V, [&, N](int64_t) {
    device::crossentropy_backward(g.a.losses, g.a.logits, g.c.ld_logits(), m.targets.data(), N, g.c.V, N);
  });
}

static void add_backward(std::vector<Piece> &pieces, Model &m) {
  auto &g = m.gpt;
  const Config &c = m.s.c;
  const int64_t N = m.s.N(), B = m.s.B, T = c.T, C = c.C, H = c.H(), NH = c.NH, HS = c.HS();
  const double row = 4. * (double)N * (double)C, hidden = 4. * (double)N * (double)H;
  const double P = 4. * (double)g.table.parameters;
  auto add = [&](const char *name, int64_t calls, Bound bound, double work, std::function<void(int64_t)> run,
                 bool spoils = false) {
    pieces.push_back({name, calls, bound, work, std::move(run), spoils});
  };
  add("rmsnorm again: 2 NC", c.M(), Bound::bytes, 2 * row, [&, N, C](int64_t j) {
    device::rmsnorm_apply(g.a.normed, g.router->input(j), g.a.rstd[j], g.w[norm_row(g, j)], N, C);
  });
  add("d rmsnorm: 3 NC", c.M(), Bound::bytes, 3 * row, [&, B, T, C](int64_t j) {  // to dqkv: in place it would overflow
    const Row gain = norm_row(g, j);
    device::rmsnorm_backward(g.a.dqkv, m.pass.grads[gain], g.a.dnormed, g.router->input(j), g.a.rstd[j], g.w[gain], B,
                             T, C, m.pass.carry);
  });
  add("d rope: 4 NC", c.L, Bound::bytes, 4 * row,
      [&, B, T, NH, HS](int64_t) { device::rope_backward(g.a.dqkv, g.a.rope, B, T, NH, HS); });
  add("d attention: 5 products", c.L, Bound::flops, 5. * (double)(N * C * T), [&, B, T, NH, HS](int64_t l) {
    const auto &x = g.a.layer[l];
    device::attention_backward(g.a.dqkv, g.a.dnormed, x.heads, x.m, x.n, x.qkv, B, T, NH, HS);
  });
  add(
      "d swiglu: 6 NH", c.L, Bound::bytes, 6 * hidden,
      [&, N, H](int64_t l) {
        device::swiglu_backward(g.a.layer[l].gateup, g.a.hidden, g.a.hidden, g.a.layer[l].gateup, N, H);
      },
      true);
  if (!c.mixes())
    add("d router: 3 NC", c.M(), Bound::bytes, 3 * row, [&](int64_t j) {
      g.router->write_backward(j, m.pass);
      g.router->read_backward(j, m.pass);
    });
  add("d embedding: NC + VC", 1, Bound::bytes, row + 4. * (double)(c.V * C), [&, B, T, C](int64_t) {
    device::embedding_backward(m.pass.grads[g.rows.embed], g.router->embedding_backward(m.pass), m.inputs.data(), B, T,
                               g.c.V, C, m.pass.carry);
  });
  add("gradient norm: P", 1, Bound::bytes, P, [&](int64_t) { g.gradient_norm(); });
  add("AdamW: 7 P", 1, Bound::bytes, 7 * P, [&](int64_t) { g.update(m.adam, 1, 0.1); });
}

static void bench_layers(Bench &bench, Model &m, const Result &step) {
  std::vector<Piece> pieces;
  add_products(pieces, m);
  add_forward(pieces, m);
  add_backward(pieces, m);
  printf("  %-30s %6s %9s %8s   rate, share of its ruler (bytes: 4 x the formula)\n", "function", "calls", "ms/step",
         "of step");
  double sum = 0;
  for (const Piece &p : pieces) {
    const double work = p.work * (double)p.calls;
    const auto sweep = [&] {
      for (int64_t l = 0; l < p.calls; l++) p.run(l);
    };
    std::function<void()> prepare;
    if (p.spoils) prepare = [&] { m.forward(); };
    m.forward();
    const Result r = bench.measure(0.02, p.bound, work, sweep, prepare);
    sum += r.peak_seconds;
    const bool flops = p.bound == Bound::flops;
    printf("  %-30s %6d %9.3f %7.2f%%   %7.1f %s %s%5.1f%% of the %s\n", p.name.c_str(), (int)p.calls, r.seconds * 1e3,
           100 * r.peak_seconds / step.peak_seconds, work / r.seconds / 1e9, flops ? "GFLOP/s" : "GB/s   ",
           r.disturbed ? "~" : " ", 100 * r.share, flops ? "peak" : "bandwidth");
    fflush(stdout);
  }
  printf("  %-30s %6s %9s %7.2f%%   the step less the sum above; below 0: functions run better inside the step\n",
         "rest", "", "", 100 - 100 * sum / step.peak_seconds);
}
