// golden.h: what dev/torch_reference.py computed in PyTorch float64 and wrote to test/golden. Tests run in the root
// of the repository. A missing tensor or constant is an Error, which fails the test that asked for it.
#pragma once
#include "runtime/safetensors.cuh"
#include <string>
#include <vector>

struct Golden {
  runtime::SafetensorsFile file;
  explicit Golden(const std::string &name)
      : file("test/golden/" + name + ".safetensors") {}

  const runtime::TensorView &view(const std::string &name, const char *dtype) const {
    const runtime::TensorView *t = file.find(name);
    if (!t || t->dtype != dtype) throw Error(file.path + ": no " + dtype + " tensor " + name);
    return *t;
  }
  const std::vector<int64_t> &shape(const std::string &name) const { return view(name, "F64").shape; }
  template <class T> std::vector<T> values(const std::string &name, const char *dtype) const {
    const runtime::TensorView &t = view(name, dtype);
    int64_t n = 0;
    runtime::count_elements(t.shape, n);
    return std::vector<T>((const T *)t.data, (const T *)t.data + n);
  }
  std::vector<double> operator()(const std::string &name) const { return values<double>(name, "F64"); }
  std::vector<int32_t> tokens(const std::string &name) const { return values<int32_t>(name, "I32"); }
  double number(const std::string &key) const {  // of the metadata
    double x;
    if (!runtime::json::parse(file.text(key), file.path).to(x)) throw Error(file.path + ": " + key + " is no number");
    return x;
  }
};
