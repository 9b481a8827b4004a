// gpu_bench.cu: every function of gpu:: on its own, at one shape: how near its kernels are to what the GPU can do.
//
//   build/exact_bench [options]
//   options    --batch N (8)  --context N (1024)  --channels N (768)  --heads N (12)  --vocabulary N (50304)
//              --sources N (9: of the depth mixer)  --rounds N (5)
//              --only WORD      the rows whose name holds WORD
//              --tiny           other defaults, for dev/cuda_on_cpu, where times mean nothing: rows must be finite
//              --bounds X (1)   multiplies every bound; 1e9: every row must fail, --tiny or not
//
// One line for each, `ok|FAIL  name | time, rate, share | bound`; exit code 1 if a row fails. A row is the median of
// --rounds calls, each between two events, after a call that warms up; before each call the cache is overwritten, as in
// a step, where what a layer reads was written long ago. What a function does on the host, or waits for
// (sum_of_squares), counts.
//
//   FLOPs       of a product 2 m n k; of attention 2 products forward, 5 backward, each 2 N C T/2: pairs behind the
//               diagonal and what a kernel computes again do not count
//   bytes       4 x the formula beside the name: every array that is an argument, read or written, once (what is added
//               to, twice); what a kernel reads again, and scratch, do not count
//   peaks       of FMA: the loop of gpu::fma_peak, 65,536 rounds, timed with events. Of the memory: clock x width
//               x 2, as the driver has them; if it has not, the rate of gpu::copy
//
// The bounds, per cent of the peak, were chosen without hardware, far below what is to be expected: they find a kernel
// that is slower than that by an order of magnitude, no less. Half of what a GPU was seen to reach would be better.
#include "backend.cuh"
#include <functional>

struct Shape {
  int64_t B = 8, T = 1024, C = 768, NH = 12, V = 50304, sources = 9, rounds = 5;
  double bounds = 1;
  bool tiny = false;
  std::string only;
  int64_t N() const { return B * T; }
  int64_t HS() const { return C / NH; }
  int64_t H() const { return round_up(divide_up(8 * C, 3), 32); }
  int64_t ld() const { return round_up(V, 64); }
};
enum class Bound { flops, bytes };
// Least shares, per cent. CHAIN: few threads, each with a long sum; ANY: too little work, or no work to count
constexpr double COPY = 30, PRODUCT = 2, ATTENTION = 0.5, STREAM = 1, CHAIN = 0.1, ANY = 0.001;

// Device memory of a section, filled with numbers
struct Memory {
  std::vector<gpu::Buffer<float>> held;
  uint64_t key = 1;
  float *zeros(int64_t n) {
    held.emplace_back(n, "the bench");
    return held.back().data;
  }
  float *normal(int64_t n, double std = 1) {
    float *p = zeros(n);
    gpu::normal_fill(p, n, std, key++);
    return p;
  }
  float *all(int64_t n, float value) {
    float *p = zeros(n);
    gpu::fill(p, n, value);
    return p;
  }
};

struct Bench {
  Shape s;
  cudaEvent_t from = nullptr, to = nullptr;
  gpu::Buffer<float> others;  // larger than the cache
  double peak[2] = {};        // FLOPs and bytes per second
  int good = 0, bad = 0;

  explicit Bench(const Shape &shape)
      : s(shape),
        others(s.tiny ? 1024 : gpu::context().properties.l2CacheSize, "emptying the cache") {  // 4 times its bytes
    gpu::check(cudaEventCreate(&from), "an event");
    gpu::check(cudaEventCreate(&to), "an event");
  }
  Bench(const Bench &) = delete;
  ~Bench() {
    cudaEventDestroy(from);
    cudaEventDestroy(to);
  }
  double time_once(const std::function<void()> &run) {  // seconds
    float ms = 0;
    gpu::fill(others.data, others.n, 0.f);
    gpu::check(cudaEventRecord(from, gpu::context().stream), "an event");
    run();
    gpu::check(cudaEventRecord(to, gpu::context().stream), "an event");
    gpu::check(cudaEventSynchronize(to), "a kernel");
    gpu::check(cudaEventElapsedTime(&ms, from, to), "the time between events");
    return ms / 1e3;
  }
  double time(const std::function<void()> &run) {
    std::vector<double> t;
    run();
    for (int64_t i = 0; i < s.rounds; i++) t.push_back(time_once(run));
    std::sort(t.begin(), t.end());
    return (t[t.size() / 2] + t[(t.size() - 1) / 2]) / 2;
  }
  bool wanted(const std::string &name) const { return name.find(s.only) != std::string::npos; }
  void line(bool ok, const std::string &name, const std::string &figure, const std::string &bound) {
    ok ? good++ : bad++;
    printf("%s  %-44s | %-50s | %s\n", ok ? "  ok" : "FAIL", name.c_str(), figure.c_str(), bound.c_str());
    fflush(stdout);
  }
  // work: FLOPs or bytes of one run; least: of the peak, per cent
  void row(const std::string &name, Bound kind, double work, double least, const std::function<void()> &run) {
    if (!wanted(name)) return;
    const char *const what = kind == Bound::flops ? "FMA peak" : "bandwidth";
    least = s.tiny && s.bounds <= 1 ? 0 : least * s.bounds;
    const std::string bound = least > 0 ? format(">= %g %% of the %s", least, what) : "finite, above 0";
    try {
      const double t = time(run), rate = work / t, share = 100 * rate / peak[(int)kind];
      const bool flops = kind == Bound::flops;
      line(share > 0 && share - share == 0 && share >= least, name,
           format("%9.4f ms %8.4g %s %7.2f %% of the %s", t * 1e3, rate / (flops ? 1e12 : 1e9),
                  flops ? "TFLOP/s" : "GB/s   ", share, what),
           bound);
    } catch (const Error &e) {
      line(false, name, e.what(), bound);
    }
  }
};

// ---- the peaks

static double memory_clock_times_width() {  // bytes per second, or 0
#if defined CUDA_EMULATOR
  return 0;
#else
  int kilohertz = 0, bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, 0) != cudaSuccess)
    cudaGetLastError();  // forgotten: without them the rate of a copy is the ruler
  return 2 * 1e3 * kilohertz * (bits / 8.);
#endif
}
static void measure_peaks(Bench &bench) {
  const auto &device = gpu::context().properties;
  const int64_t blocks = 8 * device.multiProcessorCount, n = bench.s.tiny ? 1 << 12 : 64 << 20;
  const int rounds = bench.s.tiny ? 16 : 65536;
  Memory m;
  float *out = m.zeros(blocks * gpu::THREADS), *a = m.normal(n), *b = m.zeros(n);
  bench.peak[0] = (double)(blocks * gpu::THREADS) * rounds * 16 / bench.time([&] {
    gpu::launch(gpu::fma_peak_kernel, dim3((unsigned)blocks), dim3(gpu::THREADS), 0, gpu::context().stream, out,
                rounds);
  });
  const double copy = 8. * (double)n / bench.time([&] { gpu::copy(b, a, n); }), known = memory_clock_times_width();
  bench.peak[1] = known > 0 ? known : copy;
  printf("%s, sm_%d%d, %d multiprocessors; FMA peak %.4g TFLOP/s; bandwidth %.4g GB/s (%s), of a copy %.4g GB/s\n",
         device.name, device.major, device.minor, device.multiProcessorCount, bench.peak[0] / 1e12, bench.peak[1] / 1e9,
         known > 0 ? "memory clock x width x 2" : "a copy: the driver does not tell", copy / 1e9);
  bench.row("copy: 2 n", Bound::bytes, 8. * (double)n, COPY, [&] { gpu::copy(b, a, n); });
  bench.row("fill: n", Bound::bytes, 4. * (double)n, STREAM, [&] { gpu::fill(b, n, 1.f); });
}

// ---- matrix products

static void bench_product(Bench &bench, const char *name, int64_t C, int64_t OC) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), ld = round_up(OC, 64);
  Memory m;
  float *out = m.normal(N * ld), *inp = m.normal(N * C), *weight = m.normal(OC * C), *dweight = m.zeros(OC * C);
  const auto row = [&](const char *what, const std::function<void()> &run) {
    bench.row(format("%s %s (%d -> %d)", what, name, (int)C, (int)OC), Bound::flops, 2. * (double)(N * C * OC), PRODUCT,
              run);
  };
  row("matmul_forward", [&] { gpu::matmul_forward(out, ld, inp, weight, N, C, OC); });
  row("matmul_backward_dinp", [&] { gpu::matmul_backward_dinp(inp, out, ld, weight, N, C, OC); });
  row("matmul_backward_dweight", [&] { gpu::matmul_backward_dweight(dweight, out, ld, inp, s.B, s.T, C, OC, {}); });
}
static void bench_products(Bench &bench) {
  const Shape &s = bench.s;
  bench_product(bench, "qkv", s.C, 3 * s.C);
  bench_product(bench, "proj", s.C, s.C);
  bench_product(bench, "gateup", s.C, 2 * s.H());
  bench_product(bench, "down", s.H(), s.C);
  bench_product(bench, "head", s.C, s.V);
}

// ---- attention

static void bench_attention(Bench &bench) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), C = s.C, rows = s.B * s.NH * s.T;
  const double product = (double)(N * C * s.T);
  Memory m;
  float *qkv = m.normal(N * 3 * C), *out = m.zeros(N * C), *max = m.zeros(rows), *sum = m.zeros(rows);
  float *dqkv = m.zeros(N * 3 * C), *dout = m.normal(N * C), *table = m.zeros(s.T * s.HS()), *y = m.zeros(C);
  const auto forward = [&] { gpu::attention_forward(out, max, sum, qkv, s.B, s.T, s.NH, s.HS()); };
  bench.row("attention_forward: 2 products", Bound::flops, 2 * product, ATTENTION, forward);
  forward();
  bench.row("attention_backward: 5 products", Bound::flops, 5 * product, ATTENTION,
            [&] { gpu::attention_backward(dqkv, dout, out, max, sum, qkv, s.B, s.T, s.NH, s.HS()); });
  bench.row("attention_decode, a token: 2 TC", Bound::bytes, 8. * (double)(s.T * C), CHAIN,
            [&] { gpu::attention_decode(y, dout, qkv, qkv + s.T * C, s.T - 1, s.NH, s.HS()); });
  bench.row("rope_table: T HS", Bound::bytes, 4. * (double)(s.T * s.HS()), ANY,
            [&] { gpu::rope_table(table, s.T, s.HS()); });
  bench.row("rope_forward: 4 NC", Bound::bytes, 16. * (double)(N * C), STREAM,
            [&] { gpu::rope_forward(qkv, table, s.B, s.T, s.NH, s.HS()); });
  bench.row("rope_backward: 4 NC", Bound::bytes, 16. * (double)(N * C), STREAM,
            [&] { gpu::rope_backward(qkv, table, s.B, s.T, s.NH, s.HS()); });
}

// ---- the rest of a layer, embedding, loss, optimizer

static void bench_layer(Bench &bench) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), C = s.C, H = s.H(), B = s.B, T = s.T;
  const double row = 4. * (double)(N * C), hidden = 4. * (double)(N * H);
  Memory m;
  float *x = m.normal(N * C), *u = m.normal(N * C), *out = m.zeros(N * C), *rstd = m.all(N, 1), *scale = m.normal(C);
  float *dscale = m.zeros(C), *gateup = m.normal(N * 2 * H), *dgateup = m.zeros(N * 2 * H), *h = m.normal(N * H);
  const auto add = [&](const char *name, double bytes, double least, const std::function<void()> &run) {
    bench.row(name, Bound::bytes, bytes, least, run);
  };
  add("rmsnorm_forward: 2 NC", 2 * row, STREAM, [&] { gpu::rmsnorm_forward(out, rstd, x, scale, N, C, 1e-12); });
  add("rmsnorm_apply: 2 NC", 2 * row, STREAM, [&] { gpu::rmsnorm_apply(out, x, rstd, scale, N, C); });
  add("rmsnorm_backward: 3 NC", 3 * row, CHAIN,
      [&] { gpu::rmsnorm_backward(out, dscale, u, x, rstd, scale, B, T, C, {}); });
  add("residual_forward: 3 NC", 3 * row, STREAM, [&] { gpu::residual_forward(out, x, u, N * C); });
  add("rezero_forward: 3 NC", 3 * row, STREAM, [&] { gpu::rezero_forward(out, x, u, scale, N, C); });
  add("rezero_backward: 3 NC", 3 * row, CHAIN, [&] { gpu::rezero_backward(out, dscale, x, u, scale, B, T, C, {}); });
  add("layerscale_forward: 3 NC", 3 * row, STREAM, [&] { gpu::layerscale_forward(out, x, u, scale, N, C); });
  add("layerscale_backward: 3 NC", 3 * row, CHAIN,
      [&] { gpu::layerscale_backward(out, dscale, x, u, scale, B, T, C, {}); });
  add("swiglu_forward: 3 NH", 3 * hidden, STREAM, [&] { gpu::swiglu_forward(h, gateup, N, H); });
  add("swiglu_backward: 6 NH", 6 * hidden, STREAM, [&] { gpu::swiglu_backward(dgateup, h, h, gateup, N, H); });
}
static void bench_ends(Bench &bench) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), C = s.C, V = s.V, ld = s.ld();
  const double row = 4. * (double)(N * C), all_logits = 4. * (double)(N * V), weights = 4. * (double)(V * C);
  Memory m;
  std::vector<int32_t> host(N);
  for (int64_t n = 0; n < N; n++) host[n] = (int32_t)(n * 7919 % V);
  gpu::Buffer<int32_t> tokens(N, "tokens");
  gpu::upload(tokens.data, host.data(), N);
  float *weight = m.normal(V * C), *dweight = m.zeros(V * C), *x = m.normal(N * C), *losses = m.zeros(N);
  float *logits = m.normal(N * ld), *sums = m.normal(s.B * C * C, 1e-3), *sum = m.zeros(C * C);
  bench.row("embedding_forward: 2 NC", Bound::bytes, 2 * row, STREAM,
            [&] { gpu::embedding_forward(x, weight, tokens.data, N, C); });
  bench.row("embedding_backward: NC + VC", Bound::bytes, row + weights, ANY,
            [&] { gpu::embedding_backward(dweight, x, tokens.data, s.B, s.T, V, C, {}); });
  bench.row("add_sequences: (B + 1) CC", Bound::bytes, 4. * (double)((s.B + 1) * C * C), STREAM,
            [&] { gpu::add_sequences(sum, sums, s.B, C * C, {}); });
  bench.row("crossentropy_forward: 2 NV", Bound::bytes, 2 * all_logits, STREAM,
            [&] { gpu::crossentropy_forward(losses, logits, ld, tokens.data, N, V); });
  bench.row("crossentropy_backward: 2 NV", Bound::bytes, 2 * all_logits, STREAM,
            [&] { gpu::crossentropy_backward(losses, logits, ld, tokens.data, N, V, N); });
}
static void bench_optimizer(Bench &bench) {
  const int64_t P = bench.s.V * bench.s.C;
  const double bytes = 4. * (double)P;
  Memory m;
  float *p = m.zeros(P), *g = m.normal(P), *mean = m.zeros(P), *square = m.zeros(P);
  const AdamW h{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1};
  bench.row("normal_fill: P", Bound::bytes, bytes, CHAIN, [&] { gpu::normal_fill(p, P, 0.02, 1); });
  bench.row("sum_of_squares: P", Bound::bytes, bytes, CHAIN, [&] { gpu::sum_of_squares(g, P); });
  bench.row("adamw_update: 7 P", Bound::bytes, 7 * bytes, STREAM, [&] { gpu::adamw_update(p, g, mean, square, P, h); });
}

// ---- the depth mixer: a group of 8 reads of `sources` finished blocks, in the middle of a block of 8 updates with two
// details (phase and split, or a learned one), or, where updates are sources of their own, of half a group

struct Mixer {
  static constexpr int BASES = 3, LENGTH = 8, HALF = 4;
  Memory m;
  MixGroup<float> g;
  std::vector<Source<float>> updates;
  std::vector<const float *> u;
  std::vector<float *> G, du;  // of the sums of the block; of the updates
  std::vector<float *> rows, r, c;
  float *coef, *h, *saved, *dw, *dbias, *dcoef, *to;

  explicit Mixer(const Shape &s) {
    const int64_t N = s.N(), C = s.C;
    g.reads = GROUP;
    g.details = BASES - 1;
    g.stride = N * C;
    for (int64_t i = 0; i < s.sources; i++)
      g.sources.push_back({m.normal(N * C), m.all(N, 1), m.zeros(N * C), (int)(i % BASES)});
    g.w = m.normal(GROUP * C, 0.02);
    g.bias = m.zeros(GROUP * BASES);
    g.o = m.normal(GROUP * N * C);
    g.dh = m.normal(GROUP * N * C, 1e-3);
    g.z = m.zeros(N * s.sources * GROUP);
    g.mx1 = m.zeros(N * GROUP);
    g.l1 = m.all(N * GROUP, 1);
    g.mx = m.zeros(N * GROUP);
    g.inv = m.all(N * GROUP, 1);
    g.D = m.zeros(N * GROUP);
    for (int k = 0; k < LENGTH; k++) {
      du.push_back(m.zeros(N * C));
      updates.push_back({m.normal(N * C), m.all(N, 1), du.back(), 0});
      u.push_back(updates.back().s);
    }
    for (int d = 0; d < BASES; d++) {
      rows.push_back(m.zeros(N * C));
      r.push_back(m.zeros(N));
      c.push_back(m.all(N, 1));
      G.push_back(m.normal(N * C, 1e-3));
    }
    coef = m.all(BASES * LENGTH, 1);
    h = m.normal(N * C);
    saved = m.zeros(N * MAX_PARTIALS * 3);
    dcoef = m.zeros(s.B);
    dw = m.zeros(GROUP * s.B * C);
    dbias = m.zeros(GROUP * s.B * (BASES - 1));
    to = m.zeros(N * C);
  }
  MixRead<float> read(int k) const { return {g, k, h, saved}; }
  ReadGradients<float> gradients(float *const *to_sums) const { return {to_sums, dw, dbias}; }
  UpdateGradient<float> learned() const { return {to, dcoef, 1}; }
  StoredBlock<float> stored() const { return {rows.data(), r.data(), c.data()}; }
  BlockPartials<float> block(int count) const { return {count, u.data(), BASES, coef, LENGTH, 2, 1e-6, 1e-12}; }
  UpdatePartials<float> open() const { return {HALF, updates.data()}; }
};
static void bench_reads(Bench &bench, Mixer &x) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), C = s.C;
  const double row = 4. * (double)(N * C), n = (double)s.sources, z = 4. * (double)(N * s.sources * GROUP);
  const BlockPartials<float> block = x.block(x.HALF);
  const UpdatePartials<float> open = x.open();
  const auto add = [&](const char *name, double rows, double least, const std::function<void()> &run) {
    bench.row(format("%s: %g NC", name, rows), Bound::bytes, rows * row, least, run);
  };
  bench.row(format("mix_phase1: %g NC + 8 N n", n + GROUP), Bound::bytes, (n + GROUP) * row + z, STREAM,
            [&] { gpu::mix_phase1(x.g, N, C); });
  add("mix_phase2, a block of 4 updates", x.HALF + 2, STREAM, [&] { gpu::mix_phase2(x.read(1), block, N, C); });
  add("mix_phase2, 4 updates", x.HALF + 2, STREAM, [&] { gpu::mix_phase2(x.read(2), open, N, C); });
  add("mix_phase2_backward, a block", x.HALF + 2 + 2 * x.BASES, CHAIN,
      [&] { gpu::mix_phase2_backward(x.gradients(x.G.data()), x.read(1), block, s.B, s.T, C); });
  add("mix_phase2_backward, 4 updates", 3 * x.HALF + 2, CHAIN,
      [&] { gpu::mix_phase2_backward(x.gradients(x.du.data()), x.read(2), open, s.B, s.T, C); });
  bench.row(format("mix_phase1_backward: %g NC + 8 N n", 3 * n + GROUP), Bound::bytes, (3 * n + GROUP) * row + z, CHAIN,
            [&] { gpu::mix_phase1_backward(x.dw, x.dbias, x.g, s.B, s.T, C); });
  add("block_read_backward, learned", x.HALF + 2 + 3 * x.BASES + 2, CHAIN,
      [&] { gpu::block_read_backward(x.learned(), x.gradients(x.G.data()), x.read(1), block, s.B, s.T, C); });
}
static void bench_blocks(Bench &bench, Mixer &x) {
  const Shape &s = bench.s;
  const int64_t N = s.N(), C = s.C;
  const double row = 4. * (double)(N * C);
  const BlockPartials<float> whole = x.block(x.LENGTH);
  const auto add = [&](const char *name, double rows, double least, const std::function<void()> &run) {
    bench.row(format("%s: %g NC", name, rows), Bound::bytes, rows * row, least, run);
  };
  add("close_block", x.LENGTH + x.BASES, STREAM, [&] { gpu::close_block(x.stored(), whole, N, C); });
  add("close_block_backward", 2 * (x.BASES - 1), STREAM,
      [&] { gpu::close_block_backward(x.G.data(), x.c.data(), x.BASES, N, C); });
  add("block_update_backward, learned", x.BASES + 2, CHAIN,
      [&] { gpu::block_update_backward(x.learned(), x.G.data(), whole, x.LENGTH - 1, s.B, s.T, C); });
  add("source_scale", 1, STREAM, [&] { gpu::source_scale(x.r[0], x.u[0], N, C, 1e-12); });
  bench.row("query_forward: 3 C", Bound::bytes, 12. * (double)C, ANY,
            [&] { gpu::query_forward(x.to, x.h, x.u[0], C); });
  bench.row("query_backward: 5 C", Bound::bytes, 20. * (double)C, ANY,
            [&] { gpu::query_backward(x.to, x.rows[0], x.h, x.u[0], C); });
}

// ---- options

static bool usage() {
  fprintf(stderr,
          "usage: gpu_bench [--batch N] [--context N] [--channels N] [--heads N] [--vocabulary N] [--sources N] "
          "[--rounds N] [--only WORD] [--tiny] [--bounds X]\n");
  return false;
}
static bool parse(int argc, char **argv, Shape &s) {
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], "--tiny")) {
      s.tiny = true;
      s.B = 3;
      s.T = 17;
      s.C = 36;
      s.NH = 2;
      s.V = 41;
      s.sources = 5;
      s.rounds = 1;
    }
  const std::pair<const char *, int64_t *> sizes[] = {
      {"--batch", &s.B},      {"--context", &s.T},       {"--channels", &s.C},   {"--heads", &s.NH},
      {"--vocabulary", &s.V}, {"--sources", &s.sources}, {"--rounds", &s.rounds}};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--tiny")) continue;
    if (i + 1 == argc) return usage();
    const char *const name = argv[i], *const value = argv[++i];
    int64_t *size = nullptr;
    for (const auto &[option, to] : sizes)
      if (!strcmp(name, option)) size = to;
    if (size && (*size = atoll(value)) < 1) return usage();
    if (!strcmp(name, "--only"))
      s.only = value;
    else if (!strcmp(name, "--bounds"))
      s.bounds = atof(value);
    else if (!size)
      return usage();
  }
  return s.C % (2 * s.NH) == 0 || usage();
}

int main(int argc, char **argv) {
  Shape s;
  if (!parse(argc, argv, s)) return 2;
  try {
    Bench bench(s);
    printf("B=%d T=%d C=%d NH=%d H=%d V=%d, %d sources\n", (int)s.B, (int)s.T, (int)s.C, (int)s.NH, (int)s.H(),
           (int)s.V, (int)s.sources);
    measure_peaks(bench);
    bench_products(bench);
    bench_attention(bench);
    bench_layer(bench);
    bench_ends(bench);
    bench_optimizer(bench);
    Mixer mixer(s);
    bench_reads(bench, mixer);
    bench_blocks(bench, mixer);
    printf("%d ok, %d failed\n", bench.good, bench.bad);
    return bench.bad > 0;
  } catch (const std::exception &e) {
    fprintf(stderr, "gpu_bench: %s\n", e.what());
    return 1;
  }
}
