// check.h: the whole test framework. A program calls arguments(argc, argv), then test("name", [&] {...}) for every case,
// and returns report(); a case passes if no check inside it failed. report() ends with the line "N passed, N failed" that
// test/run.sh adds up.
//
//   PROGRAM                runs every case
//   PROGRAM WORD...        only those whose name contains one of the words; none is an error, exit code 2
//   PROGRAM --list ...     names them and runs none
//
//   that(ok, "sentence %d", ...)           a condition
//   same_bits("dq", got, want, n)          bit for bit; names the first difference: index, both values, both patterns
//   close("dq", got, want, n, tolerance)   |got - want| <= tolerance * (largest |want|)
//   skip("name", "what is missing")        counted and named
#pragma once
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace check {

struct State {
  int passed = 0, failed = 0, skipped = 0, bad = 0;
  int chosen = 0;     // cases that the words let through
  bool list = false;  // name them, run none
  std::vector<std::string> words;
};
inline State &state() {
  static State s;
  return s;
}

// A program with arguments of its own takes them out of argv first
inline void arguments(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    if (word == "--list") {
      state().list = true;
    } else if (word.empty() || word[0] == '-') {
      fprintf(stderr, "usage: %s [--list] [WORD...]: the cases whose name contains one of the words\n", argv[0]);
      exit(2);
    } else {
      state().words.push_back(word);
    }
  }
}

// Is the case of this name to run? With --list it is named instead
inline bool chosen(const char *name) {
  State &s = state();
  bool fits = s.words.empty();
  for (const std::string &word : s.words) fits = fits || strstr(name, word.c_str());
  if (!fits) return false;
  s.chosen++;
  if (s.list) printf("%s\n", name);
  return !s.list;
}

template <class... Args> bool that(bool ok, const char *text, Args... args) {
  if (ok) return true;
  if (state().bad++ < 10) {
    printf("    ");
    if constexpr (sizeof...(Args) == 0)
      fputs(text, stdout);
    else
      printf(text, args...);
    printf("\n");
  }
  return false;
}

inline uint64_t pattern(float x) {
  uint32_t b;
  memcpy(&b, &x, 4);
  return b;
}
inline uint64_t pattern(double x) {
  uint64_t b;
  memcpy(&b, &x, 8);
  return b;
}

// NaN equals NaN whatever its payload
template <class real> bool same_bits(const char *name, const real *got, const real *want, int64_t n) {
  int64_t differ = 0, first = -1;
  for (int64_t i = 0; i < n; i++)
    if (memcmp(got + i, want + i, sizeof(real)) && !(got[i] != got[i] && want[i] != want[i]) && !differ++) first = i;
  if (!differ) return true;
  return that(false,
              "%s: %" PRId64 " of %" PRId64 " differ; first [%" PRId64 "] got %.9g (%0*" PRIx64
              ") want %.9g (%0*" PRIx64 ")",
              name, differ, n, first, (double)got[first], (int)(2 * sizeof(real)), pattern(got[first]),
              (double)want[first], (int)(2 * sizeof(real)), pattern(want[first]));
}

template <class A, class B> bool close(const char *name, const A *got, const B *want, int64_t n, double tolerance) {
  double largest = 0, worst = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)want[i]));
  for (int64_t i = 0; i < n; i++) {
    const double d = fabs((double)got[i] - (double)want[i]);
    if (!(d <= worst)) {
      worst = d;
      at = i;
    }  // a NaN is always worst
    if (d != d) break;
  }
  return that(worst <= tolerance * (largest > 0 ? largest : 1),
              "%s[%" PRId64 "]: got %.17g want %.17g, difference %.3g of largest %.3g, allowed %.1g", name, at,
              (double)got[at], (double)want[at], worst, largest, tolerance);
}

template <class F> void test(const char *name, F body) {
  if (!chosen(name)) return;
  state().bad = 0;
  try {
    body();
  } catch (const std::exception &e) {
    that(false, "exception: %s", e.what());
  }
  const bool ok = !state().bad;
  ok ? state().passed++ : state().failed++;
  printf("%s %s\n", ok ? "  ok  " : "  FAIL", name);
  fflush(stdout);
}

inline void skip(const char *name, const char *missing) {
  if (!chosen(name)) return;
  state().skipped++;
  printf("  skip %s: %s\n", name, missing);
}

inline int report() {
  const State &s = state();
  if (!s.words.empty() && !s.chosen) {
    fprintf(stderr, "no case has a name that contains");
    for (const std::string &word : s.words) fprintf(stderr, "%s '%s'", &word == &s.words[0] ? "" : " or", word.c_str());
    fprintf(stderr, "; --list names them all\n");
    return 2;
  }
  if (s.list) return 0;
  printf("%d passed, %d failed", s.passed, s.failed);
  if (s.skipped) printf(", %d skipped", s.skipped);
  printf("\n");
  return s.failed != 0;
}

}  // namespace check
