// device.cuh: what every part of the program needs from the machine: errors, sizes, the float mode.
#pragma once
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

// A refusal: one line that says what, where, have / need, what to do. main prints it; the exit code is 1.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

__attribute__((format(printf, 1, 2))) inline std::string format(const char *text, ...) {
  va_list args, again;
  va_start(args, text);
  va_copy(again, args);
  std::string s((size_t)vsnprintf(nullptr, 0, text, args), '\0');
  vsnprintf(&s[0], s.size() + 1, text, again);
  va_end(args);
  va_end(again);
  return s;
}

constexpr int64_t ALIGNMENT = 256;  // bytes: every tensor in memory starts at a multiple of this

constexpr int64_t divide_up(int64_t x, int64_t by) { return (x + by - 1) / by; }
constexpr int64_t round_up(int64_t x, int64_t to) { return divide_up(x, to) * to; }

// IEEE arithmetic as the float order needs it: round to nearest, subnormals kept. Per thread. Throws if the machine
// cannot or something (a library built with fast-math) keeps it from it.
inline void set_float_mode() {
#if defined __x86_64__
  __builtin_ia32_ldmxcsr(0x1f80);
#elif defined __aarch64__
  const uint64_t mode = 0;
  asm volatile("msr fpcr, %0" ::"r"(mode));
#endif
  volatile float tiny = 0x1p-126f, half = 0.5f, one = 1.f, ulp = 0x1.000002p-24f;
  if (tiny * half == 0 || one + ulp == one || one - 0x1p-26f != one)
    throw Error("this processor flushes subnormals or does not round to nearest; the float order cannot be kept");
}
