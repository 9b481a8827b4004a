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
    pass = {s.B, s.c.T, {gpt.grads.data}, {}};
  }
  static uint64_t mix(uint64_t x) { return data::mix(x + 0x9E3779B97F4A7C15ull); }  // splitmix64
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

#include "bench_layers.cuh"
#include "bench_gemm.cuh"
#include "bench_memory.cuh"
#include "bench_methods.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// The command line

static bool read_number(const char *text, int64_t &x) {
  char *end = nullptr;
  const long long n = text ? strtoll(text, &end, 10) : 0;
  if (!text || *end || end == text || n < 1 || n > 1000000) return false;
  x = n;
  return true;
}

// The shape that options change, and a deep one
static std::pair<Shape, Shape> default_shapes() {
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
  return {one, two};
}

// Says what is wrong with the shape that was asked for
static bool is_possible(const Shape &s) {
  const bool heads = s.c.C % s.c.NH == 0 && s.c.HS() % 2 == 0;
  const bool method = find_named(METHODS, s.c.router) != nullptr;
  if (!heads) fprintf(stderr, "bench: --channels must be an even multiple of --heads\n");
  if (!method) fprintf(stderr, "bench: --router %s: there is no such method\n", s.c.router.c_str());
  return heads && method;
}

[[noreturn]] static void usage() {
  fprintf(stderr,
          "usage: bench [step] [layers] [methods] [gemm] [memory] [start] [--threads N] [--rounds N] [--cpu-time]\n"
          "             [--router NAME] [--layers N --channels N --heads N --context N --batch N\n"
          "             --vocabulary N]\n");
  exit(2);
}

static Arguments parse(int argc, char **argv) {
  Arguments args;
  auto [one, two] = default_shapes();
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
      one.c.router = two.c.router = argv[++i];
      known = true;
    }
    if (!known) {
      fprintf(stderr, "bench: %s: not understood, or not a number from 1 to 1000000\n", argv[std::min(i, argc - 1)]);
      bad = true;
    }
  }
  if (!is_possible(one) || bad) usage();
  args.shapes.push_back(one);
  if (!custom) args.shapes.push_back(two);
  if (args.cpu_time) args.threads = 1;
  if (!args.step && !args.layers && !args.methods && !args.gemm && !args.memory && !args.start)
    args.layers = args.methods = args.gemm = args.memory = args.start = true;
  return args;
}

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
