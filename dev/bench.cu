// bench.cu: how near the cpu build is to the machine it runs on.
//
//   build/bench [step] [layers] [methods] [gemm] [memory] [start] [options]      no section named: all
//     step     the whole training step (forward, backward, clip, AdamW) as a share of the FMA peak
//     layers   the same, then every function of the step: rate, share of peak or bandwidth, share of the step; the rest
//     methods  the step of every method (or of --router's) relative to prenorm's, parameters and memory added, and the
//              depth mixer alone: time, bytes, share of the bandwidth
//     gemm     the matrix products of the model against OpenBLAS, where libopenblas can be loaded
//     memory   planned bytes against the peak of the resident memory
//     start    from an unopened text of 100 MB to the first step
//   options    --threads N  --rounds N (7)  --router NAME (prenorm), and one shape in place of the two built in:
//              --layers N --channels N --heads N --context N --batch N --vocabulary N
//              --cpu-time: one thread, and its processor time in place of the time of day: for a machine that is shared
//
// What is timed alternates in one process with what it is compared with (measure.cuh); shares and ratios are medians of
// the rounds. A share holds where the clock of the machine changes; a rate (GFLOP/s, GB/s) is only that of the day.
//
//   FLOPs   of a step: Config::flops_per_token. Of a product: 2 m n k. Of attention: 2 products forward, 5 backward
//           (scores again, dP, dQ, dK, dV), each 2 N C T/2; the formula of the step counts 4 of these 5.
//   bytes   read and written as programmed, by the formula beside the name; fetching a cache line that is only written
//           is not counted. Over 100 % of the bandwidth: caches served.
//
// In `layers` a function is called for every layer in turn, on the buffers of the model, as the step does: what a layer
// owns comes from memory, what layers share may be in cache.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "data/dataset.cuh"
#include "gpt.cuh"
#include "measure.cuh"
#include "runtime/option_table.cuh"

struct Shape {
  Config c;
  int64_t B = 8;
  int64_t N() const { return B * c.T; }
  std::string text() const {
    return format("C=%d L=%d NH=%d T=%d B=%d V=%d %s", (int)c.C, (int)c.L, (int)c.NH, (int)c.T, (int)B, (int)c.V,
                  c.router.c_str());
  }
};

static const std::vector<std::string> METHODS{"prenorm",    "block", "wav",         "attnres", "rezero",
                                              "layerscale", "delta", "delta-block", "haares"};
static void set_router(Config &c, const std::string &name) {
  runtime::Options o;
  o.router = c.router = name;
  c.details = runtime::effective_details(o);
}

struct Arguments {
  bool step = false, layers = false, methods = false, gemm = false, memory = false, start = false, cpu_time = false;
  int64_t threads = 0, rounds = 7;
  std::vector<Shape> shapes;
};

// ---------------------------------------------------------------------------------------------------------------------
// The step

struct Model {
  const Shape &s;
  GPT<float> gpt;
  std::vector<int32_t> inputs, targets;
  Pass<float> pass;
  AdamW adam{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1};
  explicit Model(const Shape &shape)
      : s(shape),
        gpt(s.c, Sizes{s.B, 1, true}),
        inputs(s.N()),
        targets(s.N()) {
    gpt.initialize(1);
    const uint64_t key = rng::key_of(1, "bench tokens");
    for (int64_t n = 0; n < s.N(); n++) {
      inputs[n] = (int32_t)(mix(key + 2 * n) % (uint64_t)s.c.V);
      targets[n] = (int32_t)(mix(key + 2 * n + 1) % (uint64_t)s.c.V);
    }
    pass = {s.B, s.c.T, Weights<float>(gpt.table, gpt.grads.data, s.c.L), {}};
  }
  static uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
  }
  void forward() { gpt.forward(inputs.data(), s.B, s.c.T); }
  void step() {
    gpt.gradients(inputs.data(), targets.data(), s.B, s.c.T, s.N());
    gpt.finish_gradients();
    const double norm = gpt.gradient_norm();
    adam.scale = norm > 1 ? 1 / norm : 1;
    gpt.update(adam, 1, 0.1);
  }
};

static Result measure_step(Bench &bench, Model &m) {
  const double flops = (double)m.s.N() * m.s.c.flops_per_token(m.s.c.T);
  m.step();
  const Result r = bench.measure(0.1, Bound::flops, flops, [&] { m.step(); });
  printf("\nstep  %s: %.2fM parameters\n", m.s.text().c_str(), (double)m.gpt.table.parameters / 1e6);
  printf("  %.2f GFLOP, %.2f ms, %.0f tokens/s, %.1f GFLOP/s; FMA peak %.1f (%.1f to %.1f)\n", flops / 1e9,
         r.seconds * 1e3, (double)m.s.N() / r.seconds, flops / r.seconds / 1e9, r.peak_seconds / r.seconds / 1e9,
         r.low / 1e9, r.high / 1e9);
  printf("  share of the FMA peak: %s%.1f %%\n", r.disturbed ? "~" : "", 100 * r.share);
  fflush(stdout);
  return r;
}

// ---------------------------------------------------------------------------------------------------------------------
// Every function of the step

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
  const auto &w = m.gpt.w.layer[l], &g = m.pass.grads.layer[l];
  const int64_t C = m.s.c.C, H = m.s.c.H();
  float *u = m.gpt.router->update(2 * l + (name == "down"));
  if (name == "qkv") return {a.layer[l].qkv, a.normed, w.qkv, g.qkv, 3 * C};
  if (name == "proj") return {u, a.layer[l].heads, w.proj, g.proj, C};
  if (name == "gateup") return {a.layer[l].gateup, a.normed, w.gateup, g.gateup, 2 * H};
  if (name == "down") return {u, a.hidden, w.down, g.down, C};
  return {a.logits, a.normed, m.gpt.w.head, m.pass.grads.head, m.s.c.ld_logits()};
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
  add("embedding: 2 NC", 1, Bound::bytes, 2 * row,
      [&, N, C](int64_t) { device::embedding_forward(g.router->embedding(), g.w.embed, m.inputs.data(), N, C); });
  add("rmsnorm: 2 NC", c.M() + 1, Bound::bytes, 2 * row, [&, N, C](int64_t j) {
    const float *h = j < g.c.M() ? g.router->input(j) : g.router->output(), *gain = g.w.final_norm;
    if (j < g.c.M()) gain = j % 2 ? g.w.layer[j / 2].mlp_norm : g.w.layer[j / 2].attn_norm;
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
    const auto &w = g.w.layer[j / 2];
    device::rmsnorm_apply(g.a.normed, g.router->input(j), g.a.rstd[j], j % 2 ? w.mlp_norm : w.attn_norm, N, C);
  });
  add("d rmsnorm: 3 NC", c.M(), Bound::bytes, 3 * row, [&, B, T, C](int64_t j) {  // to dqkv: in place it would overflow
    const auto &w = g.w.layer[j / 2], &d = m.pass.grads.layer[j / 2];
    device::rmsnorm_backward(g.a.dqkv, j % 2 ? d.mlp_norm : d.attn_norm, g.a.dnormed, g.router->input(j), g.a.rstd[j],
                             j % 2 ? w.mlp_norm : w.attn_norm, B, T, C, m.pass.carry);
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
    device::embedding_backward(m.pass.grads.embed, g.router->embedding_backward(m.pass), m.inputs.data(), B, T, g.c.V,
                               C, m.pass.carry);
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

// ---------------------------------------------------------------------------------------------------------------------
// Products against OpenBLAS

struct OpenBlas {
  typedef void (*Sgemm)(int order, int transa, int transb, int m, int n, int k, float alpha, const float *a, int lda,
                        const float *b, int ldb, float beta, float *c, int ldc);
  Sgemm sgemm = nullptr;
  explicit OpenBlas(int threads) {
    void *library = nullptr;
    for (const char *name : {"libopenblas.so.0", "libopenblas.so"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      printf("  libopenblas.so.0 not found, so no comparison (Debian: package libopenblas0; or set LD_LIBRARY_PATH)\n");
      return;
    }
    sgemm = (Sgemm)dlsym(library, "cblas_sgemm");
    const auto set_threads = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    const auto config = (const char *(*)())dlsym(library, "openblas_get_config");
    const auto core = (const char *(*)())dlsym(library, "openblas_get_corename");
    if (!sgemm || !set_threads) {
      printf("  libopenblas.so.0 lacks cblas_sgemm or openblas_set_num_threads: no comparison\n");
      sgemm = nullptr;
      return;
    }
    set_threads(threads);
    const char *type = getenv("OPENBLAS_CORETYPE");
    printf("  OpenBLAS: %s, core %s, OPENBLAS_CORETYPE=%s, %d threads\n", config ? config() : "configuration unknown",
           core ? core() : "unknown", type ? type : "", threads);
  }
};

// The threads of the other library may still spin: wait until they sleep, warm up, then time
static double alone(const Bench &bench, const std::function<void()> &run) {
  usleep(30000);
  double t = bench.time();
  run();
  const int64_t repeat = std::max<int64_t>(2, (int64_t)(0.02 / (bench.time() - t)));
  t = bench.time();
  for (int64_t i = 0; i < repeat; i++) run();
  return (bench.time() - t) / (double)repeat;
}

static void gemm_row(Bench &bench, const OpenBlas &blas, const Shape &s, const Product &p, int kind) {
  const int64_t N = s.N(), C = p.C, OC = p.OC;
  const int n = (int)N, c = (int)C, oc = (int)OC;
  device::Buffer<float> inp(N * C, "inp"), out(N * OC, "out"), weight(OC * C, "weight");
  for (device::Buffer<float> *x : {&inp, &out, &weight})
    for (int64_t i = 0; i < x->n; i++) (*x)[i] = (float)(Model::mix((uint64_t)i) >> 40) * 0x1p-24f - 0.5f;
  const auto ours = [&] {
    if (kind == 0) device::matmul_forward(out.data, OC, inp.data, weight.data, N, C, OC);
    if (kind == 1) device::matmul_backward_dinp(inp.data, out.data, OC, weight.data, N, C, OC);
    if (kind == 2) device::matmul_backward_dweight(weight.data, out.data, OC, inp.data, s.B, s.c.T, C, OC, {});
  };
  const auto theirs = [&] {  // 101: rows; 111: as it is, 112: transposed
    if (kind == 0) blas.sgemm(101, 111, 112, n, oc, c, 1, inp.data, c, weight.data, c, 0, out.data, oc);
    if (kind == 1) blas.sgemm(101, 111, 111, n, c, oc, 1, out.data, oc, weight.data, c, 0, inp.data, c);
    if (kind == 2) blas.sgemm(101, 112, 111, oc, c, n, 1, out.data, oc, inp.data, c, 0, weight.data, c);
  };
  const double flops = 2. * (double)N * (double)C * (double)OC;
  std::vector<double> us, them, us_share, ratio;
  double peak = bench.peak(0.02);
  for (int64_t r = 0; r < bench.rounds; r++) {
    const double t = alone(bench, ours), peak1 = bench.peak(0.02);
    us.push_back(t);
    us_share.push_back(flops / t / ((peak + peak1) / 2));
    peak = peak1;
    if (!blas.sgemm) continue;
    them.push_back(alone(bench, theirs));
    const double again = alone(bench, ours);
    ratio.push_back(them.back() / ((t + again) / 2));
    peak = bench.peak(0.02);
  }
  const char *what = kind == 0 ? "matmul" : kind == 1 ? "dinp" : "dweight";
  printf("  %-30s %7.1f GFLOP/s %6.1f%% of the peak", product_name(what, p).c_str(), flops / median(us) / 1e9,
         100 * median(us_share));
  if (blas.sgemm) printf("   OpenBLAS %7.1f   speed ratio %.3f", flops / median(them) / 1e9, median(ratio));
  printf("\n");
  fflush(stdout);
}

static void bench_gemm(Bench &bench, const Arguments &args) {
  printf("\ngemm  dweight: one chain per sequence, joined by the counter; OpenBLAS: one product over all N tokens\n");
  const OpenBlas blas(device::threads());
  for (const Shape &s : args.shapes) {
    printf("  %s, N=%lld\n", s.text().c_str(), (long long)s.N());
    for (int kind = 0; kind < 3; kind++)
      for (const Product &p : products_of(s.c)) gemm_row(bench, blas, s, p, kind);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory and start: each in a child of its own, forked before this process has allocated anything or started threads

static int64_t in_child(const std::function<void()> &work) {  // the peak of the child's resident memory, bytes
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw Error(format("fork: %s", strerror(errno)));
  if (child == 0) {
    int code = 0;
    try {
      work();
    } catch (const std::exception &e) {
      fprintf(stderr, "bench: %s\n", e.what());
      code = 1;
    }
    fflush(stdout);
    _exit(code);
  }
  int status = 0;
  struct rusage usage;
  if (wait4(child, &status, 0, &usage) < 0 || status) throw Error("a measurement in a child process failed");
  return (int64_t)usage.ru_maxrss * 1024;
}

static void bench_memory(const Arguments &args) {
  printf("\nmemory  after two steps: peak of the resident memory (getrusage) of a process against its plan\n");
  for (const Shape &s : args.shapes) {
    const int64_t base = in_child([] {});
    const int64_t peak = in_child([&] {
      device::set_threads(args.threads);
      Model m(s);
      m.step();
      m.step();
    });
    const int threads = args.threads ? (int)args.threads : device::threads();
    const int64_t planned = GPT<float>::plan(s.c, Sizes{s.B, 1, true}, threads).total();
    printf("  %s: planned %.1f MB, peak %.1f MB (%.1f MB of it the program itself), ratio %.3f\n", s.text().c_str(),
           (double)planned / 1e6, (double)peak / 1e6, (double)base / 1e6, (double)peak / (double)planned);
  }
}

static void time_start(const Arguments &args, const std::string &path) {
  const Bench clock{1, args.cpu_time, {}, {}};
  const double started = clock.time();
  Shape s = args.shapes[0];
  device::set_threads(args.threads);
  data::CorpusOptions o;
  o.data = path;
  const data::Corpus corpus = data::open_corpus(o);
  const double opened = clock.time();
  s.c.V = corpus.tokenizer.vocabulary;
  Model m(s);
  const data::Windows windows(corpus.train, s.c.T, data::Order::shuffle, 1);
  windows.batch(m.inputs.data(), m.targets.data(), 0, s.B);
  const double ready = clock.time();
  m.step();
  printf("  %s\n  ready for the first step after %.3f s (data %.3f, model %.3f); the step itself %.3f s\n",
         s.text().c_str(), ready - started, opened - started, ready - opened, clock.time() - ready);
}

static void bench_start(const Arguments &args) {
  const char *place = getenv("TMPDIR");
  std::string folder = std::string(place ? place : "/tmp") + "/bench.XXXXXX";
  if (!mkdtemp(&folder[0])) throw Error(folder + ": cannot be made: " + strerror(errno));
  const std::string path = folder + "/stories.txt";
  printf("\nstart  a text file of 100 MB, just written, so in the page cache\n");
  try {
    in_child([&] {
      const std::string text = data::generate_stories(100000000, 1);
      FILE *f = fopen(path.c_str(), "wb");
      const bool written = f && fwrite(text.data(), 1, text.size(), f) == text.size();
      if ((f && fclose(f)) || !written) throw Error(path + ": cannot be written; TMPDIR names another place");
    });
    in_child([&] { time_start(args, path); });
  } catch (...) {
    unlink(path.c_str());
    rmdir(folder.c_str());
    throw;
  }
  unlink(path.c_str());
  rmdir(folder.c_str());
}

// ---------------------------------------------------------------------------------------------------------------------
// The command line

static bool read_number(const char *text, int64_t &x) {
  char *end = nullptr;
  const long long n = text ? strtoll(text, &end, 10) : 0;
  if (!text || *end || end == text || n < 1 || n > 1000000) return false;
  x = n;
  return true;
}

static Arguments parse(int argc, char **argv) {
  Arguments args;
  Shape one;
  one.c.C = 384;
  one.c.L = 12;
  one.c.NH = 6;
  one.c.T = 256;
  one.c.V = 65;
  Shape two = one;
  two.c.C = 128;
  two.c.L = 48;
  two.c.NH = 4;
  bool custom = false, bad = false;
  const std::vector<std::pair<std::string, bool *>> words{
      {"step", &args.step},     {"layers", &args.layers}, {"methods", &args.methods},    {"gemm", &args.gemm},
      {"memory", &args.memory}, {"start", &args.start},   {"--cpu-time", &args.cpu_time}};
  const std::vector<std::pair<std::string, int64_t *>> numbers{
      {"--threads", &args.threads}, {"--rounds", &args.rounds}, {"--layers", &one.c.L}, {"--channels", &one.c.C},
      {"--heads", &one.c.NH},       {"--context", &one.c.T},    {"--batch", &one.B},    {"--vocabulary", &one.c.V}};
  for (int i = 1; i < argc; i++) {
    bool known = false;
    for (const auto &w : words)
      if (argv[i] == w.first) known = *w.second = true;
    for (const auto &n : numbers)
      if (argv[i] == n.first) {
        known = i + 1 < argc && read_number(argv[i + 1], *n.second);
        custom |= &n - &numbers[0] >= 2;
        i++;
        break;
      }
    if (!strcmp(argv[i], "--router") && i + 1 < argc) {
      set_router(one.c, argv[++i]);
      set_router(two.c, argv[i]);
      known = true;
    }
    if (!known) {
      fprintf(stderr, "bench: %s: not understood, or not a number from 1 to 1000000\n", argv[std::min(i, argc - 1)]);
      bad = true;
    }
  }
  if (one.c.C % one.c.NH || one.c.HS() % 2) {
    fprintf(stderr, "bench: --channels must be an even multiple of --heads\n");
    bad = true;
  }
  if (!std::count(METHODS.begin(), METHODS.end(), one.c.router)) {
    fprintf(stderr, "bench: --router %s: there is no such method\n", one.c.router.c_str());
    bad = true;
  }
  if (bad) {
    fprintf(stderr,
            "usage: bench [step] [layers] [methods] [gemm] [memory] [start] [--threads N] [--rounds N] [--cpu-time]\n"
            "             [--router NAME] [--layers N --channels N --heads N --context N --batch N\n"
            "             --vocabulary N]\n");
    exit(2);
  }
  args.shapes.push_back(one);
  if (!custom) args.shapes.push_back(two);
  if (args.cpu_time) args.threads = 1;
  if (!args.step && !args.layers && !args.methods && !args.gemm && !args.memory && !args.start)
    args.layers = args.methods = args.gemm = args.memory = args.start = true;
  return args;
}

#include "bench_methods.cuh"

int main(int argc, char **argv) {
  try {
    const Arguments args = parse(argc, argv);
    print_machine(args.threads ? (int)args.threads : device::threads());
    if (args.memory) bench_memory(args);
    if (args.start) bench_start(args);
    device::set_threads(args.threads);
    Bench bench{args.rounds, args.cpu_time, {}, {}};
    if (args.step || args.layers)
      for (const Shape &s : args.shapes) {
        Model m(s);
        const Result step = measure_step(bench, m);
        if (args.layers) bench_layers(bench, m, step);
      }
    if (args.methods) bench_methods(bench, args);
    if (args.gemm) bench_gemm(bench, args);
    return 0;
  } catch (const std::exception &e) {
    fflush(stdout);
    fprintf(stderr, "bench: %s\n", e.what());
    return 1;
  }
}
