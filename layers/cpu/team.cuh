// team.cuh: the threads of the cpu build. A call's pieces are shared out beforehand, a stretch of neighbours to each
// member, so that a member finds the same rows in its caches call after call; who has finished its own stretch takes
// pieces off the ends of others'. Bits do not depend on who computes a piece.
//   The caller waits only for pieces that somebody has begun: a member that lost its processor to another process, or
// sleeps, is not waited for, others do its work. Whoever waits spins for SPIN (most calls follow each other within
// microseconds), then sleeps, so that a processor is never held against the thread that is being waited for.
#pragma once
#include "../device.cuh"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace cpu {

inline void pause_a_moment() {
#if defined __x86_64__
  __builtin_ia32_pause();
#elif defined __aarch64__
  asm volatile("yield");
#endif
}

class Team {
 public:
  typedef void (*Piece)(const void *body, int64_t i);

  // begin() runs first in every thread but the caller's
  Team(int64_t size, void (*begin)())
      : begin(begin) {
    resize(size);
  }
  Team(const Team &) = delete;
  ~Team() { dismiss(); }
  int64_t size() const { return (int64_t)shares.size(); }
  // Only between calls. The caller is member 0 and brings its own thread. Where the system gives fewer threads, they are
  // fewer.
  void resize(int64_t size) {
    dismiss();
    try {
      while ((int64_t)members.size() + 1 < size)
        members.emplace_back([this, me = (int64_t)members.size() + 1, seen = calls.load()] {
          begin();
          serve(me, seen);
        });
    } catch (const std::system_error &) {}
    shares = std::vector<Share>(members.size() + 1);
  }
  // piece(body, i) for i = 0..n-1, n < 2^31, in any order, by any member; returns when all are done. Called inside a
  // piece: one after the other. Only one thread at a time may call.
  void run(int64_t n, Piece piece, const void *body) {
    if (n <= 1 || size() == 1 || inside()) {
      for (int64_t i = 0; i < n; i++) piece(body, i);
      return;
    }
    this->piece = piece;
    this->body = body;
    left.store(n, std::memory_order_relaxed);
    for (int64_t m = 0, all = size(); m < all; m++)
      shares[(size_t)m].rest.store(stretch(n * m / all, n * (m + 1) / all), std::memory_order_release);
    wake();
    work(0);
    wait_until([&] { return left.load() == 0; }, caller_sleeps, done);
  }

 private:
  static constexpr auto SPIN = std::chrono::microseconds(50);

  // What nobody has begun of a member's stretch: first in the upper half, end in the lower. One word, so that the owner
  // at its front and others at its end never take the same piece.
  struct alignas(64) Share {
    std::atomic<uint64_t> rest{0};
  };
  static uint64_t stretch(int64_t first, int64_t end) { return (uint64_t)first << 32 | (uint64_t)end; }

  void (*const begin)();
  std::vector<std::thread> members;  // 1..; 0 is the caller
  std::vector<Share> shares;
  // of the call; written while no piece is begun, so whoever took a piece reads those of its call
  Piece piece = nullptr;
  const void *body = nullptr;
  alignas(64) std::atomic<int64_t> left{0};    // pieces not finished
  alignas(64) std::atomic<uint64_t> calls{0};  // so far
  std::atomic<int> members_sleep{0}, caller_sleeps{0};
  std::atomic<bool> leave{false};
  std::mutex mutex;
  std::condition_variable come, done;

  void dismiss() {
    leave.store(true);
    wake();
    for (std::thread &t : members) t.join();
    members.clear();
    leave.store(false);
  }
  static bool &inside() {
    static thread_local bool yes = false;
    return yes;
  }
  // The next piece of a stretch, its first or its last; -1 when none is left
  static int64_t take(Share &share, bool first) {
    uint64_t x = share.rest.load(std::memory_order_relaxed);
    for (;;) {
      const int64_t from = (int64_t)(x >> 32), end = (int64_t)(x & 0xFFFFFFFFu);
      if (from >= end) return -1;
      const uint64_t rest = first ? stretch(from + 1, end) : stretch(from, end - 1);
      if (share.rest.compare_exchange_weak(x, rest, std::memory_order_acq_rel, std::memory_order_relaxed))
        return first ? from : end - 1;
    }
  }
  void work(int64_t me) {
    inside() = true;
    int64_t finished = 0;
    const int64_t all = size();
    for (int64_t k = 0; k < all; k++)
      for (int64_t i; (i = take(shares[(size_t)((me + k) % all)], k == 0)) >= 0; finished++) piece(body, i);
    inside() = false;
    if (finished && left.fetch_sub(finished) == finished && caller_sleeps.load()) notify(done);
  }
  void serve(int64_t me, uint64_t seen) {
    for (;;) {
      wait_until([&] { return leave.load() || calls.load() != seen; }, members_sleep, come);
      if (leave.load()) return;
      seen = calls.load();
      work(me);
    }
  }
  void wake() {
    calls.fetch_add(1);
    if (members_sleep.load()) notify(come);
  }
  // The sleeper counts itself before it looks a last time; the waker changes the state before it looks for sleepers
  void notify(std::condition_variable &bell) {
    { const std::lock_guard<std::mutex> between_look_and_sleep(mutex); }
    bell.notify_all();
  }
  template <class F> void wait_until(F ready, std::atomic<int> &sleepers, std::condition_variable &bell) {
    for (const auto end = std::chrono::steady_clock::now() + SPIN; std::chrono::steady_clock::now() < end;)
      for (int i = 0; i < 16; i++) {
        if (ready()) return;
        pause_a_moment();
      }
    sleepers.fetch_add(1);
    std::unique_lock<std::mutex> lock(mutex);
    bell.wait(lock, ready);
    sleepers.fetch_sub(1);
  }
};

// Those that this process may use
inline int64_t processors() { return std::max<int64_t>(1, (int64_t)std::thread::hardware_concurrency()); }
// The one team of the process. Never taken down: at the end of the process its members sleep
inline Team &team() {
  static Team &one = *new Team(processors(), set_float_mode);
  return one;
}

// ---- f(i) for i = 0..n-1; the work is cut by index, never by the number of threads
constexpr int64_t TOKENS = 32, ELEMENTS = 8192;  // of one piece of work, for loops over rows and over flat arrays
template <class F> void parallel(int64_t n, const F &f) {
  team().run(
      n, [](const void *body, int64_t i) { (*static_cast<const F *>(body))(i); }, &f);
}
template <class F> void parallel_rows(int64_t n, int64_t piece, const F &f) {  // f(from, to)
  parallel((n + piece - 1) / piece, [&](int64_t i) { f(i * piece, std::min(n, (i + 1) * piece)); });
}
inline int threads() { return (int)team().size(); }

}  // namespace cpu
