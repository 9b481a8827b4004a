// test_runtime.cu: schedule, sampler, log and progress, signals, samples of a model
#include "inference.cuh"
#include "runtime/log.cuh"
#include "runtime/sampler.cuh"
#include "runtime/schedule.cuh"
#include "runtime/signals.cuh"
#include "test/check.h"

using namespace runtime;

static bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }
static bool near(double a, double b, double tolerance = 1e-14) { return std::fabs(a - b) <= tolerance * std::fabs(b); }

struct Folder {
  std::string path;
  Folder() {
    const char *tmp = getenv("TMPDIR");
    path = std::string(tmp && *tmp ? tmp : "/tmp") + "/test_runtimeXXXXXX";
    if (!mkdtemp(&path[0])) throw Error("no temporary folder");
  }
  ~Folder() {
    for (const char *name : {"runs/x/log.jsonl", "runs/x/log.jsonl.1", "runs/x/run.json", "out"})
      unlink((path + "/" + name).c_str());
    for (const char *name : {"runs/x", "runs", ""}) rmdir((path + "/" + name).c_str());
  }
};

static void test_schedule() {
  check::test("learning rate at the key steps", [] {
    Schedule s;
    s.lr = 1e-3;
    s.min_lr = 1e-4;
    s.warmup = 10;
    s.steps = 110;
    for (const auto kind : {Schedule::cosine, Schedule::linear, Schedule::wsd, Schedule::constant}) {
      s.kind = kind;
      check::that(near(learning_rate(s, 0), 1e-4) && near(learning_rate(s, 4), 5e-4), "warm-up, schedule %d", kind);
      check::that(learning_rate(s, 9) == s.lr && learning_rate(s, 10) == s.lr, "lr at steps 9 and 10, schedule %d",
                  kind);
      const double end = kind == Schedule::constant ? s.lr : s.min_lr;
      check::that(learning_rate(s, 110) == end && learning_rate(s, 1000) == end, "end, schedule %d", kind);
      for (int64_t i = 10; i < 109; i++)
        check::that(learning_rate(s, i + 1) <= learning_rate(s, i), "schedule %d never rises", kind);
    }
    s.kind = Schedule::cosine;
    check::that(
        near(learning_rate(s, 60), 5.5e-4) && near(learning_rate(s, 35), 1e-4 + 9e-4 * (0.5 + std::sqrt(2.) / 4)),
        "cosine");
    s.kind = Schedule::linear;
    check::that(near(learning_rate(s, 60), 5.5e-4) && near(learning_rate(s, 35), 7.75e-4), "linear");
    s.kind = Schedule::wsd;
    check::that(learning_rate(s, 88) == s.lr && near(learning_rate(s, 99), 5.5e-4), "wsd");
    s.kind = Schedule::constant;
    check::that(learning_rate(s, 109) == s.lr, "constant");
    s.warmup = 0;
    s.kind = Schedule::cosine;
    check::that(learning_rate(s, 0) == s.lr, "no warm-up");
    s.warmup = 110;
    check::that(learning_rate(s, 109) == s.lr && learning_rate(s, 110) == s.min_lr, "all warm-up");
  });
  check::test("schedule of the options, bias correction", [] {
    Options o;
    o.schedule = "wsd";
    o.steps = 2000;
    o.lr = 0.5;
    const Schedule s = schedule_of(o);
    check::that(s.kind == Schedule::wsd && s.warmup == 40 && s.min_lr == 0.05 && s.steps == 2000, "schedule_of");
    check::that(near(bias_correction(0.9, 1), 0.1, 1e-14) && near(bias_correction(0.95, 2), 1 - 0.9025, 1e-14),
                "small t");
    check::that(near(bias_correction(0.999, 1000), 1 - std::pow(0.999, 1000), 1e-13), "large t");
    check::that(bias_correction(0, 1) == 1 && bias_correction(0.9, 100000) == 1, "limits");
  });
}

static void test_sampler() {
  check::test("temperature 0 takes the largest, of equals the lowest", [] {
    const float x[] = {1, 3, 2, 3, -HUGE_VALF};
    check::that(draw(x, 5, 0, 0, 1, 1, 1) == 1, "argmax");
    for (uint64_t i = 0; i < 50; i++) {
      check::that(draw(x, 5, 1, 1, 1, 7, i) == 1, "top-k 1");
      check::that(draw(x, 5, 1, 0, 0, 7, i) == 1, "top-p 0");
      check::that(draw(x, 5, 1e-9, 0, 1, 7, i) % 2 == 1, "cold: one of the two largest");
    }
  });
  check::test("the token follows from the uniform number by hand", [] {
    const float x[] = {0, (float)std::log(2.), (float)std::log(5.), 0};  // 1, 2, 5, 1 of 9; in order 2, 1, 0, 3
    int top2 = 0, nucleus = 0;
    for (uint64_t i = 0; i < 2000; i++) {
      const double u = rng::uniform(42, i);
      const auto far = [&](double edge) { return std::fabs(u - edge) > 1e-6; };
      // tokens 2, 1, 0, 3 up to these edges
      const auto token = [&](double two, double one, double zero) {
        if (u < two) return 2;
        if (u < one) return 1;
        return u < zero ? 0 : 3;
      };
      const int all = token(5. / 9, 7. / 9, 8. / 9);
      if (far(5. / 9) && far(7. / 9) && far(8. / 9)) check::that(draw(x, 4, 1, 0, 1, 42, i) == all, "all, u %.9g", u);
      if (far(5. / 7)) check::that(draw(x, 4, 1, 2, 1, 42, i) == (u < 5. / 7 ? 2 : 1), "top-k 2, u %.9g", u);
      if (far(5. / 7)) check::that(draw(x, 4, 1, 0, .7, 42, i) == (u < 5. / 7 ? 2 : 1), "top-p 0.7, u %.9g", u);
      if (far(25. / 31) && far(29. / 31) && far(30. / 31))
        check::that(draw(x, 4, .5, 0, 1, 42, i) == token(25. / 31, 29. / 31, 30. / 31), "temperature, u %.9g", u);
      check::that(draw(x, 4, 1, 9, 1, 42, i) == draw(x, 4, 1, 0, 1, 42, i), "top-k beyond the vocabulary");
      top2 += draw(x, 4, 1, 3, 1, 42, i) == 3;
      nucleus += draw(x, 4, 1, 0, .8, 42, i) == 3;
    }
    check::that(top2 == 0 && nucleus == 0, "of equals the lower index stays");
  });
  check::test("logits that are no numbers are refused", [] {
    for (const float bad : {NAN, HUGE_VALF}) {
      const float x[] = {0, bad};
      std::string e;
      try {
        draw(x, 2, 1, 0, 1, 1, 1);
      } catch (const Error &error) {
        e = error.what();
      }
      check::that(contains(e, "logit 1 is"), "got '%s'", e.c_str());
    }
    const float none[] = {-HUGE_VALF, -HUGE_VALF};
    check::that(draw(none, 2, 1, 0, 1, 1, 1) == 0, "nothing possible");
  });
}

static void test_log() {
  check::test("log: events, cut on resume, torn last line", [] {
    const Folder folder;
    const std::string path = folder.path + "/runs/x";
    {
      RunLog log(path);
      for (int64_t i = 1; i <= 4; i++) log.event("step", i, {{"loss", 0.1f * (float)i}, {"note", "a\"b"}});
      log.event("eval", 4, {{"loss", NAN}});
      check::that(contains(read_file(log.log_path()), "{\"event\":\"eval\",\"step\":4,\"loss\":\"NaN\"}\n"), "flushed");
    }
    const std::string before = read_file(path + "/log.jsonl");
    write_file(path + "/log.jsonl", before + "{\"event\":\"st");
    { RunLog log(path, 4); }
    check::that(read_file(path + "/log.jsonl") == before, "the unfinished line is gone, the rest stays");
    {
      RunLog log(path, 2);
      log.event("step", 3);
    }
    const std::string after = read_file(path + "/log.jsonl");
    check::that(
        after == before.substr(0, before.find("{\"event\":\"step\",\"step\":3")) + "{\"event\":\"step\",\"step\":3}\n",
        "%s", after.c_str());
    float loss = 0;
    const json::Value v = json::parse(after.substr(0, after.find('\n')), "line");
    sscanf(v.find("loss")->text.c_str(), "%f", &loss);
    check::that(loss == 0.1f, "full precision");
    const std::string good = "{\"event\":\"eval\",\"step\":1}\n",
                      damaged = good + "{\"event\":\"x\"}\n" + std::string(9, '\0') + "\n";
    write_file(path + "/log.jsonl", damaged + "{\"event\":\"step\",\"step\":3}\n");
    {
      RunLog log(path, 2);
      check::that(log.has("eval", 1) && !log.has("eval", 2) && !log.has("routes", 1), "what was logged");
    }
    check::that(read_file(path + "/log.jsonl") == good, "the events stay");
    check::that(contains(read_file(path + "/log.jsonl.1"), damaged), "set aside");
    { RunLog log(path); }
    check::that(read_file(path + "/log.jsonl").empty(), "a new run begins a new log");
  });
  check::test("run.json: facts, status, read back", [] {
    const Folder folder;
    const std::string path = folder.path + "/runs/x";
    RunLog log(path);
    check::that(RunLog::previous(path).kind == json::Value::null, "nothing yet");
    log.fact("options", json::Literal::raw("{\"lr\":0.001}"));
    log.fact("best", 2.5);
    log.status("running");
    log.fact("best", 1.5);
    log.status("finished");
    const json::Value v = RunLog::previous(path);
    check::that(v.find("status")->text == "finished" && v.find("best")->text == "1.5" && v.keys.size() == 3, "facts");
    check::that(v.find("options")->find("lr")->text == "0.001", "raw");
    std::string e;
    try {
      RunLog bad(path + "/run.json/y");
    } catch (const Error &error) {
      e = error.what();
    }
    check::that(contains(e, "cannot make directory"), "got '%s'", e.c_str());
  });
}

static std::string progress_text(const Folder &folder, bool terminal, int64_t steps, double seconds_per_step) {
  FILE *out = fopen((folder.path + "/out").c_str(), "w");
  {
    Progress progress(out, 0, steps, 100, terminal);
    StepInfo s;
    s.loss = 1.23449;
    s.lr = 9.8e-4;
    s.norm = .834;
    s.tokens_per_second = 12345;
    s.fma_share = .712;
    for (s.step = 1; s.step <= steps; s.step++) {
      progress.step(s, 100 + seconds_per_step * (double)s.step);
      if (s.step == 5) progress.line("val 1.5");
    }
  }
  fclose(out);
  return read_file(folder.path + "/out");
}

static void test_progress() {
  check::test("progress in a file and on a terminal", [] {
    const Folder folder;
    const auto count = [](const std::string &s, char c) { return std::count(s.begin(), s.end(), c); };
    const std::string text = progress_text(folder, false, 1000, .001);
    check::that(contains(text,
                         "step 20/1000 | loss 1.2345 | lr 9.8e-04 | norm 0.83 | 12.3k tok/s | "
                         "71 % of FMA peak | 1s left\n"),
                "%s", text.c_str());
    check::that(count(text, '\n') == 3 + 50 + 1 && count(text, '\r') == 0, "%d lines", (int)count(text, '\n'));
    check::that(contains(text, "\nval 1.5\nstep 20/"), "a line of its own");
    check::that(contains(text, "step 1000/1000"), "the last step");
    check::that(count(progress_text(folder, false, 1000, 11), '\n') == 1001, "after 10 s of silence");
    const std::string screen = progress_text(folder, true, 1000, .001);
    check::that(count(screen, '\r') >= 10 && count(screen, '\r') <= 12 && count(screen, '\n') == 3, "%d updates",
                (int)count(screen, '\r'));
    check::that(contains(screen, "\033[K\nval 1.5\n\r"), "the line is ended first");
    check::that(!contains(text, "clipped"), "clipped");
    check::that(duration_text(12.4) == "12s" && duration_text(192) == "3m12s" && duration_text(7500) == "2h05m" &&
                    duration_text(273600) == "3d04h",
                "durations");
    check::that(count_text(950) == "950" && count_text(4.56e6) == "4.56M", "counts");
  });
}

static void test_signals() {
  check::test("signals set their flags, earlier handlers come back", [] {
    static volatile sig_atomic_t earlier = 0;
    const auto old = signal(SIGINT, [](int) { earlier = 1; });
    signal(SIGHUP, SIG_IGN);  // as nohup leaves it
    {
      StopFlag stop;
      raise(SIGHUP);
      check::that(!stop.requested(), "SIGHUP that was ignored stays so");
    }
    signal(SIGHUP, SIG_DFL);
    {
      StopFlag stop;
      check::that(!stop.requested() && stop.name()[0] == 0, "quiet");
      raise(SIGTERM);
      check::that(stop.requested() && !strcmp(stop.name(), "SIGTERM"), "SIGTERM");
      raise(SIGTERM);
      raise(SIGINT);
      check::that(!strcmp(stop.name(), "SIGTERM") && !earlier, "signals of one moment are one");
    }
    {
      StopFlag stop;
      raise(SIGHUP);
      check::that(!strcmp(stop.name(), "SIGHUP"), "SIGHUP");
    }
    {
      StopFlag stop;
      raise(SIGXFSZ);
      raise(SIGPIPE);
      check::that(!stop.requested() && !stop.take_save(), "ignored");
      raise(SIGUSR1);
      check::that(!stop.requested() && stop.take_save() && !stop.take_save(), "SIGUSR1, once");
    }
    raise(SIGINT);
    check::that(earlier == 1, "restored");
    signal(SIGINT, old);
    check::that(!StopFlag().requested(), "a new flag is quiet");
  });
}

static void test_samples() {
  check::test("greedy samples are the argmax of a whole forward pass at every place, past the context too", [] {
    for (const char *router : {"prenorm", "wav", "delta"}) {
      Config c;
      c.router = router;
      c.L = 2;
      c.C = 16;
      c.NH = 2;
      c.T = 7;
      c.V = 5;
      c.block = 4;
      GPT<float> model(c, Sizes{1, 1, false});
      model.initialize(3);
      for (const Tensor &t : model.table.rows)  // large, so that the text hangs on every position
        for (int64_t i = 0; i < t.size(); i++) model.params[t.offset + i] *= t.init == Init::normal ? 20 : 1;
      const data::Tokenizer tokenizer = data::byte_tokenizer((const unsigned char *)"abcde", 5);
      Options o;
      o.prompt = "cab";
      o.tokens = 40;
      o.temperature = 0;
      std::string text;
      sample(model, tokenizer, o, 0, [&](const std::string &piece) {
        text += piece;
        return true;
      });
      const std::vector<int32_t> tokens = tokenizer.encode(text);
      check::that(tokens.size() == 43, "%s: %zu tokens", router, tokens.size());
      size_t start = 0;  // of the window: when it is full, a new one begins over its last half
      for (size_t n = 3; n < tokens.size(); n++) {
        if (n - start > (size_t)c.T) start = n - (size_t)c.T / 2;
        model.forward(&tokens[start], 1, (int64_t)(n - start));
        const float *row = model.a.logits + (n - start - 1) * (size_t)c.ld_logits();
        const auto want = std::max_element(row, row + c.V) - row;
        check::that(tokens[n] == want, "%s: token %zu is %d, want %d", router, n, tokens[n], (int)want);
      }
    }
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  test_schedule();
  test_sampler();
  test_log();
  test_progress();
  test_signals();
  test_samples();
  return check::report();
}
