// routers_gradients.h: gradients of every method: finite differences with the scales c held at their recorded values (a
// difference quotient would see through the stop-gradient), and the goldens of PyTorch float64; the source lists; the
// rows of parameters.
#pragma once
#include "runtime/schedule.cuh"
#include "test/difference.h"
#include "test/golden.h"
#include "test/routers_common.h"
#include <fstream>
#include <set>
#include <sstream>

namespace routers {

namespace json = runtime::json;

// ---- finite differences of the model with direct reads against the gradients by hand of the two-phase read

// Of the backbone's tensors every `stride`th element
inline void differences_of(const Method &m, Config c, int64_t stride, double backbone) {
  c.C = 4;
  c.V = 5;
  c.wav_eps = 0.02;
  c.rho = 1.1;
  c.eps = c.key_eps = 1e-2;  // large, so that no division by a small rms bends the curve
  const Batch batch(2, c.T, c.V, 21);
  GPT<double> model(c, Sizes{2, 1, true}), direct(c, Sizes{2, 1, false});
  scatter(model, Start::random, backbone);
  scatter(direct, Start::random, backbone);
  const double want = gradients(model, batch);
  const Scales held = recorded_scales(mixer(model), batch.B * c.T);
  make_direct(direct).held = &held;
  const auto loss = [&] {
    exact::Counter<double> losses;
    direct.evaluate(losses, batch.inputs.data(), batch.targets.data(), batch.B, batch.T);
    return losses.finish() / (double)(batch.B * batch.T);
  };
  const double got = loss();
  check::close("loss of the direct reads", &got, &want, 1, 1e-13);
  double below = 0, above = 0;  // a c on either side of rho
  for (const auto &[key, scales] : held)
    for (double x : scales) (x < c.rho ? below : above) += 1;
  that(!c.D() || (below > 0 && above > 0), "c under rho %g, at rho %g times", below, above);
  const double unit = 0.25;  // of the steps: deep models bend within those of difference.h
  for (const Tensor &t : model.table.rows) {
    std::vector<double> x, dx;
    const int64_t step = t.router ? 1 : std::min(stride, t.size() / 4);
    for (int64_t i = 0; i < t.size(); i += step) {
      x.push_back(direct.params[t.offset + i] / unit);
      dx.push_back(model.grads[t.offset + i] * unit);
    }
    const auto put = [&] {
      for (size_t i = 0; i < x.size(); i++) direct.params[t.offset + (int64_t)i * step] = x[i] * unit;
    };
    same_as_differences((label(m, c) + ": " + t.name).c_str(), x, dx, [&] {
      put();
      return loss();
    });
    put();
  }
}
inline void differences() {
  for (const Method &m : methods())
    check::test(
        format("7: %s: finite differences, c held: every row of the router, samples of every tensor", m.name).c_str(),
        [&] {
          const bool full = configure(m, 1, 8).full();
          differences_of(m, configure(m, 3, 4), 29, 0.5);
          // two groups in a block, a short last block; or three groups
          differences_of(m, full ? configure(m, 9, 8) : configure(m, 6, 10), 301, 0.4);
        });
}

// ---- goldens

struct GoldenModel {
  Golden golden;
  json::Value config;
  Config c;
  std::unique_ptr<GPT<double>> model;
  std::vector<int32_t> tokens, targets;

  const json::Value &value(const char *key) const {
    const json::Value *v = config.find(key);
    if (!v) throw Error(golden.file.path + ": config has no " + key);
    return *v;
  }
  double number(const char *key) const {
    double x;
    if (!value(key).to(x)) throw Error(golden.file.path + ": config has no number " + key);
    return x;
  }
  int64_t whole(const char *key) const { return (int64_t)number(key); }

  explicit GoldenModel(const std::string &name)
      : golden("model_" + name) {
    config = json::parse(golden.file.text("config"), golden.file.path);
    c.router = value("router").text;
    c.L = whole("layers");
    c.C = whole("channels");
    c.NH = whole("heads");
    c.T = whole("context");
    c.V = (int64_t)golden.number("V");
    c.eps = number("eps");
    c.block = whole("block");
    c.rho = number("rho");
    c.beta = number("beta");
    c.wav_eps = number("wav-eps");
    c.key_eps = number("key-eps");
    c.seed = (uint64_t)whole("seed");
    c.fixed_beta = value("fixed-beta").text == "true";
    c.final_all = value("final-read").text == "all";
    const std::string details = value("details").text;
    if (details == "auto" && c.router == "wav") c.details = {"phase", "split"};
    if (details == "auto" && c.router == "haares") c.details = {"split"};
    std::istringstream list(details);
    for (std::string kind; details != "auto" && std::getline(list, kind, ',');) c.details.push_back(kind);
    model = std::make_unique<GPT<double>>(c, Sizes{whole("batch"), 1, true});
    tokens = golden.tokens("tokens");
    targets = golden.tokens("targets");
    int64_t have = (int64_t)model->table.rows.size(), want = 0;
    for (const runtime::TensorView &t : golden.file.tensors) want += t.name.compare(0, 2, "p.") == 0;
    that(have == want, "%d tensors in the table, %d in the file", (int)have, (int)want);
    for (const Tensor &t : model->table.rows) {
      const std::vector<double> p = golden("p." + t.name);
      if (!that(golden.shape("p." + t.name) == t.shape(), "shape of %s", t.name.c_str())) continue;
      std::copy(p.begin(), p.end(), model->params.data + t.offset);
    }
  }
  int64_t B() const { return model->sizes.B; }
  int64_t N() const { return B() * c.T; }
  double gradients() {
    const double loss = model->gradients(tokens.data(), targets.data(), B(), c.T, N());
    model->finish_gradients();
    return loss / (double)N();
  }
  void compare(const std::string &what, const double *got, int64_t n, double tolerance) const {
    const std::vector<double> want = golden(what);
    if (that((int64_t)want.size() == n, "%s: %d numbers, want %d", what.c_str(), (int)n, (int)want.size()))
      check::close(what.c_str(), got, want.data(), n, tolerance);
  }
  void compare_table(const char *prefix, const double *flat, double tolerance) const {
    for (const Tensor &t : model->table.rows) compare(prefix + t.name, flat + t.offset, t.size(), tolerance);
  }
  void compare_reads() const {
    const MixRouter<double> &r = mixer(*model);
    for (int64_t j = 1; j < read_count(c); j++) {
      const std::string name = read_name(c, j);
      const std::vector<double> p = weights(r, j, N());
      compare("weights." + name, p.data(), (int64_t)p.size(), 1e-10);
      compare("h." + name, r.h[j], N() * c.C, 1e-10);
      if (c.delta()) compare("y." + name, r.y[j], N() * c.C, 1e-10);
    }
    compare("h.final", model->router->output(), N() * c.C, 1e-10);
  }
  double step(const runtime::Schedule &schedule, int64_t step) {
    const double loss = gradients(), norm = model->gradient_norm(), clip = number("clip");
    check::close(format("norm of step %d", (int)step).c_str(), &norm, &golden("norms")[step], 1, 1e-9);
    const double lr = runtime::learning_rate(schedule, step), scale = norm > clip ? clip / norm : 1;
    AdamW h{lr, number("beta1"), number("beta2"), number("adam-eps"), 0, 0, 0, scale};
    h.correction1 = runtime::bias_correction(h.beta1, step + 1);
    h.correction2 = runtime::bias_correction(h.beta2, step + 1);
    model->update(h, number("router-lr"), number("weight-decay"));
    return loss;
  }
};
// the first ones see most
constexpr const char *GOLDENS[] = {"details", "delta", "attnres_deep", "wav_m10", "attnres",
                                   "block",   "wav",   "haares",       "learned", "delta-block"};

inline void golden_gradients(const char *name) {
  check::test(format("goldens: %s: h and p of every read, logits, loss, every gradient", name).c_str(), [&] {
    GoldenModel g(name);
    g.model->forward(g.tokens.data(), g.B(), g.c.T);
    g.compare("logits", logits(*g.model, g.N()).data(), g.N() * g.c.V, 1e-10);
    g.compare_reads();
    const double loss = g.gradients();
    g.compare("loss", &loss, 1, 1e-10);
    g.compare_table("g.", g.model->grads.data, 1e-10);
  });
}
inline void golden_training(const char *name) {
  check::test(format("goldens: %s: 20 steps of training", name).c_str(), [&] {
    GoldenModel g(name);
    runtime::Schedule s;
    s.kind = runtime::Schedule::cosine;
    s.lr = g.number("lr");
    s.min_lr = g.number("min-lr");
    s.warmup = g.whole("warmup");
    s.steps = g.whole("steps");
    const std::vector<double> losses = g.golden("losses");
    that((int64_t)losses.size() == s.steps && s.steps == 20, "20 losses");
    for (int64_t step = 0; step < s.steps; step++) {
      const double loss = g.step(s, step);
      check::close(format("loss of step %d", (int)step).c_str(), &loss, &losses[step], 1, 1e-9);
    }
    g.compare_table("q.", g.model->params.data, 1e-8);
  });
}
inline void golden_lists(const char *name) {
  check::test(format("goldens: %s: source lists and coefficients", name).c_str(), [&] {
    GoldenModel g(name);
    const MixRouter<double> &r = mixer(*g.model);
    that(r.list_reads() == g.golden.file.text("reads"), "sources of the reads:\n%s", r.list_reads().c_str());
    if (!g.c.D()) return;
    mixer(*g.model).prepare();
    const json::Value coefs = json::parse(g.golden.file.text("coefs"), g.golden.file.path);
    for (size_t b = 0; b < r.blocks.size(); b++)
      for (int d = 0; d < g.c.D(); d++) {
        const std::string key = g.c.details[d] + std::to_string(b);
        if (g.c.details[d] == "learned") continue;
        const json::Value *row = coefs.find(key);
        if (!that(row && (int64_t)row->items.size() == r.blocks[b].length, "coefs of %s", key.c_str())) continue;
        for (int64_t k = 0; k < r.blocks[b].length; k++) {
          double want = 0;
          row->items[k].to(want);
          that(r.blocks[b].coef[(1 + d) * r.blocks[b].length + k] == want, "coef %d of %s", (int)k, key.c_str());
        }
      }
  });
}

// ---- source lists written by hand

inline void source_lists() {
  check::test("source lists of L = 3, m = 4 are those written by hand", [] {
    std::ifstream file("test/golden/reads_L3_m4.txt");
    std::string line;
    int lists = 0;
    while (std::getline(file, line)) {
      const std::string name = line;
      std::string want;
      while (std::getline(file, line) && !line.empty()) want += line + "\n";
      const Config c = configure(method(name), 3, 4);
      const GPT<float> model(c, Sizes{1, 1, false});
      const std::string got = mixer(model).list_reads();
      that(got == want, "%s:\n%s", name.c_str(), got.c_str());
      lists++;
    }
    that(lists == 8, "%d lists in the file", lists);
  });
}

// ---- parameters

inline std::set<std::string> rows_wanted(const Config &c) {
  std::set<std::string> rows;
  for (int64_t j = 1; j < c.M(); j++) {
    for (const char *part : {"q", "g"}) rows.insert(format("router.%d.%s", (int)j, part));
    if (c.D() && !c.fixed_beta) rows.insert(format("router.%d.beta", (int)j));
  }
  if (c.router != "delta" && c.router != "delta-block") {
    rows.insert("router.final.q");
    rows.insert("router.final.g");
    if (c.D() && !c.fixed_beta && c.final_all) rows.insert("router.final.beta");
  }
  for (const std::string &kind : c.details)
    for (int64_t b = 0; b < c.blocks() && kind == "learned"; b++) rows.insert(format("router.block.%d.coef", (int)b));
  return rows;
}
inline void parameter_rows(const Config &c) {
  GPT<float> model(c, Sizes{1, 1, false});
  model.initialize(5);
  std::set<std::string> have;
  for (const Tensor &t : model.table.rows) {
    that(t.router == (t.name.compare(0, 7, "router.") == 0), "%s: learning rate of the router", t.name.c_str());
    if (!t.router) continue;
    that(!t.decay, "%s: no decay", t.name.c_str());
    have.insert(t.name);
    const std::string kind = t.name.substr(t.name.rfind('.') + 1);
    const int64_t b = kind == "coef" ? std::stoll(t.name.substr(13)) : 0;
    const int64_t n = kind == "coef" ? std::min(c.block, c.M() - b * c.block) : kind == "beta" ? c.D() : c.C;
    that(t.size() == n && t.cols == 1, "%s has %d elements", t.name.c_str(), (int)t.size());
    for (int64_t i = 0; i < t.size(); i++) {
      const double want = kind == "q" ? 0 : kind == "g" ? 1 : kind == "beta" ? -2 : 2 * i < n ? 1 : -1;
      that(model.params[t.offset + i] == (float)want, "%s[%d] starts at %g", t.name.c_str(), (int)i,
           (double)model.params[t.offset + i]);
    }
  }
  that(have == rows_wanted(c), "rows of %s", c.router.c_str());
}
inline void parameters() {
  for (const Method &m : methods())
    check::test(
        format("parameters: %s: the rows, their lengths and starts; no decay; learning rate of the router", m.name)
            .c_str(),
        [&] {
          for (const auto &shape :
               {std::make_pair(3, 4), std::make_pair(6, 8), std::make_pair(1, 2), std::make_pair(12, 20)})
            parameter_rows(configure(m, shape.first, shape.second));
        });
  check::test("parameters: one seed, one backbone for every method", [] {
    const GPT<float> want(prenorm_of(configure(method("wav"), 3, 4)), Sizes{1, 1, false});
    const_cast<GPT<float> &>(want).initialize(5);
    for (const Method &m : methods()) {
      GPT<float> model(configure(m, 3, 4), Sizes{1, 1, false});
      model.initialize(5);
      for (const Tensor &t : want.table.rows)
        check::same_bits((m.name + (": " + t.name)).c_str(), row(model, t.name), want.params.data + t.offset, t.size());
    }
  });
}

inline void goldens_and_parameters() {
  source_lists();
  for (const char *name : GOLDENS) {
    golden_lists(name);
    golden_gradients(name);
    golden_training(name);
  }
  parameters();
}

}  // namespace routers
