// bench_memory.cuh: memory and start, each in a child of its own, forked before this process has allocated anything or
// started threads. Included by bench.cu.
#pragma once
#include <sys/resource.h>
#include <sys/wait.h>

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
