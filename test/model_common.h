// model_common.h: what tests of whole models share: batches of random tokens, gradients of one, weights with which every
// part of the model matters, and the configuration of a golden file.
#pragma once
#include "gpt.cuh"
#include "runtime/schedule.cuh"
#include "test/check.h"
#include "test/golden.h"

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
// The mean loss; the gradients are finished
template <class real> double gradients(GPT<real> &model, const Batch &b) {
  const double loss = model.gradients(b.inputs.data(), b.targets.data(), b.B, b.T, b.B * b.T);
  model.finish_gradients();
  return loss / (double)(b.B * b.T);
}

enum class Start { zero, random };
// The backbone random, its matrices of this deviation. Rows of the router as initialized (q = 0), or random too
template <class real> void scatter(GPT<real> &model, Start start = Start::random, double backbone = 0.35) {
  model.initialize(3);
  for (const Tensor &t : model.table.rows) {
    if (t.router && start == Start::zero) continue;
    for (int64_t i = 0; i < t.size(); i++) {
      real &x = model.params[t.offset + i];
      const double z = rng::normal(rng::key_of(3, t.name.c_str()), i);
      if (t.router)
        x = (real)((double)x + 0.3 * z);
      else
        x = (real)(t.decay ? backbone * z : 1 + 0.2 * z);
    }
  }
}
template <class real>
void same_tensors(const std::string &what, const TensorTable &table, const real *got, const real *want) {
  for (const Tensor &t : table.rows)
    check::same_bits((what + ": " + t.name).c_str(), got + t.offset, want + t.offset, t.size());
}
template <class real> std::vector<real> logits(const GPT<real> &model, int64_t N) {
  const int64_t V = model.c.V, ld = model.c.ld_logits();
  std::vector<real> x(N * V);
  for (int64_t i = 0; i < N * V; i++) x[i] = model.a.logits[i / V * ld + i % V];
  return x;
}
// The settings of AdamW for step t = 1, 2, ...
inline AdamW adamw(double lr, double beta1, double beta2, double eps, int64_t t, double scale) {
  return {lr, beta1, beta2, eps, 0, runtime::bias_correction(beta1, t), runtime::bias_correction(beta2, t), scale};
}

// ---- a model as PyTorch left it in test/golden/model_NAME.safetensors

struct GoldenModel {
  Golden golden;
  runtime::json::Value config;
  Config c;
  std::unique_ptr<GPT<double>> model;
  std::vector<int32_t> tokens, targets;

  // What the file has no value for keeps Config's own
  double number(const char *key) const {
    double x;
    if (!config.find(key) || !config.find(key)->to(x)) throw Error(golden.file.path + ": config has no number " + key);
    return x;
  }
  int64_t whole(const char *key) const { return (int64_t)number(key); }
  std::string text(const char *key) const {
    if (!config.find(key)) throw Error(golden.file.path + ": config has no " + key);
    return config.find(key)->text;
  }

  explicit GoldenModel(const std::string &name)
      : golden("model_" + name) {
    config = runtime::json::parse(golden.file.text("config"), golden.file.path);
    read_config();
    model = std::make_unique<GPT<double>>(c, Sizes{whole("batch"), 1, true});
    tokens = golden.tokens("tokens");
    targets = golden.tokens("targets");
    int64_t have = (int64_t)model->table.rows.size(), want = 0;
    for (const runtime::TensorView &t : golden.file.tensors) want += t.name.compare(0, 2, "p.") == 0;
    check::that(have == want, "%d tensors in the table, %d in the file", (int)have, (int)want);
    for (const Tensor &t : model->table.rows) {
      const std::vector<double> p = golden("p." + t.name);
      if (!check::that(golden.shape("p." + t.name) == t.shape(), "shape of %s", t.name.c_str())) continue;
      std::copy(p.begin(), p.end(), model->params.data + t.offset);
    }
  }
  void read_config() {
    c.router = text("router");
    c.L = whole("layers");
    c.C = whole("channels");
    c.NH = whole("heads");
    c.T = whole("context");
    c.V = (int64_t)golden.number("V");
    c.eps = number("eps");
    if (!c.mixes()) return;
    c.block = whole("block");
    c.details = text("details");
    c.rho = number("rho");
    c.beta = number("beta");
    c.wav_eps = number("wav-eps");
    c.key_eps = number("key-eps");
    c.seed = (uint64_t)whole("seed");
    c.fixed_beta = text("fixed-beta") == "true";
    c.final_all = text("final-read") == "all";
  }
  int64_t B() const { return model->sizes.B; }
  int64_t N() const { return B() * c.T; }
  double gradients() {
    const double loss = model->gradients(tokens.data(), targets.data(), B(), c.T, N()) / (double)N();
    model->finish_gradients();
    return loss;
  }
  void compare(const std::string &name, const double *got, int64_t n, double tolerance) const {
    const std::vector<double> want = golden(name);
    if (check::that((int64_t)want.size() == n, "%s: %d elements, want %d", name.c_str(), (int)n, (int)want.size()))
      check::close(name.c_str(), got, want.data(), n, tolerance);
  }
  void compare_table(const char *prefix, const double *flat, double tolerance) const {
    for (const Tensor &t : model->table.rows) compare(prefix + t.name, flat + t.offset, t.size(), tolerance);
  }
  // One step as train_gpt makes it; the loss before it
  double step(const runtime::Schedule &schedule, int64_t step) {
    const double loss = gradients(), norm = model->gradient_norm(), clip = number("clip");
    check::close(format("norm of step %d", (int)step).c_str(), &norm, &golden("norms")[step], 1, 1e-9);
    const double lr = runtime::learning_rate(schedule, step), scale = norm > clip ? clip / norm : 1;
    check::close("learning rate", &lr, &golden("lrs")[step], 1, 1e-13);
    model->update(adamw(lr, number("beta1"), number("beta2"), number("adam-eps"), step + 1, scale), number("router-lr"),
                  number("weight-decay"));
    return loss;
  }
  // Losses, norms and the final parameters of 20 steps
  void same_training() {
    runtime::Schedule s;
    s.kind = runtime::Schedule::cosine;
    s.lr = number("lr");
    s.min_lr = number("min-lr");
    s.warmup = whole("warmup");
    s.steps = whole("steps");
    const std::vector<double> losses = golden("losses");
    check::that((int64_t)losses.size() == s.steps && s.steps == 20, "20 losses");
    for (int64_t t = 0; t < s.steps; t++) {
      const double loss = step(s, t);
      check::close(format("loss of step %d", (int)t).c_str(), &loss, &losses[t], 1, 1e-9);
    }
    compare_table("q.", model->params.data, 1e-8);
  }
};
