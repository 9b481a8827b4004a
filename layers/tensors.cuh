// tensors.cuh: the types of the one table from which sizes, pointers, gradients, optimizer state, checkpoint names and
// the parameter print derive; and the memory plan.
#pragma once
#include "device.cuh"
#include <unordered_map>
#include <vector>

enum class Init { normal, constant, split };  // split: +value in the first half, -value after

struct Tensor {
  std::string name;
  int64_t rows, cols;  // cols = 1: a vector of `rows`
  Init init;
  double value;    // standard deviation, or the constant
  bool decay;      // weight decay
  bool router;     // learning rate times --router-lr
  int64_t offset;  // first element in the flat buffer; a multiple of 64 elements (256 bytes in float)
  int64_t size() const { return rows * cols; }
  std::vector<int64_t> shape() const {
    return cols == 1 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, cols};
  }
};

// How code holds a tensor of the table: its place in every flat buffer, and its number in the table
struct Row {
  int64_t offset = 0, size = 0, index = -1;
  explicit operator bool() const { return index >= 0; }
};

struct TensorTable {
  std::vector<Tensor> rows;
  int64_t floats = 0;                               // length of a flat buffer, padding included
  int64_t parameters = 0;                           // without padding
  std::unordered_map<std::string, int64_t> places;  // in rows, by name
  Row add(const std::string &name, int64_t rows_, int64_t cols, Init init, double value, bool decay,
          bool router = false) {
    places[name] = (int64_t)rows.size();
    rows.push_back({name, rows_, cols, init, value, decay, router, floats});
    parameters += rows_ * cols;
    floats += round_up(rows_ * cols, 64);
    return row((int64_t)rows.size() - 1);
  }
  Row row(int64_t index) const { return {rows[index].offset, rows[index].size(), index}; }
  // Throws where there is none of that name
  Row find(const std::string &name) const {
    const auto place = places.find(name);
    if (place == places.end()) throw Error("no tensor " + name + " in the table of parameters");
    return row(place->second);
  }
};

// What will be allocated, in 64 bits, before it is
struct MemoryPlan {
  struct Row {
    std::string what;
    int64_t bytes;
  };
  std::vector<Row> rows;
  void add(std::string what, int64_t bytes) {
    if (bytes) rows.push_back({std::move(what), bytes});
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const Row &r : rows) sum += r.bytes;
    return sum;
  }
  void print(FILE *to) const {
    for (const Row &r : rows) fprintf(to, "  %10.1f MB  %s\n", r.bytes / 1e6, r.what.c_str());
    fprintf(to, "  %10.1f MB  in all\n", total() / 1e6);
  }
};

// Hands out consecutive aligned pieces of one buffer. With base = nullptr it only counts. Behind every piece STAGGER
// bytes stay free: rows of many pieces are read side by side, and at the distance of a power of two they would share
// a few cache sets.
constexpr int64_t STAGGER = 5 * ALIGNMENT;
template <class real> struct Arena {
  real *base = nullptr;
  int64_t used = 0;
  real *take(int64_t n) {
    real *p = base ? base + used : nullptr;
    used += round_up(n, ALIGNMENT / (int64_t)sizeof(real)) + STAGGER / (int64_t)sizeof(real);
    return p;
  }
};
