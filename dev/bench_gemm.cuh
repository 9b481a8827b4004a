// bench_gemm.cuh: the matrix products of the model against OpenBLAS, in turn. Included by bench.cu.
#pragma once
#include <dlfcn.h>

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
  static const char *const names[] = {"matmul", "dinp", "dweight"};
  printf("  %-30s %7.1f GFLOP/s %6.1f%% of the peak", product_name(names[kind], p).c_str(), flops / median(us) / 1e9,
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
