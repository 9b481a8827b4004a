// routers_common.h: small models of the routers on the depth mixer, what their reads saw, and the same reads made
// directly: DirectRouter computes h and p by the softmax of the paper (plain::mix_direct) from the updates, with sums,
// coefficients and scales of its own. Its scales c can be held at recorded values, as the gradient is defined.
#pragma once
#include "gpt.cuh"
#include "test/check.h"
#include <map>

namespace routers {

using check::that;

struct Method {
  const char *name;  // for messages
  const char *router;
  std::vector<std::string> details;
  bool final_all, fixed_beta;
};
inline const std::vector<Method> &methods() {
  static const std::vector<Method> list = {
      {"attnres", "attnres", {}, false, false},
      {"block", "block", {}, false, false},
      {"delta", "delta", {}, false, false},
      {"delta-block", "delta-block", {}, false, false},
      {"wav", "wav", {"phase", "split"}, false, false},
      {"haares", "haares", {"split"}, false, false},
      {"random,duplicate,learned", "block", {"random", "duplicate", "learned"}, false, false},
      {"wav --final-read all", "wav", {"phase", "split"}, true, false},
      {"learned --final-read all --fixed-beta", "block", {"learned"}, true, true},
  };
  return list;
}
inline const Method &method(const std::string &name) {
  for (const Method &m : methods())
    if (name == m.name) return m;
  throw Error("no method " + name);
}

inline Config configure(const Method &m, int64_t L, int64_t block) {
  Config c;
  c.router = m.router;
  c.details = m.details;
  c.final_all = m.final_all;
  c.fixed_beta = m.fixed_beta;
  c.L = L;
  c.block = block;
  c.C = 8;
  c.NH = 2;
  c.T = 3;
  c.V = 7;
  return c;
}
inline Config prenorm_of(Config c) {
  c.router = "prenorm";
  c.details.clear();
  return c;
}
// Details other than duplicate need blocks of even length
inline bool allowed(const Config &c) {
  for (int64_t b = 0; b < c.blocks(); b++)
    for (const std::string &kind : c.details)
      if (kind != "duplicate" && c.block_length(b) % 2) return false;
  return true;
}

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
template <class real> double gradients(GPT<real> &model, const Batch &b) {
  const double loss = model.gradients(b.inputs.data(), b.targets.data(), b.B, b.T, b.B * b.T);
  model.finish_gradients();
  return loss / (double)(b.B * b.T);
}

enum class Start { zero, random };
// Backbone weights of std 0.35. Rows of the router: as initialized (q = 0), or random: q, g and beta of std 0.3,
// coefficients a little off
template <class real> void scatter(GPT<real> &model, Start start, double backbone = 0.35) {
  model.initialize(3);
  for (const Tensor &t : model.table.rows) {
    if (t.router && start == Start::zero) continue;
    for (int64_t i = 0; i < t.size(); i++) {
      real &x = model.params[t.offset + i];
      const double z = rng::normal(rng::key_of(3, t.name.c_str()), i);
      x = (real)(t.router ? (double)x + 0.3 * z : t.decay ? backbone * z : 1 + 0.2 * z);
    }
  }
}
template <class real> real *row(GPT<real> &model, const std::string &name, real *flat = nullptr) {
  for (const Tensor &t : model.table.rows)
    if (t.name == name) return (flat ? flat : model.params.data) + t.offset;
  return nullptr;
}
template <class real> MixRouter<real> &mixer(const GPT<real> &model) {
  return dynamic_cast<MixRouter<real> &>(*model.router);
}
template <class real> std::vector<real> logits(const GPT<real> &model, int64_t N) {
  const int64_t V = model.c.V, ld = model.c.ld_logits();
  std::vector<real> x(N * V);
  for (int64_t i = 0; i < N * V; i++) x[i] = model.a.logits[i / V * ld + i % V];
  return x;
}
inline std::string read_name(const Config &c, int64_t j) { return j == c.M() ? "final" : format("%d", (int)j); }

// p of read j as the two-phase read left it: (N, sources), in the order of list_reads
template <class real> std::vector<real> weights(const MixRouter<real> &r, int64_t j, int64_t N) {
  if (j == 0) return std::vector<real>(N, 1);
  const MixGroup<real> &g = r.groups[r.reads[j].group];
  const int64_t k = r.reads[j].lane, n = (int64_t)g.sources.size(), open = r.partials(j);
  std::vector<real> p;
  for (int64_t t = 0; t < N; t++) {
    const real mx = g.mx[t * GROUP + k], inv = g.l[t * GROUP + k];
    for (int64_t i = 0; i < n; i++) p.push_back(exact::exp_neg(g.z[(t * n + i) * GROUP + k] - mx) * inv);
    for (int64_t d = 0; d < open; d++) p.push_back(exact::exp_neg(r.saved[j][d * 3 * N + t] - mx) * inv);
  }
  return p;
}

// ---- the direct read

// Scales c of details: of the open block as read j sees it (key j), of the finished block b (key M + b); per token and
// detail
using Scales = std::map<int64_t, std::vector<double>>;

template <class real> Scales recorded_scales(const MixRouter<real> &r, int64_t N) {
  Scales s;
  const int64_t D = r.c.D(), M = r.c.M();
  for (int64_t j = 1; j < M; j++)
    for (int64_t t = 0; t < N && r.partials(j); t++)
      for (int64_t d = 1; d <= D; d++) s[j].push_back((double)r.saved[j][(d * 3 + 2) * N + t]);
  for (size_t b = 0; b < r.blocks.size(); b++)
    for (int64_t t = 0; t < N; t++)
      for (int64_t d = 1; d <= D; d++) s[M + b].push_back((double)r.blocks[b].c[d][t]);
  return s;
}

struct DirectRouter : MixRouter<double> {
  GPT<double> &model;
  const Scales *held = nullptr;
  Scales found;  // by the formula
  std::map<int64_t, std::vector<double>> p;
  explicit DirectRouter(GPT<double> &model)
      : MixRouter<double>(model.c, model.w),
        model(model) {}

  struct List {
    std::vector<const double *> s;
    std::vector<double> scale, bias;
    std::vector<std::vector<double>> sums;
  };
  double coefficient(int64_t b, int64_t d, int64_t k) const {
    const std::string kind = d == 0 ? "sum" : c.details[d - 1];
    if (kind == "phase") return (b * c.block + k) % 2 ? -1 : 1;
    if (kind == "split") return 2 * k < std::min(c.block, 2 * c.L - b * c.block) ? 1 : -1;
    if (kind == "random") return blocks[b].coef[d * blocks[b].length + k];  // compared with the goldens' metadata
    if (kind == "learned") return row(model, format("router.block.%d.coef", (int)b))[k];
    return 1;
  }
  // Sum and details of the first `updates` updates of block b, as sources of read j (key: see Scales)
  void add_block(List &list, int64_t b, int64_t updates, int64_t key, int64_t t, bool details, const double *beta) {
    double rms0 = 0;
    for (int64_t d = 0; d <= c.D(); d++) {
      std::vector<double> P(c.C);
      double square = 0;
      for (int64_t i = 0; i < c.C; i++) {
        for (int64_t k = 0; k < updates; k++) P[i] += coefficient(b, d, k) * u[b * c.block + k][t * c.C + i];
        square += P[i] * P[i];
      }
      const double rms = std::sqrt(square / (double)c.C);
      if (d == 0) rms0 = rms;
      double scale = d == 0 ? 1 : std::min(c.rho, rms0 / (rms + c.wav_eps));
      if (d && (t * c.D() + d) > (int64_t)found[key].size()) found[key].push_back(scale);
      if (d && held) scale = held->at(key)[t * c.D() + d - 1];
      if (d && !details) continue;
      list.sums.push_back(P);
      list.scale.push_back(scale);
      list.bias.push_back(d == 0 ? 0 : beta ? beta[d - 1] : c.beta);
    }
  }
  List list_of(int64_t j, int64_t t) {
    const std::string name = "router." + read_name(c, j);
    const double *beta = row(model, name + ".beta");
    const bool last = j == c.M();
    List list;
    list.sums.emplace_back(e + t * c.C, e + (t + 1) * c.C);
    list.scale = {1};
    list.bias = {0};
    if (c.router == "attnres" || c.router == "delta")
      for (int64_t i = 0; i < j; i++) {
        list.sums.emplace_back(u[i] + t * c.C, u[i] + (t + 1) * c.C);
        list.scale.push_back(1);
        list.bias.push_back(0);
      }
    else {
      for (int64_t b = 0; b * c.block < j; b++) {
        const int64_t first = b * c.block, length = std::min(c.block, c.M() - first);
        if (first + length <= j)
          add_block(list, b, length, c.M() + b, t, !last || c.final_all, beta);
        else
          add_block(list, b, j - first, j, t, true, beta);
      }
    }
    for (const auto &s : list.sums) list.s.push_back(s.data());
    return list;
  }
  void direct(int64_t j, double *to, int64_t N) {
    const std::string name = "router." + read_name(c, j);
    const double *q = row(model, name + ".q"), *g = row(model, name + ".g");
    std::vector<double> w(c.C);
    for (int64_t i = 0; i < c.C; i++) w[i] = q[i] * g[i];
    p[j].clear();
    for (int64_t t = 0; t < N; t++) {
      const List list = list_of(j, t);
      std::vector<double> weight(list.s.size());
      plain::mix_direct(weight.data(), to + t * c.C, w.data(), list.s, list.scale, list.bias, c.C, c.key_eps);
      p[j].insert(p[j].end(), weight.begin(), weight.end());
    }
  }
  const double *read(int64_t j, const Pass<double> &pass) override {
    const int64_t n = pass.N() * c.C;
    if (j == 0) return e;
    direct(j, y[j], pass.N());
    for (int64_t i = 0; i < n && c.delta(); i++) h[j][i] = x[i] + y[j][i];
    return h[j];
  }
  void write(int64_t j, const Pass<double> &pass) override {
    for (int64_t i = 0; i < pass.N() * c.C && c.delta(); i++) x[i] = (j == 0 ? e : x)[i] + u[j][i];
  }
  const double *read_final(const Pass<double> &pass) override {
    if (c.delta()) return x;
    direct(c.M(), h.back(), pass.N());
    return h.back();
  }
};
// Gives the model a DirectRouter in the place of its own
inline DirectRouter &make_direct(GPT<double> &model) {
  auto router = std::make_unique<DirectRouter>(model);
  Arena<double> arena{model.memory.data, 0};
  router->carve(arena, model.sizes.B * model.c.T, model.sizes.training);
  DirectRouter &direct = *router;
  model.router = std::move(router);
  return direct;
}

// ---- comparisons

inline int64_t read_count(const Config &c) { return c.M() + (c.delta() ? 0 : 1); }
inline std::string label(const Method &m, const Config &c) {
  return format("%s L=%d m=%d", m.name, (int)c.L, (int)c.block);
}

template <class real> void all_finite(const std::string &what, const real *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(x[i] - x[i] == 0)) {
      that(false, "%s[%d] is %g", what.c_str(), (int)i, (double)x[i]);
      return;
    }
}

}  // namespace routers
