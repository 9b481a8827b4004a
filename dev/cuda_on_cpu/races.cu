// races.cu: the checker's verdict on random kernels against a model. `races N` makes N kernels whose threads read and
// write random words between random synchronisations, of blocks, of warps and of parts of warps, and decides with a
// vector clock for every thread and a list of all accesses whether there is a race. `checked` must report one exactly
// where there is one, in whatever order the threads run. Every kernel runs in a process of its own, which a report
// ends. The last line is `N passed, N failed`.
#include "layers/gpu/launch.cuh"
#include <sys/wait.h>
#include <unistd.h>
#include <random>

constexpr int BLOCKS = 2, N = 96, STEPS = 10, WORDS = 4096, BLOCK = N;

struct Step {
  int word;    // none where it is negative
  bool write;  // read as a byte: pages with a cell for 4 bytes and for every byte occur together
};
struct Kernel {
  bool shared;  // else global memory
  int blocks;
  std::vector<Step> steps;  // [BLOCKS][STEPS][N]
  int together[STEPS];      // after each step: how many neighbours synchronise; 0, 2, ... 32 lanes, or BLOCK
};

__global__ void play(float *memory, const Step *steps, const int *together, int in_shared) {
  DYNAMIC_SHARED(float, shared);
  const int t = (int)threadIdx.x, lane = t % 32;
  for (int i = t; in_shared && i < WORDS; i += N) shared[i] = 0;
  __syncthreads();
  float *words = in_shared ? shared : memory, x = 0;
  for (int s = 0; s < STEPS; s++) {
    const Step step = steps[((int)blockIdx.x * STEPS + s) * N + t];
    if (step.word >= 0 && step.write) words[step.word] = x;
    if (step.word >= 0 && !step.write) x += words[step.word];
    const int n = together[s];
    if (n == BLOCK)
      __syncthreads();
    else if (n > 0)
      __syncwarp((n == 32 ? gpu::FULL : (1u << n) - 1) << (lane / n * n));
  }
}

static Kernel random_kernel(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int n) { return (int)(random() % (unsigned)n); };
  Kernel k{draw(2) == 0, 1 + draw(BLOCKS), std::vector<Step>(BLOCKS * STEPS * N), {}};
  const int kinds[] = {BLOCK, BLOCK, 32, 32, 16, 8, 4, 2, 0};
  for (int &n : k.together) n = kinds[draw(9)];
  // Rare accesses all over, or many within each warp, or within each four lanes: about half of the kernels have a race
  const int style = draw(4), words = 32 << draw(7), share = 1 + draw(8), writes = 1 + draw(4);
  for (size_t i = 0; i < k.steps.size(); i++) {
    const int t = (int)(i % N);
    int word = draw(style < 2 ? WORDS : words);
    if (style == 2) word = word % 256 + 256 * (t / 32);
    if (style == 3) word = word % 16 + 16 * (t / 4);
    const bool any = style < 2 ? draw(8) == 0 : draw(16) < share;
    k.steps[i] = {any ? word % WORDS : -1, style < 2 ? draw(20) == 0 : draw(16) < writes};
  }
  return k;
}

// what a block knows: clock[t][u] is the last step of thread u that happened before what t does next
struct Clocks {
  int clock[N][N];
  Clocks() { std::fill_n(&clock[0][0], N * N, -1); }
  void synchronize(int first, int n, int step) {
    int latest[N];
    for (int u = 0; u < N; u++) {
      latest[u] = u >= first && u < first + n ? step : -1;
      for (int t = first; t < first + n; t++) latest[u] = latest[u] > clock[t][u] ? latest[u] : clock[t][u];
    }
    for (int t = first; t < first + n; t++) memcpy(clock[t], latest, sizeof latest);
  }
};
static bool has_race(const Kernel &k) {
  struct Access {
    int block, thread, step, write;
  };
  std::vector<std::vector<Access>> accesses(WORDS);
  std::vector<Clocks> clocks((size_t)k.blocks);
  for (int s = 0; s < STEPS; s++)
    for (int b = 0; b < k.blocks; b++) {
      auto &c = clocks[(size_t)b];
      for (int t = 0; t < N; t++) {
        const Step step = k.steps[(size_t)((b * STEPS + s) * N + t)];
        if (step.word < 0) continue;
        auto &others = accesses[(size_t)step.word];
        for (const Access &o : others) {
          if (!step.write && !o.write) continue;
          if (o.block != b ? !k.shared : o.thread != t && c.clock[t][o.thread] < o.step) return true;
        }
        others.push_back({b, t, s, step.write});
      }
      const int n = k.together[s];
      for (int first = 0; n && first < N; first += n) c.synchronize(first, n, s);
    }
  return false;
}

static void run(const Kernel &k) {
  gpu::Buffer<float> memory(WORDS, "words");
  gpu::Buffer<Step> steps((int64_t)k.steps.size(), "steps");
  gpu::Buffer<int> together(STEPS, "synchronisations");
  gpu::upload(steps.data, k.steps.data(), steps.n);
  gpu::upload(together.data, k.together, STEPS);
  gpu::launch(play, dim3((unsigned)k.blocks), dim3(N), WORDS * 4, gpu::context().stream, memory.data,
              (const Step *)steps.data, (const int *)together.data, (int)k.shared);
  gpu::context().synchronize();
}
static std::string said(const Kernel &k, const char *order, unsigned seed) {
  int ends[2];
  if (pipe(ends)) throw Error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw Error("no process");
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("EMU_ORDER", order, 1);
    setenv("EMU_SEED", std::to_string(seed).c_str(), 1);
    run(k);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char part[1000];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) text.append(part, (size_t)n);
  close(ends[0]);
  int status;
  waitpid(child, &status, 0);
  return text.empty() && status ? "ended without a message" : text;
}

int main(int argc, char **argv) {
  const unsigned kernels = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
  int with = 0, failed = 0;
  for (unsigned i = 1; i <= kernels; i++) {
    const Kernel k = random_kernel(i);
    const bool race = has_race(k);
    with += race;
    const char *orders[] = {"random", "up", "down"};
    const std::string text = said(k, orders[i % 3], i);
    const bool reported = text.find(": race: ") != std::string::npos;
    if (race == reported && (race || text.empty())) continue;
    failed++;
    printf("  FAIL kernel %u, %s memory, order %s: %s, but the checker %s\n%s", i, k.shared ? "shared" : "global",
           orders[i % 3], race ? "a race" : "no race", text.empty() ? "says nothing" : "says:", text.c_str());
  }
  printf("%u kernels, %d with a race\n%u passed, %d failed\n", kernels, with, kernels - (unsigned)failed, failed);
  return failed != 0;
}
