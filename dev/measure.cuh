// measure.cuh: timing as ratios. What is timed alternates in one process with a ruler: ruler, work, ruler, ..., ruler.
// Each ratio divides by the mean of the rulers just before and after; results are medians of the Rounds that count.
//
//   FMA peak    12 independent vector chains x = x*a + b per thread, in registers (device::fma_peak)
//   bandwidth   a[i] = a[i] + s*b[i] over two arrays of 64 MB; 12 bytes an element, all of which move
#pragma once
#include <time.h>
#include <unistd.h>
#include <functional>
#include "backend.cuh"

#if !defined WAV_COMMIT
#define WAV_COMMIT "unknown"
#endif

static double clock_seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double now() { return clock_seconds(CLOCK_MONOTONIC); }
static double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : (x[x.size() / 2] + x[(x.size() - 1) / 2]) / 2;
}

enum class Bound { flops, bytes };

struct Result {
  double seconds;       // of one run
  double share;         // of the ruler
  double peak_seconds;  // seconds x FLOP/s of the peak measured around: comparable between runs far apart in time
  double low, high;     // of the peak, over the rounds
  bool disturbed;
};

// Which rounds count: those whose rulers before and after agree to 10 % (and the peak is not below half of the best). Others are repeated, in all three times as
// many as wanted at most; if too few good ones are left, all count and the result is marked.
struct Rounds {
  int64_t wanted, good = 0;
  std::vector<bool> agreed;
  bool more() const { return good < wanted && (int64_t)agreed.size() < 3 * wanted; }
  void add(bool agrees) {
    agreed.push_back(agrees);
    good += agrees;
  }
  bool disturbed() const { return good < wanted; }
  bool counts(size_t i) const { return agreed[i] || disturbed(); }
  static bool near(double x, double y) { return std::fabs(x - y) <= 0.1 * std::max(x, y); }
};

struct Bench {
  static constexpr int64_t FLOATS = 16 << 20;  // 64 MB
  int64_t rounds;
  bool cpu_time;
  device::Buffer<float> a, b;
  double best_peak = 0;  // FLOPs per second, of the whole process

  double time() const { return clock_seconds(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC); }
  double peak(double seconds) const {  // FLOPs per second of our clock; the loop has its own, the time of day
    const double wall = now(), mine = time(), rate = device::fma_peak(seconds);
    return cpu_time ? rate * (now() - wall) / (time() - mine) : rate;
  }
  double bandwidth(double seconds) {  // bytes per second
    if (!a.n)
      for (device::Buffer<float> *x : {&a, &b}) *x = device::Buffer<float>(FLOATS, "the bandwidth loop");
    const double start = time();
    double bytes = 0, t = 0;
    for (; t < seconds; t = time() - start, bytes += 12. * FLOATS)
      cpu::parallel_rows(FLOATS, FLOATS / cpu::threads(), [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) a[i] = a[i] + 0.5f * b[i];
      });
    return bytes / t;
  }

  struct Round {
    double seconds, peak, band;
  };
  // A round of ten times the median of all so far: whoever has the processors will keep them
  void stop_if_lost(const std::vector<Round> &all, double t) const {
    std::vector<double> seconds;
    for (const Round &r : all) seconds.push_back(r.seconds);
    if (cpu_time || all.size() < 3 || t < 10 * median(seconds)) return;
    throw Error(
        format("a round took %.3g s, %.0f times the median of the rounds before: other processes have the "
               "processors; measure when the machine is quiet, or one thread's processor time with --cpu-time",
               t, t / median(seconds)));
  }
  // work: FLOPs or bytes of one run. prepare() is called before every run, untimed; without it short runs are repeated.
  Result measure(double ruler_seconds, Bound bound, double work, const std::function<void()> &run,
                 const std::function<void()> &prepare = nullptr) {
    if (prepare) prepare();
    double t = time();
    run();
    t = time() - t;
    const int64_t repeat = prepare ? 1 : std::max<int64_t>(1, (int64_t)(ruler_seconds / t));
    const bool bytes = bound == Bound::bytes;
    std::vector<Round> all;
    Rounds tried{rounds, 0, {}};
    double peak0 = peak(ruler_seconds), band0 = bytes ? bandwidth(ruler_seconds) : 0, low = peak0, high = peak0;
    while (tried.more()) {
      if (prepare) prepare();
      t = time();
      for (int64_t i = 0; i < repeat; i++) run();
      t = (time() - t) / (double)repeat;
      const double peak1 = peak(ruler_seconds), band1 = bytes ? bandwidth(ruler_seconds) : 0;
      all.push_back({t, (peak0 + peak1) / 2, (band0 + band1) / 2});
      best_peak = std::max({best_peak, peak0, peak1});
      tried.add(Rounds::near(peak0, peak1) && Rounds::near(band0, band1) && std::min(peak0, peak1) > best_peak / 2);
      stop_if_lost(all, t);
      peak0 = peak1;
      band0 = band1;
      low = std::min(low, peak1);
      high = std::max(high, peak1);
    }
    std::vector<double> seconds, shares, peak_seconds;
    for (size_t i = 0; i < all.size(); i++)
      if (const Round &r = all[i]; tried.counts(i)) {
        seconds.push_back(r.seconds);
        shares.push_back(work / r.seconds / (bytes ? r.band : r.peak));
        peak_seconds.push_back(r.seconds * r.peak);
      }
    const bool more_than_all = !bytes && median(shares) > 1;  // a peak that was disturbed
    return {median(seconds), median(shares), median(peak_seconds), low, high, tried.disturbed() || more_than_all};
  }
};

// Of the lines that start with key; "" if there is none
static std::string first_line(const std::string &path, const std::string &key = "") {
  std::string found;
  if (FILE *f = fopen(path.c_str(), "r")) {
    char line[512];
    while (found.empty() && fgets(line, sizeof line, f)) {
      line[strcspn(line, "\n")] = 0;
      if (!strncmp(line, key.c_str(), key.size())) found = line;
    }
    fclose(f);
  }
  return found;
}

static void print_machine(int threads) {
  const std::string model = first_line("/proc/cpuinfo", "model name");
  const size_t colon = model.find(": ");
  printf("machine: %s, %ld processors", colon == std::string::npos ? "unknown CPU" : model.substr(colon + 2).c_str(),
         sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 0; i < 8; i++) {
    const std::string cache = format("/sys/devices/system/cpu/cpu0/cache/index%d/", i);
    const std::string size = first_line(cache + "size"), type = first_line(cache + "type");
    if (!size.empty() && type != "Instruction") printf(", L%s %s", first_line(cache + "level").c_str(), size.c_str());
  }
#if defined __clang__
  const char *compiler = "";
#else
  const char *compiler = "g++ ";
#endif
  printf("\ncompiler: %s%s; build %s, %s, %d thread%s, commit %s\n", compiler, __VERSION__, device::BUILD,
         device::simd_name().c_str(), threads, threads > 1 ? "s" : "", WAV_COMMIT);
  printf(
      "FLOPs of a step, per token: 6 (L (4 C C + 3 C H) + V C) + 6 L C T, H = 8/3 C rounded up to a multiple of 32\n"
      "FMA peak: 12 independent vector chains per thread; bandwidth: a = a + s b over 2 x 64 MB; both alternate\n"
      "with what is timed; ratios are medians; ~ marks a result that was disturbed\n");
}
