// signals.cuh: SIGINT and SIGTERM ask for a stop; the loop finishes its step, saves and ends. While a StopFlag lives
// its handlers are in place, afterwards the earlier ones. Further signals change nothing: `timeout` sends two.
#pragma once
#include <csignal>

namespace runtime {

struct StopFlag {
  StopFlag() {
    received() = 0;
    struct sigaction action = {};
    action.sa_handler = [](int signal) { received() = signal; };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
  }
  ~StopFlag() {
    sigaction(SIGINT, &old_int, nullptr);
    sigaction(SIGTERM, &old_term, nullptr);
  }
  StopFlag(const StopFlag &) = delete;
  StopFlag &operator=(const StopFlag &) = delete;

  bool requested() const { return received() != 0; }
  const char *name() const {
    if (received() == SIGINT) return "SIGINT";
    return received() == SIGTERM ? "SIGTERM" : "";
  }

 private:
  // a handler can reach nothing but static storage; the constant initialiser keeps it free of locks
  static volatile sig_atomic_t &received() {
    static volatile sig_atomic_t signal = 0;
    return signal;
  }
  struct sigaction old_int, old_term;
};

}  // namespace runtime
