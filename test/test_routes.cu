// test_routes.cu: what routes.cuh reports: weights rebuild the read's mix, sum to 1, carry the names of reads_text; the
// known shares, entropies and distances at q = 0; rms against the rows themselves; the same report for every pass size;
// and JSON that parses, for the nine routers.
#include "routes.cuh"
#include "test/model_common.h"

using check::that;
namespace json = runtime::json;
using Details = std::vector<std::string>;

static Config config(const std::string &router, const char *details, int64_t L, int64_t block) {
  Config c;
  c.router = router;
  c.details = details;
  c.L = L;
  c.block = block;
  c.C = 20;
  c.NH = 2;
  c.T = 5;
  c.V = 11;
  return c;
}
static Config with_key_eps(Config c, double key_eps) {
  c.key_eps = key_eps;
  return c;
}
static const std::vector<Config> &all() {
  static const std::vector<Config> list = {
      config("prenorm", "auto", 3, 8),
      config("rezero", "auto", 3, 8),
      config("layerscale", "auto", 3, 8),
      config("attnres", "auto", 6, 8),
      config("block", "auto", 3, 4),
      config("delta", "auto", 6, 8),
      config("delta-block", "auto", 3, 4),
      config("wav", "auto", 3, 4),
      config("haares", "auto", 10, 20),
      config("block", "learned,random,duplicate", 4, 2),
      with_key_eps(config("wav", "auto", 3, 4), 1e-2),
  };
  return list;
}
static std::string name(const Config &c) {
  std::string s = c.router;
  if (c.key_eps != Config().key_eps) s += format(" key-eps %g", c.key_eps);
  for (const std::string &d : c.detail_list()) s += " " + d;
  return s;
}

static Batch batch_of(int64_t B, const Config &c) { return Batch(B, c.T, c.V, 5); }
// The backbone as it starts; queries, gains, betas, coefficients and scales random where asked
template <class real> void fill(GPT<real> &model, bool random) {
  model.initialize(1);
  for (const Tensor &t : model.table.rows)
    for (int64_t i = 0; i < t.size() && t.router && random; i++)
      model.params[t.offset + i] += (real)(0.3 * rng::normal(rng::key_of(7, t.name.c_str()), i));
}
static void same(const std::string &what, double got, double want, double tolerance) {
  that(std::fabs(got - want) <= tolerance, "%s: %.9g, want %.9g", what.c_str(), got, want);
}
static int64_t kind_count(const Routes::Read &r, const char *kind) {
  return std::count(r.kinds.begin(), r.kinds.end(), kind);
}

template <class real>
Routes routes_of(GPT<real> &model, const int32_t *inputs, const int32_t *targets, int64_t B, int64_t T) {
  Routes routes;
  routes.add(model, inputs, targets, B, T);
  return routes;
}

// ---- weights

// The mix of read j of token t from its source rows by name, in double, against the row the forward left
static void rebuild(const MixRouter<double> &mix, const Routes::Read &r, int64_t j) {
  const int64_t C = mix.config.C;
  std::vector<double> h(C), row(C);
  for (size_t i = 0; i < r.sources.size(); i++) {
    row.assign(C, 0);
    double scale = 1;
    bool found = false;
    for (size_t s = 0; s < mix.sources.size(); s++)
      if (mix.plan.sources[s].info.name == r.sources[i]) {
        row.assign(mix.sources[s].s, mix.sources[s].s + C);
        found = true;
      }
    if (!found) {  // of the open block, with its c from the plain reader
      const BlockPartials<double> open = mix.block_partials(mix.plan.reads[j].block, mix.plan.reads[j].position);
      const auto read = reader(open, C);
      const PartialRows<double> partials = read(0);
      int d = 0;
      while (d + 1 < partials.n && r.sources[i] != "P" + mix.plan.details[d]) d++;
      d = r.sources[i] == "PC" ? 0 : d + 1;
      row.assign(partials.row[d], partials.row[d] + C);
      scale = partials.c[d];
    }
    double square = 0;
    for (int64_t x = 0; x < C; x++) {
      h[x] += r.weight[i] * scale * row[x];
      square += scale * row[x] * scale * row[x];
    }
    // the rms of the row itself, whatever the keys' epsilon is
    same("term_rms of " + r.name + ", " + r.sources[i], r.term[i], r.weight[i] * std::sqrt(square / (double)C), 1e-9);
  }
  check::close(("mix of read " + r.name).c_str(), h.data(), mix.y[j], C, 1e-9);
}
static void test_weights() {
  for (const Config &c : all()) {
    if (!c.mixes()) continue;
    check::test((name(c) + ": weights rebuild the mix, sum to 1, have the names of reads_text").c_str(), [&] {
      GPT<double> model(c, Sizes{1, 1, false});
      fill(model, true);
      const Batch batch = batch_of(1, c);
      const Routes one = routes_of(model, batch.inputs.data(), nullptr, 1, 1);  // one token: no mean
      const auto &mix = dynamic_cast<MixRouter<double> &>(*model.router);
      for (size_t j = 0; j < one.reads.size(); j++) rebuild(mix, one.reads[j], (int64_t)j);
      const Routes routes = routes_of(model, batch.inputs.data(), nullptr, 1, c.T);
      std::string list;
      for (const Routes::Read &r : routes.reads) {
        double sum = 0;
        for (double w : r.weight) {
          sum += w / (double)c.T;
          that(w > 0, "read %s: a weight is %g", r.name.c_str(), w);
        }
        same("weights of read " + r.name, sum, 1, 1e-12);
        list += r.name + ":";
        for (const std::string &s : r.sources) list += " " + s;
        list += "\n";
      }
      const std::string want = reads_text(mix.reads());
      that(list == want, "names:\n%swant:\n%s", list.c_str(), want.c_str());
    });
  }
}
static void test_float() {
  check::test("float: weights sum to 1, the float report is that of double", [&] {
    for (const Config &c : all()) {
      GPT<float> model(c, Sizes{2, 1, true});
      GPT<double> exact(c, Sizes{2, 1, false});
      fill(model, true);
      fill(exact, true);
      const Batch batch = batch_of(2, c);
      const Routes a = routes_of(model, batch.inputs.data(), batch.targets.data(), 2, c.T),
                   b = routes_of(exact, batch.inputs.data(), nullptr, 2, c.T);
      that(a.reads.size() == b.reads.size(), "%s: reads", name(c).c_str());
      for (size_t j = 0; j < a.reads.size(); j++) {
        const std::string what = name(c) + ", read " + a.reads[j].name;
        double sum = 0;
        for (double w : a.reads[j].weight) sum += a.mean(w);
        same(what + ": sum of weights", sum, 1, 2e-6);
        same(what + ": entropy", a.mean(a.reads[j].entropy), b.mean(b.reads[j].entropy), 1e-4);
        check::close((what + ": weights").c_str(), a.reads[j].weight.data(), b.reads[j].weight.data(),
                     (int64_t)a.reads[j].weight.size(), 1e-4);
      }
      check::close("rms", a.inputs.data(), b.inputs.data(), c.M() + 1, 1e-4);
    }
  });
}

// ---- queries of zero

static void test_uniform() {
  for (const Config &c : all()) {
    if (!c.mixes()) continue;
    check::test((name(c) + ": q = 0: uniform weights, the details' share of ROUTING's formula, entropy").c_str(), [&] {
      GPT<double> model(c, Sizes{2, 1, false});
      fill(model, false);
      const Batch batch = batch_of(2, c);
      const Routes routes = routes_of(model, batch.inputs.data(), nullptr, 2, c.T);
      const double boost = exact::exp(c.beta);
      for (const Routes::Read &r : routes.reads) {
        const bool details = r.name != "final" || c.final_all;
        const double n = (double)(kind_count(r, "block") + kind_count(r, "partial") + kind_count(r, "update")),
                     d = details ? (double)c.detail_count() : 0, total = 1 + n + d * n * boost;
        that(r.weight.size() == (size_t)(1 + n + d * n), "read %s: %d sources", r.name.c_str(), (int)r.weight.size());
        same(r.name + ": details", routes.details_share(r), d * n * boost / total, 1e-12);
        double entropy = 0;
        for (size_t i = 0; i < r.weight.size(); i++) {
          const bool plain =
              r.kinds[i] == "embedding" || r.kinds[i] == "block" || r.kinds[i] == "partial" || r.kinds[i] == "update";
          const double p = (plain ? 1 : boost) / total;
          entropy -= p * std::log(p);
          same(r.name + ": " + r.sources[i], routes.mean(r.weight[i]), p, 1e-12);
        }
        same(r.name + ": entropy", routes.mean(r.entropy), d > 0 ? entropy : std::log(1 + n), 1e-12);
        that(r.beta.size() == (r.name == "0" ? 0 : (size_t)d) && r.query_norm == 0, "read %s: beta", r.name.c_str());
        for (double beta : r.beta) same(r.name + ": beta", beta, c.beta, 0);
      }
    });
  }
}
static void test_distance() {
  check::test("distance and kind of every source, written by hand", [&] {
    auto read = [](const Config &c, size_t j) {
      GPT<float> model(c, Sizes{1, 1, false});
      fill(model, false);
      return routes_of(model, batch_of(1, c).inputs.data(), nullptr, 1, c.T).reads[j];
    };
    auto check_read = [](const Routes::Read &r, const Details &kinds, const std::vector<double> &distance) {
      that(r.kinds == kinds && r.distance == distance, "read %s", r.name.c_str());
    };
    const Config wav = config("wav", "auto", 3, 4);
    check_read(read(wav, 0), {"embedding"}, {1});
    check_read(read(wav, 3), {"embedding", "partial", "partial detail", "partial detail"}, {4, 2, 2, 2});
    check_read(read(wav, 5), {"embedding", "block", "phase", "split", "partial", "partial detail", "partial detail"},
               {6, 3.5, 3.5, 3.5, 1, 1, 1});
    check_read(read(wav, 6), {"embedding", "block", "block"}, {7, 4.5, 1.5});
    const Config full = config("attnres", "auto", 6, 8);
    check_read(read(full, 9),
               {"embedding", "update", "update", "update", "update", "update", "update", "update", "update", "update"},
               {10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  });
}

// ---- sizes by depth

static void test_rms() {
  check::test("rms of the stream, of updates and mixes, gradients, scales", [&] {
    for (const Config &c : all()) {
      GPT<double> model(c, Sizes{2, 1, true});
      fill(model, true);
      const Batch batch = batch_of(2, c);
      const Routes routes = routes_of(model, batch.inputs.data(), batch.targets.data(), 2, c.T);
      const int64_t n = 2 * c.T * c.C;
      auto rms = [&](const double *x, const double *minus) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (x[i] - (minus ? minus[i] : 0)) * (x[i] - (minus ? minus[i] : 0));
        return std::sqrt(sum / (double)n);
      };
      for (int64_t j = 0; j <= c.M(); j++) {
        const bool last = j == c.M();
        const double *h = last ? model.router->output() : model.router->input(j);
        const std::string what = name(c) + format(": %d", (int)j);
        same(what + " rms", routes.rms(routes.inputs[j]), rms(h, nullptr), 1e-9);
        if (last) continue;
        const double *next = j + 1 < c.M() ? model.router->input(j + 1) : model.router->output();
        const double u = c.router == "prenorm" ? rms(next, h) : rms(model.router->update(j), nullptr);
        same(what + " update_rms", routes.rms(routes.updates[j]), u, 1e-9);
        const Backbone::Layer &rows = model.rows.layer[j / 2];
        const Flat<double> grads{model.grads.data};
        const Row matrices[2] = {j % 2 ? rows.gateup : rows.qkv, j % 2 ? rows.down : rows.proj};
        double sum = 0;
        for (int m = 0; m < 2; m++)
          for (int64_t i = 0; i < matrices[m].size; i++) sum += grads[matrices[m]][i] * grads[matrices[m]][i];
        that(sum > 0, "%s gradient", what.c_str());
        same(what + " gradient", routes.gradient[j] / sum, 1, 1e-9);
      }
      that(routes.scale.size() == (c.mixes() || c.router == "prenorm" ? 0 : (size_t)c.M()), "scales");
      for (size_t j = 0; j < routes.scale.size(); j++) {
        const char *row = c.router == "rezero" ? "a" : "l";
        const Row scale = model.table.find(format("router.%d.%s", (int)j, row));
        const int64_t width = c.router == "rezero" ? 1 : c.C;
        double sum = 0;
        for (int64_t i = 0; i < width; i++) sum += std::fabs(model.w[scale][i]);
        same(name(c) + format(": scale %d", (int)j), routes.scale[j], sum / (double)width, 1e-12);
      }
      if (c.delta()) {
        const auto &mix = dynamic_cast<MixRouter<double> &>(*model.router);
        same("mix_rms", routes.rms(routes.mixes[3]), rms(mix.y[3], nullptr), 1e-9);
      }
    }
  });
}

// ---- reports

static void test_passes() {
  check::test("the report has the same bits for every pass size", [&] {
    for (const Config &c : all()) {
      const Batch batch = batch_of(5, c);
      std::string first;
      for (int64_t B : {5, 2, 1}) {
        GPT<float> model(c, Sizes{B, 1, false});
        fill(model, true);
        const std::string text = routes_of(model, batch.inputs.data(), nullptr, 5, c.T).json();
        if (first.empty()) first = text;
        that(text == first, "%s in passes of %d", name(c).c_str(), (int)B);
      }
    }
  });
}
static double at(const json::Value &v, const char *key) {
  double x = NAN;
  if (!v.find(key) || !v.find(key)->to(x)) throw Error(format("no number %s", key));
  return x;
}
static void test_json() {
  check::test("routing.json and the short form parse and hold the numbers", [&] {
    for (const Config &c : all()) {
      GPT<float> model(c, Sizes{2, 1, true});
      fill(model, true);
      const Batch batch = batch_of(2, c);
      const Routes r = routes_of(model, batch.inputs.data(), batch.targets.data(), 2, c.T);
      const json::Value v = json::parse(r.json(), name(c)), s = json::parse(r.short_json(), name(c));
      that(r.short_json().find('\n') == std::string::npos, "the short form is one line");
      that(v.find("router") && v.find("router")->text == c.router && at(v, "tokens") == 10, "router, tokens");
      for (const char *key : {"rms", "update_rms", "gradient_norm"})
        that(v.find(key) && (int64_t)v.find(key)->items.size() == c.M() + (key == std::string("rms")), "%s", key);
      that((v.find("reads") != nullptr) == c.mixes() && (v.find("mix_rms") != nullptr) == c.delta(), "reads, mix_rms");
      same("rms_last", at(s, "rms_last"), r.rms(r.inputs.back()), 1e-6);
      if (!c.mixes()) continue;
      that(v.find("reads")->items.size() == r.reads.size(), "reads");
      double share = 0, all_kinds = 0;
      for (size_t j = 0; j < r.reads.size(); j++) {
        const json::Value &read = v.find("reads")->items[j];
        for (const char *key : {"sources", "kinds", "weights", "term_rms"})
          that(read.find(key) && read.find(key)->items.size() == r.reads[j].weight.size(), "%s", key);
        same("effective_sources", at(read, "effective_sources"), std::exp(at(read, "entropy")), 1e-4);
        share += j ? at(read, "details_share") / (double)(r.reads.size() - 1) : 0;
      }
      same("details_share", at(s, "details_share"), share, 1e-6);
      for (const std::string &kind : s.find("kinds")->keys) all_kinds += at(*s.find("kinds"), kind.c_str());
      same("shares of the kinds", all_kinds, 1, 1e-5);
      that((v.find("coefficients") != nullptr) == (c.detail_count() > 0), "coefficients");
      if (name(c).find("learned") != std::string::npos) {
        const json::Value &first = v.find("coefficients")->items[0];
        double x = 0;
        first.find("values")->items[0].to(x);
        that(first.find("detail")->text == "learned", "coefficients of %s", first.find("detail")->text.c_str());
        same("a learned coefficient", x, model.w[model.table.find("router.block.0.coef")][0], 1e-6);
      }
    }
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  device::set_threads(1);
  test_weights();
  test_float();
  test_uniform();
  test_distance();
  test_rms();
  test_passes();
  test_json();
  return check::report();
}
