// signals.cuh: what a training run does when it is signalled. While a StopFlag lives its handlers are in place,
// afterwards the earlier ones.
//
//   SIGINT, SIGTERM, SIGHUP   ask for a stop: the run finishes its step or leaves its evaluation, saves and ends. A second
//                             one ends the process at once; one that comes within SAME_SIGNAL of the first is the same
//                             (`timeout` sends two). SIGHUP that was ignored before (nohup) stays ignored
//   SIGUSR1                   asks for a checkpoint after the step; the run goes on
//   SIGXFSZ, SIGPIPE          ignored: what was written fails, and the error becomes a sentence
#pragma once
#include <csignal>
#include <ctime>

namespace runtime {

struct StopFlag {
  static constexpr int SAME_SIGNAL = 300;  // milliseconds

  StopFlag() {
    flags().stop = flags().save = flags().when = 0;
    for (size_t i = 0; i < COUNT; i++) {
      sigaction(SIGNALS[i], nullptr, &old[i]);
      if (SIGNALS[i] == SIGHUP && old[i].sa_handler == SIG_IGN) continue;
      struct sigaction action = {};
      action.sa_handler = handler_of(SIGNALS[i]);
      action.sa_flags = SA_RESTART;
      sigemptyset(&action.sa_mask);
      sigaction(SIGNALS[i], &action, nullptr);
    }
  }
  ~StopFlag() {
    for (size_t i = 0; i < COUNT; i++) sigaction(SIGNALS[i], &old[i], nullptr);
  }
  StopFlag(const StopFlag &) = delete;
  StopFlag &operator=(const StopFlag &) = delete;

  bool requested() const { return flags().stop != 0; }
  const char *name() const {
    if (flags().stop == SIGINT) return "SIGINT";
    if (flags().stop == SIGHUP) return "SIGHUP";
    return flags().stop == SIGTERM ? "SIGTERM" : "";
  }
  // Was a checkpoint asked for since the last call?
  bool take_save() {
    const bool asked = flags().save != 0;
    if (asked) flags().save = 0;
    return asked;
  }

 private:
  static constexpr size_t COUNT = 6;
  static constexpr int SIGNALS[COUNT] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXFSZ, SIGPIPE};
  struct sigaction old[COUNT];

  // a handler can reach nothing but static storage; the constant initialiser keeps it free of locks
  struct Flags {
    volatile sig_atomic_t stop = 0, save = 0, when = 0;
  };
  static Flags &flags() {
    static Flags f;
    return f;
  }
  static int milliseconds() {  // of a monotonic clock, modulo 2^30
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int)(((unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000) & 0x3fffffff);
  }
  static void on_stop(int number) {
    const int now = milliseconds();
    if (flags().stop) {
      if (((now - flags().when) & 0x3fffffff) < SAME_SIGNAL) return;
      signal(number, SIG_DFL);
      raise(number);
      return;
    }
    flags().when = now;
    flags().stop = number;
  }
  static void on_save(int) { flags().save = 1; }
  static void (*handler_of(int number))(int) {
    if (number == SIGUSR1) return on_save;
    if (number == SIGXFSZ || number == SIGPIPE) return SIG_IGN;
    return on_stop;
  }
};

}  // namespace runtime
