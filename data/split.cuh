// split.cuh: --split, the parts of one stream for training, validation and test: three percentages, in this order, of
// at most six decimal places. Decimal text is read into whole numbers, so that where a part ends is exact: the first at
// floor(N a / 100), the second at floor(N (a+b) / 100).
#pragma once
#include <cstdint>
#include <string>
#include "layers/device.cuh"

namespace data {

struct Split {
  int64_t train, val, test;  // millionths of a percent, WHOLE together
  static constexpr int64_t WHOLE = 100000000;
};

// A decimal number of at most six places from text[at]: millionths, and `at` behind it; -1 where there is none
inline int64_t read_percentage(const std::string &text, size_t &at) {
  int64_t value = 0;
  int digits = 0, places = -1;  // -1: no point yet
  for (; at < text.size() && text[at] != '/'; at++) {
    if (text[at] == '.' && places < 0) {
      places = 0;
      continue;
    }
    if (text[at] < '0' || text[at] > '9' || digits > 9 || places == 6) return -1;
    value = value * 10 + text[at] - '0';
    digits++;
    places += places >= 0;
  }
  if (!digits) return -1;
  for (int i = places < 0 ? 0 : places; i < 6; i++) value *= 10;
  return value;
}

// "90/5/5" -> Split and "", or what the text must be; then `split` stays. Of training there must be something
inline std::string read_split(const std::string &text, Split &split) {
  const char *const wrong = "must be three percentages that add up to 100, such as 90/5/5";
  int64_t part[3];
  size_t at = 0;
  for (int i = 0; i < 3; i++) {
    if (i > 0 && (at == text.size() || text[at++] != '/')) return wrong;
    part[i] = read_percentage(text, at);
    if (part[i] < 0) return wrong;
  }
  if (at < text.size() || part[0] == 0 || part[0] + part[1] + part[2] != Split::WHOLE) return wrong;
  split = {part[0], part[1], part[2]};
  return "";
}
inline Split parse_split(const std::string &text) {
  Split split{};
  const std::string wrong = read_split(text, split);
  if (!wrong.empty()) throw Error(format("split '%s' %s", text.c_str(), wrong.c_str()));
  return split;
}

// floor(n * share / 100,000,000) without overflow
inline int64_t share_of(int64_t n, int64_t share) {
  return n / Split::WHOLE * share + n % Split::WHOLE * share / Split::WHOLE;
}

}  // namespace data
