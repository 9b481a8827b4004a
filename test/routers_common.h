// routers_common.h: small models of the routers on the depth mixer, what their reads saw, and the same reads made
// directly: DirectRouter computes h and p by the softmax of the paper (mix_direct) from the updates, with sums,
// coefficients and scales of its own. Its scales c can be held at recorded values, as the gradient is defined.
#pragma once
#include "test/model_common.h"
#include <map>

namespace routers {

using check::that;

// A row of the method table, or one with other options
struct Method {
  const char *name;  // for messages
  const char *router;
  const char *details;
  bool final_all, fixed_beta;
};
inline const std::vector<Method> &methods() {
  static const std::vector<Method> list = [] {
    std::vector<Method> rows;
    for (const ::Method &m : METHODS)
      if (m.family == Family::mix) rows.push_back({m.name, m.name, "auto", false, false});
    rows.push_back({"random,duplicate,learned", "block", "random,duplicate,learned", false, false});
    rows.push_back({"wav --final-read all", "wav", "auto", true, false});
    rows.push_back({"learned --final-read all --fixed-beta", "block", "learned", true, true});
    return rows;
  }();
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
  c.details = "none";
  return c;
}
// Details other than duplicate need blocks of even length
inline bool allowed(const Config &c) {
  for (int64_t b = 0; b < c.blocks(); b++)
    for (const std::string &kind : c.detail_list())
      if (kind != "duplicate" && c.block_length(b) % 2) return false;
  return true;
}

template <class real> real *row(GPT<real> &model, const std::string &name, real *flat = nullptr) {
  for (const Tensor &t : model.table.rows)
    if (t.name == name) return (flat ? flat : model.params.data) + t.offset;
  return nullptr;
}
template <class real> MixRouter<real> &mixer(const GPT<real> &model) {
  return dynamic_cast<MixRouter<real> &>(*model.router);
}
inline std::string read_name(const Config &c, int64_t j) { return j == c.M() ? "final" : format("%d", (int)j); }

// p of read j as the two-phase read left it: (N, sources), in the order of MixPlan::sources_of
template <class real> std::vector<real> weights(const MixRouter<real> &r, int64_t j, int64_t N) {
  if (j == 0) return std::vector<real>(N, 1);
  const MixPlan::Read &read = r.plan.reads[j];
  const MixGroup<real> &g = r.groups[read.group];
  const int64_t k = read.lane, n = (int64_t)g.sources.size(), open = read.partials;
  std::vector<real> p;
  for (int64_t t = 0; t < N; t++) {
    const real mx = g.mx[t * GROUP + k], inv = g.inv[t * GROUP + k];
    for (int64_t i = 0; i < n; i++) p.push_back(exact::exp_neg(g.z[(t * n + i) * GROUP + k] - mx) * inv);
    for (int64_t d = 0; d < open; d++) p.push_back(exact::exp_neg(r.saved[j][d * 3 * N + t] - mx) * inv);
  }
  return p;
}

// ---- the direct read

// As it is defined in the paper, in double: p and h of one token over a list of scaled sources
inline void mix_direct(double *p, double *h, const double *w, const std::vector<const double *> &s,
                       const std::vector<double> &scale, const std::vector<double> &bias, int64_t C, double key_eps) {
  double largest = 0, sum = 0;
  for (size_t i = 0; i < s.size(); i++) {
    double square = 0, dot = 0;
    for (int64_t ch = 0; ch < C; ch++) {
      square += scale[i] * s[i][ch] * scale[i] * s[i][ch];
      dot += w[ch] * scale[i] * s[i][ch];
    }
    p[i] = dot / std::sqrt(square / (double)C + key_eps) + bias[i];
    largest = i == 0 || p[i] > largest ? p[i] : largest;
  }
  for (size_t i = 0; i < s.size(); i++) {
    p[i] = exact::exp_neg(p[i] - largest);
    sum += p[i];
  }
  for (int64_t ch = 0; ch < C; ch++) h[ch] = 0;
  for (size_t i = 0; i < s.size(); i++) {
    p[i] /= sum;
    for (int64_t ch = 0; ch < C; ch++) h[ch] += p[i] * scale[i] * s[i][ch];
  }
}

// Scales c of details: of the open block as read j sees it (key j), of the finished block b (key M + b); per token and
// detail
using Scales = std::map<int64_t, std::vector<double>>;

template <class real> Scales recorded_scales(const MixRouter<real> &r, int64_t N) {
  Scales s;
  const int64_t D = r.details(), M = r.plan.M;
  for (int64_t j = 1; j < M; j++)
    for (int64_t t = 0; t < N && r.plan.reads[j].partials; t++)
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
  const Config &c;
  explicit DirectRouter(GPT<double> &model)
      : MixRouter<double>(model.c, model.table, model.w),
        model(model),
        c(model.c) {}

  struct List {
    std::vector<const double *> s;
    std::vector<double> scale, bias;
    std::vector<std::vector<double>> sums;
  };
  double coefficient(int64_t b, int64_t d, int64_t k) const {
    const std::string kind = d == 0 ? "sum" : plan.details[d - 1];
    if (kind == "phase") return (b * c.block + k) % 2 ? -1 : 1;
    if (kind == "split") return 2 * k < std::min(c.block, 2 * c.L - b * c.block) ? 1 : -1;
    if (kind == "random") return blocks[b].coef[d * plan.blocks[b].length + k];  // compared with the goldens' metadata
    if (kind == "learned") return row(model, format("router.block.%d.coef", (int)b))[k];
    return 1;
  }
  // Sum and details of the first `updates` updates of block b, as sources of read j (key: see Scales)
  void add_block(List &list, int64_t b, int64_t updates, int64_t key, int64_t t, bool with_details,
                 const double *beta) {
    double rms0 = 0;
    for (int64_t d = 0; d <= details(); d++) {
      std::vector<double> P(c.C);
      double square = 0;
      for (int64_t i = 0; i < c.C; i++) {
        for (int64_t k = 0; k < updates; k++) P[i] += coefficient(b, d, k) * u[b * c.block + k][t * c.C + i];
        square += P[i] * P[i];
      }
      const double rms = std::sqrt(square / (double)c.C);
      if (d == 0) rms0 = rms;
      double scale = d == 0 ? 1 : std::min(c.rho, rms0 / (rms + c.wav_eps));
      if (d && (t * details() + d) > (int64_t)found[key].size()) found[key].push_back(scale);
      if (d && held) scale = held->at(key)[t * details() + d - 1];
      if (d && !with_details) continue;
      list.sums.push_back(P);
      list.scale.push_back(scale);
      const double bias = beta && d ? beta[d - 1] : c.beta;
      list.bias.push_back(d == 0 ? 0 : bias);
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
    if (c.full())
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
      mix_direct(weight.data(), to + t * c.C, w.data(), list.s, list.scale, list.bias, c.C, c.key_eps);
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
