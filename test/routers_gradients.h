// routers_gradients.h: gradients of every method: finite differences with the scales c held at their recorded values (a
// difference quotient would see through the stop-gradient), and the goldens of PyTorch float64; the source lists; the
// rows of parameters.
#pragma once
#include "test/difference.h"
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
  that(!c.detail_count() || (below > 0 && above > 0), "c under rho %g, at rho %g times", below, above);
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

inline void compare_reads(const GoldenModel &g) {
  const MixRouter<double> &r = mixer(*g.model);
  for (int64_t j = 1; j < read_count(g.c); j++) {
    const std::string name = read_name(g.c, j);
    const std::vector<double> p = weights(r, j, g.N());
    g.compare("weights." + name, p.data(), (int64_t)p.size(), 1e-10);
    g.compare("h." + name, r.h[j], g.N() * g.c.C, 1e-10);
    if (g.c.delta()) g.compare("y." + name, r.y[j], g.N() * g.c.C, 1e-10);
  }
  g.compare("h.final", g.model->router->output(), g.N() * g.c.C, 1e-10);
}
// the first ones see most
constexpr const char *GOLDENS[] = {"details", "delta", "attnres_deep", "wav_m10", "attnres",
                                   "block",   "wav",   "haares",       "learned", "delta-block"};

inline void golden_gradients(const char *name) {
  check::test(format("goldens: %s: h and p of every read, logits, loss, every gradient", name).c_str(), [&] {
    GoldenModel g(name);
    g.model->forward(g.tokens.data(), g.B(), g.c.T);
    g.compare("logits", logits(*g.model, g.N()).data(), g.N() * g.c.V, 1e-10);
    compare_reads(g);
    const double loss = g.gradients();
    g.compare("loss", &loss, 1, 1e-10);
    g.compare_table("g.", g.model->grads.data, 1e-10);
  });
}
inline void golden_training(const char *name) {
  check::test(format("goldens: %s: 20 steps of training", name).c_str(), [&] {
    GoldenModel g(name);
    g.same_training();
  });
}
inline void golden_lists(const char *name) {
  check::test(format("goldens: %s: source lists and coefficients", name).c_str(), [&] {
    GoldenModel g(name);
    const MixPlan plan(g.c);
    const std::string text = reads_text(g.model->router->reads());
    that(text == g.golden.file.text("reads"), "sources of the reads:\n%s", text.c_str());
    if (plan.details.empty()) return;
    const json::Value coefs = json::parse(g.golden.file.text("coefs"), g.golden.file.path);
    for (size_t b = 0; b < plan.blocks.size(); b++)
      for (size_t d = 0; d < plan.details.size(); d++) {
        const std::string key = plan.details[d] + std::to_string(b);
        if (plan.details[d] == "learned") continue;
        const std::vector<double> coef = detail_coefficients(plan, (int64_t)b, 1 + (int)d, g.c.seed);
        const json::Value *row = coefs.find(key);
        if (!that(row && row->items.size() == coef.size(), "coefs of %s", key.c_str())) continue;
        for (size_t i = 0; i < coef.size(); i++) {
          double want = 0;
          row->items[i].to(want);
          that(coef[i] == want, "coef %d of %s", (int)i, key.c_str());
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
      const std::string got = reads_text(model.router->reads());
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
    if (c.detail_count() && !c.fixed_beta) rows.insert(format("router.%d.beta", (int)j));
  }
  if (!c.delta()) {
    rows.insert("router.final.q");
    rows.insert("router.final.g");
    if (c.detail_count() && !c.fixed_beta && c.final_all) rows.insert("router.final.beta");
  }
  for (const std::string &kind : c.detail_list())
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
    int64_t n = c.C;
    if (kind == "coef") n = std::min(c.block, c.M() - b * c.block);
    if (kind == "beta") n = c.detail_count();
    that(t.size() == n && t.cols == 1, "%s has %d elements", t.name.c_str(), (int)t.size());
    for (int64_t i = 0; i < t.size(); i++) {
      double want = 2 * i < n ? 1 : -1;  // coef
      if (kind == "q") want = 0;
      if (kind == "g") want = 1;
      if (kind == "beta") want = -2;
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
    GPT<float> want(prenorm_of(configure(method("wav"), 3, 4)), Sizes{1, 1, false});
    want.initialize(5);
    for (const Method &m : methods()) {
      GPT<float> model(configure(m, 3, 4), Sizes{1, 1, false});
      model.initialize(5);
      for (const Tensor &t : want.table.rows)
        check::same_bits((m.name + (": " + t.name)).c_str(), row(model, t.name), want.params.data + t.offset, t.size());
    }
  });
}

inline void method_table() {
  check::test("methods: a name alone is the method; unknown names of methods and details do not run", [] {
    for (const ::Method &m : METHODS) {
      Config c;
      c.router = m.name;
      c.V = 7;
      const GPT<float> model(c, Sizes{1, 1, false});
      that(model.router->reads().empty() == (m.family == Family::stream), "%s: reads", m.name);
    }
    Config wav, named;
    wav.router = named.router = "wav";
    named.details = "phase,split";
    that(MixPlan(wav).details == MixPlan(named).details && MixPlan(wav).bases == 3, "wav has phase and split");
    const auto refused = [](const char *router, const char *details, const char *word) {
      Config c;
      c.router = router;
      c.details = details;
      c.V = 7;
      try {
        GPT<float> model(c, Sizes{1, 1, false});
        that(false, "%s with %s runs", router, details);
      } catch (const Error &e) {
        that(strstr(e.what(), word), "%s with %s: %s", router, details, e.what());
      }
    };
    refused("wave", "auto", "is none of");
    refused("", "auto", "is none of");
    refused("wav", "phase,splat", "is none of");
    refused("attnres", "phase", "takes no details");
  });
}
inline void goldens_and_parameters() {
  method_table();
  source_lists();
  for (const char *name : GOLDENS) {
    golden_lists(name);
    golden_gradients(name);
    golden_training(name);
  }
  parameters();
}

}  // namespace routers
