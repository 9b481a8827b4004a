// log.cuh: what a run tells: the files of its folder (RunLog) and the line on the screen (Progress).
//
//   log.jsonl   one event a line, {"event":"step","step":12,"loss":2.3456789,...}; appended and flushed at once; floats
//               read back to the same bits. On resume from step K the lines of later steps are cut off, and a last line
//               that a crash left unfinished. Where another line is no event the file is set aside as it was, as
//               log.jsonl.1 (2, 3, ...), with a note, and its events stay
//   run.json    {"status":"running",...}: facts about the run, each replaced as a whole; written atomically
// Errors: a folder or file that cannot be made or written.
#pragma once
#include <chrono>
#include <sys/ioctl.h>

#include "files.cuh"
#include "json.cuh"

namespace runtime {

struct RunLog {
  std::string directory;

  // Makes the folder. resume_step < 0: a new run, with an empty log; otherwise go on after that step
  explicit RunLog(const std::string &directory, int64_t resume_step = -1)
      : directory(directory) {
    make_directories(directory);
    cut(resume_step);
    file = fopen(log_path().c_str(), "ae");
    if (!file) throw system_error("open", log_path(), errno);
  }
  ~RunLog() { fclose(file); }
  RunLog(const RunLog &) = delete;
  RunLog &operator=(const RunLog &) = delete;

  std::string log_path() const { return directory + "/log.jsonl"; }
  std::string run_path() const { return directory + "/run.json"; }

  void event(const char *kind, int64_t step, const json::Members &members = {}) {
    json::Members all = {{"event", kind}, {"step", step}};
    all.insert(all.end(), members.begin(), members.end());
    const std::string line = json::object(all) + "\n";
    if (fwrite(line.data(), 1, line.size(), file) != line.size() || fflush(file))
      throw system_error("write", log_path(), errno);
  }
  // Did the run that goes on log this before, at this step?
  bool has(const std::string &kind, int64_t step) const { return earlier.count({kind, step}) > 0; }
  // Sets or replaces a fact; status() writes them
  void fact(const std::string &key, const json::Literal &value) {
    for (auto &member : facts)
      if (member.first == key) {
        member.second = value;
        return;
      }
    facts.emplace_back(key, value);
  }
  // "running", "stopped", "finished" or "failed"
  void status(const char *status) {
    json::Members all = {{"status", status}};
    all.insert(all.end(), facts.begin(), facts.end());
    write_file(run_path(), json::object(all, true) + "\n");
  }
  // run.json as it was left; null where there is none, and, with a note, where it is damaged
  static json::Value previous(const std::string &directory) {
    const std::string path = directory + "/run.json";
    if (!file_exists(path)) return json::Value();
    try {
      return json::parse(read_file(path), path);
    } catch (const Error &e) {
      fprintf(stderr, "note: %s; what it said is not known\n", e.what());
      return json::Value();
    }
  }

 private:
  FILE *file = nullptr;
  json::Members facts;
  std::set<std::pair<std::string, int64_t>> earlier;  // events of the lines that were kept, but for steps

  // A line's step, -1 if it is no event; events but for steps are remembered
  int64_t step_of(const std::string &line, int64_t last_step) {
    json::Value v;
    try {
      v = json::parse(line, "a line");
    } catch (const Error &) {
      return -1;
    }
    const json::Value *step = v.find("step"), *kind = v.find("event");
    int64_t n = -1;
    if (!step || !kind || !step->to(n) || n < 0) return -1;
    if (n <= last_step && kind->text != "step") earlier.insert({kind->text, n});
    return n;
  }
  void set_aside(const std::string &text, size_t line) {
    int number = 1;
    while (file_exists(format("%s.%d", log_path().c_str(), number))) number++;
    const std::string aside = format("%s.%d", log_path().c_str(), number);
    write_file(aside, text);
    printf("note: %s:%zu: no event with a step; the file as it was is %s\n", log_path().c_str(), line, aside.c_str());
  }
  void cut(int64_t last_step) {
    const std::string old = file_exists(log_path()) ? read_file(log_path()) : "";
    std::string kept;
    size_t line_number = 0, foreign = 0;
    for (size_t at = 0; last_step >= 0 && at < old.size();) {
      const size_t end = old.find('\n', at);
      if (end == std::string::npos) break;  // unfinished
      const std::string line = old.substr(at, end - at);
      const int64_t step = step_of(line, last_step);
      line_number++;
      if (step < 0 && !foreign) foreign = line_number;
      if (step >= 0 && step <= last_step) kept += line + "\n";
      at = end + 1;
    }
    if (foreign) set_aside(old, foreign);
    if (kept != old) write_file(log_path(), kept);
  }
};

// ---- progress

inline double seconds_now() {  // monotonic
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline std::string duration_text(double seconds) {  // 12s, 3m12s, 2h05m, 3d04h
  const long long s = seconds > 0 ? (long long)(seconds + 0.5) : 0;
  if (s < 60) return format("%llds", s);
  if (s < 3600) return format("%lldm%02llds", s / 60, s % 60);
  if (s < 86400) return format("%lldh%02lldm", s / 3600, s / 60 % 60);
  return format("%lldd%02lldh", s / 86400, s / 3600 % 24);
}
inline std::string count_text(double x) {  // 950, 12.3k, 4.56M
  if (x < 1e3) return format("%.0f", x);
  return x < 1e6 ? format("%.3gk", x / 1e3) : format("%.3gM", x / 1e6);
}

struct StepInfo {
  int64_t step = 0;                                                    // steps done
  double loss = 0, lr = 0, norm = 0, clip = 1, tokens_per_second = 0;  // clip: the factor on the gradient
  double fma_share = -1;  // of the FMA peak, 0 to 1; outside: not known, left out
};

// One line that is rewritten in place on a terminal (at most 10 times a second); in a file a line for the first three
// steps, for each fiftieth of the run, after 10 s of silence, and for the last step. Times in seconds of one clock.
struct Progress {
  Progress(FILE *out, int64_t first_step, int64_t steps, double now)
      : Progress(out, first_step, steps, now, isatty(fileno(out)) != 0) {}
  Progress(FILE *out, int64_t first_step, int64_t steps, double now, bool terminal)
      : out(out),
        first(first_step),
        steps(steps),
        start(now),
        terminal(terminal) {}
  ~Progress() { finish(); }
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  void step(const StepInfo &s, double now) {
    if (!due(s.step, now)) return;
    last = now;
    printed = true;
    const std::string text = step_text(s, now);
    if (!terminal)
      fprintf(out, "%s\n", text.c_str());
    else {
      fprintf(out, "\r%s\033[K", text.substr(0, width()).c_str());
      open = true;
    }
    fflush(out);
  }
  // How far something long has come that is no step, if it takes more than 10 s
  void part(const char *what, int64_t part, int64_t all, double begin, double now) {
    if (now - begin < 10 || now - last < (terminal ? 0.1 : 10)) return;
    last = now;
    const double left = part > 0 ? (now - begin) / (double)part * (double)(all - part) : 0;
    const std::string text =
        format("%s: %.0f %% | %s left", what, 100 * (double)part / (double)all, duration_text(left).c_str());
    fprintf(out, terminal ? "\r%s\033[K" : "%s\n", text.c_str());
    open = terminal;
    fflush(out);
  }
  // A line of its own: an evaluation, a sample, a checkpoint
  void line(const std::string &text) {
    finish();
    fprintf(out, "%s\n", text.c_str());
    fflush(out);
  }
  // Ends the line that is being rewritten
  void finish() {
    if (open) {
      fprintf(out, "\n");
      fflush(out);
    }
    open = false;
  }

 private:
  FILE *out;
  int64_t first, steps;
  double start, last = 0;
  bool terminal, printed = false, open = false;

  bool due(int64_t step, double now) const {
    if (!printed || step >= steps) return true;
    if (terminal) return now - last >= 0.1;
    const int64_t every = steps / 50 > 1 ? steps / 50 : 1;
    return step - first <= 3 || step % every == 0 || now - last >= 10;
  }
  std::string step_text(const StepInfo &s, double now) const {
    std::string text = format("step %lld/%lld | loss %.4f | lr %.1e | norm %.2f | %s tok/s", (long long)s.step,
                              (long long)steps, s.loss, s.lr, s.norm, count_text(s.tokens_per_second).c_str());
    if (s.clip < 1) text += format(" | clipped to %.2g", s.clip);
    if (s.fma_share >= 0 && s.fma_share <= 1) text += format(" | %.0f %% of FMA peak", 100 * s.fma_share);
    const double done = (double)(s.step - first);
    return text + " | " + duration_text(done > 0 ? (now - start) / done * (double)(steps - s.step) : 0) + " left";
  }
  size_t width() const {  // a wrapped line could not be rewritten
    struct winsize size = {};
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 120u;
  }
};

}  // namespace runtime
