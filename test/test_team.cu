// test_team.cu: the threads of the cpu build: every piece once, whoever computes it; what a call leaves is seen by the
// next; a member that does not come is not waited for; nothing is left over from one size to the next. builds.sh runs it
// under ThreadSanitizer too.
#include "layers/cpu/team.cuh"
#include "test/check.h"
#include <thread>
#include <unistd.h>

using check::that;
using cpu::Team;

template <class F> static void run(Team &team, int64_t n, const F &f) {
  team.run(
      n, [](const void *body, int64_t i) { (*static_cast<const F *>(body))(i); }, &f);
}
static void nothing() {}
// Waits for it for seconds at most
template <class F> static bool comes_true(const F &f) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!f() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return f();
}

// Calls of many sizes one right behind the other, each counted up by plain additions: a piece done twice or never, or one
// that runs into the next call, leaves a wrong count
static void every_piece_once(int64_t threads, int64_t calls) {
  Team team(threads, nothing);
  std::vector<int64_t> done(1000, 0), want(1000, 0);
  for (int64_t call = 0; call < calls; call++) {
    const int64_t n = call % 7 == 0 ? call % 1000 : call % 11;
    run(team, n, [&](int64_t i) { done[(size_t)i] = done[(size_t)i] + call; });
    for (int64_t i = 0; i < n; i++) want[(size_t)i] += call;
    if (call % 100 == 0) that(done == want, "%d threads, call %d", (int)threads, (int)call);
  }
  that(done == want, "%d threads, all %d calls", (int)threads, (int)calls);
}
// Two pieces that wait for each other: both members come
static void really_at_once() {
  Team team(2, nothing);
  std::atomic<int> here{0}, met{0};
  run(team, 2, [&](int64_t) {
    here.fetch_add(1);
    met.fetch_add(comes_true([&] { return here.load() == 2; }));
  });
  that(met.load() == 2, "%d of two pieces saw the other", met.load());
}
// One piece ends only when all others have: whoever has finished its own stretch does those behind it
static void stretches_are_shared() {
  for (int64_t slow : {0, 5}) {
    Team team(2, nothing);
    std::atomic<int> others{0};
    std::atomic<bool> all{false};
    run(team, 10, [&](int64_t i) {
      if (i == slow)
        all.store(comes_true([&] { return others.load() == 9; }));
      else
        others.fetch_add(1);
    });
    that(all.load(), "piece %d saw %d others done", (int)slow, others.load());
  }
}
// Members that sleep wake up, a caller that sleeps is woken
static void sleepers() {
  Team team(3, nothing);
  for (int round = 0; round < 20; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> sum{0};
    run(team, 3, [&](int64_t i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      sum.fetch_add((int)i + 1);
    });
    that(sum.load() == 6, "round %d", round);
  }
}
static void sizes() {
  Team team(1, nothing);
  std::thread::id caller = std::this_thread::get_id();
  for (int64_t size : {1, 4, 2, 8, 1, 3}) {
    team.resize(size);
    that(team.size() == size, "%d members", (int)size);
    std::vector<int> done(100, 0);
    run(team, 100, [&](int64_t i) {
      if (size == 1 && std::this_thread::get_id() != caller) done[(size_t)i] = -1000;
      done[(size_t)i]++;
    });
    for (int x : done) that(x == 1, "a piece was done %d times by %d members", x, (int)size);
  }
}
// Members that are told to leave while they still come to a call
static void resized_at_once() {
  Team team(4, nothing);
  for (int64_t round = 0; round < 10000; round++) {
    std::atomic<int> done{0};
    run(team, 2, [&](int64_t) { done.fetch_add(1); });
    that(done.load() == 2, "round %d", (int)round);
    team.resize(4);
  }
}
static void inside_a_piece() {
  Team team(2, nothing);
  std::vector<int> done(12, 0);
  run(team, 3, [&](int64_t i) { run(team, 4, [&](int64_t j) { done[(size_t)(i * 4 + j)]++; }); });
  for (int x : done) that(x == 1, "a piece was done %d times", x);
}
// Threads begin in the float mode, whatever mode they were made in
static void float_mode() {
#if defined __x86_64__
  __builtin_ia32_ldmxcsr(0x9fc0);  // subnormals become zero
#endif
  cpu::team().resize(3);
  set_float_mode();
  std::atomic<int> kept{0}, here{0};
  cpu::parallel(3, [&](int64_t) {
    volatile float tiny = 0x1p-126f;
    kept.fetch_add(tiny * 0.5f != 0);
    here.fetch_add(1);
    comes_true([&] { return here.load() == 3; });
  });
  that(kept.load() == 3, "%d of 3 threads keep subnormals", kept.load());
}
static void rows() {
  for (int64_t n : {0, 1, 31, 32, 33, 100}) {
    std::vector<int> done((size_t)n, 0);
    std::atomic<int> longest{0};
    cpu::parallel_rows(n, 32, [&](int64_t from, int64_t to) {
      if (to - from > longest.load()) longest.store((int)(to - from));
      for (int64_t i = from; i < to; i++) done[(size_t)i]++;
    });
    for (int x : done) that(x == 1, "a row was done %d times", x);
    that(longest.load() <= 32, "a piece of %d rows", longest.load());
  }
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  alarm(100);  // a call that never returns is a failure too
  for (int64_t threads : {1, 2, 3, 8})
    check::test(format("%d threads: every piece once", (int)threads).c_str(),
                [&] { every_piece_once(threads, 20000); });
  check::test("two members at once", really_at_once);
  check::test("who is done takes pieces of others", stretches_are_shared);
  check::test("members and callers that sleep are woken", sleepers);
  check::test("sizes, one after the other", sizes);
  check::test("a new size right behind a call", resized_at_once);
  check::test("a call inside a piece", inside_a_piece);
  check::test("the float mode of every thread", float_mode);
  check::test("rows", rows);
  return check::report();
}
