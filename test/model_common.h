// model_common.h: what the tests of whole models share: a batch, its gradients, the tensors of two models compared, the
// configuration that a golden file was made with.
#pragma once
#include "gpt.cuh"
#include "runtime/json.cuh"
#include "test/check.h"
#include "test/golden.h"

// Random tokens of B sequences of T, and random targets
struct Batch {
  int64_t B, T;
  std::vector<int32_t> inputs, targets;
  Batch(int64_t B, int64_t T, int64_t V, uint64_t seed)
      : B(B),
        T(T),
        inputs(B * T),
        targets(B * T) {
    for (int64_t i = 0; i < B * T; i++) {
      inputs[i] = (int32_t)rng::below(seed, i, V);
      targets[i] = (int32_t)rng::below(seed + 1, i, V);
    }
  }
};
template <class real> void forward(GPT<real> &model, const Batch &b) { model.forward(b.inputs.data(), b.B, b.T); }
// The sum of the losses; the gradients as gpt.cuh leaves them, finish_gradients() is the caller's
template <class real> double add_gradients(GPT<real> &model, const Batch &b) {
  return model.gradients(b.inputs.data(), b.targets.data(), b.B, b.T, b.B * b.T);
}
// The mean loss; finished gradients
template <class real> double gradients(GPT<real> &model, const Batch &b) {
  const double loss = add_gradients(model, b);
  model.finish_gradients();
  return loss / (double)(b.B * b.T);
}
// (N, V), without the padding of the rows
template <class real> std::vector<real> logits(const GPT<real> &model, int64_t N) {
  const int64_t V = model.c.V, ld = model.c.ld_logits();
  std::vector<real> x(N * V);
  for (int64_t i = 0; i < N * V; i++) x[i] = model.a.logits[i / V * ld + i % V];
  return x;
}
// The elements of a tensor of the model, or of `flat` that is laid out as its parameters; nullptr if it has none
template <class real> real *row(GPT<real> &model, const std::string &name, real *flat = nullptr) {
  for (const Tensor &t : model.table.rows)
    if (t.name == name) return (flat ? flat : model.params.data) + t.offset;
  return nullptr;
}
template <class real>
void same_tensors(const std::string &what, const TensorTable &table, const real *got, const real *want) {
  for (const Tensor &t : table.rows)
    check::same_bits((what + ": " + t.name).c_str(), got + t.offset, want + t.offset, t.size());
}

// The configuration in a golden file: the numbers that every method has
struct GoldenConfig {
  const Golden &golden;
  runtime::json::Value config;
  explicit GoldenConfig(const Golden &golden)
      : golden(golden),
        config(runtime::json::parse(golden.file.text("config"), golden.file.path)) {}
  double number(const char *key) const {
    const runtime::json::Value *v = config.find(key);
    double x;
    if (!v || !v->to(x)) throw Error(golden.file.path + ": config has no number " + key);
    return x;
  }
  int64_t whole(const char *key) const { return (int64_t)number(key); }
  void backbone(Config &c) const {
    c.L = whole("layers");
    c.C = whole("channels");
    c.NH = whole("heads");
    c.T = whole("context");
    c.V = (int64_t)golden.number("V");
    c.eps = number("eps");
  }
};
