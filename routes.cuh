// routes.cuh: seeing the routing. Routes adds up, over the tokens of any number of passes, what every read took from
// every source, and how large the stream, the updates and the gradients are by depth.
//
//   weight            p_i of source i in the read, mean over tokens: exp(z_i - mx)*inv with the z, mx and inv that the
//                     forward pass left (attnres.cuh). Read 0 takes e alone.
//   term_rms          mean over tokens of p_i rms(s_i), the rms of p_i s_i: values are not normalised, so a small weight on
//                     a large source can matter more than a large weight on a small one
//   entropy           mean over tokens of -sum p_i log p_i, in nats;   effective_sources = exp(entropy)
//   distance          of read j from a source: j - mean of the numbers of the updates in it; e counts as update -1, the
//                     final read as j = M.  effective_distance = sum over sources of weight*distance
//   details_share     weight of all details of the read, those of the open block included
//   rms               of h_j (prenorm, rezero, layerscale: of the stream x_j) over tokens and channels, output last;
//                     delta methods: mix_rms is that of the mix y_j in h_j = x_j + y_j
//   query_norm, beta  of the read;   coefficients: of every block's details;   scale: mean |a_j| or |l_j|
//   gradient_norm     of sublayer j's two matrices: root of the mean square over the calls of add_gradients()
// The short form has of beta (all reads) and scale the smallest, the mean and the largest.
// Means over reads leave out read 0. kind: embedding, update, block, partial (the open block's sum), partial detail, or
// the name of a completed block's detail: phase, split, random, duplicate, learned.
// Sums are double, one chain over tokens in order: neither passes nor threads show, except in gradient_norm.
#pragma once
#include "gpt.cuh"
#include "runtime/json.cuh"

struct Routes {
  struct Read {
    std::string name;
    std::vector<std::string> sources, kinds;
    std::vector<double> distance, weight, term;  // weight, term: sums over tokens
    double entropy = 0;                          // likewise
    std::vector<double> beta;                    // of the read's details; empty where it has none
    Row query;
    double query_norm = 0;
  };
  using Literal = runtime::json::Literal;
  using Members = runtime::json::Members;
  Config c;
  int64_t tokens = 0, gradient_calls = 0;
  std::vector<Read> reads;                               // empty for the stream methods
  std::vector<double> inputs, updates, mixes, gradient;  // sums of squares
  std::vector<double> scale;                             // mean |a_j|, |l_j|; of the last pass seen
  std::vector<Literal> coefficients;                     // {"block","detail","values"}, likewise
  std::vector<std::string> kinds;                        // that occur

  // Runs B sequences in passes of model.sizes.B. With targets and a training model also backward, for gradient_norm;
  // the model's gradients are then those of the last pass.
  template <class real>
  void add(GPT<real> &model, const int32_t *tokens_in, const int32_t *targets, int64_t B, int64_t T) {
    for (int64_t first = 0; first < B; first += model.sizes.B) {
      const int64_t n = std::min(model.sizes.B, B - first);
      if (targets && model.sizes.training) {
        model.gradients(tokens_in + first * T, targets + first * T, n, T, n * T);
        add_gradients(model);
      } else {
        model.forward(tokens_in + first * T, n, T);
      }
      observe(model, n * T);
    }
  }
  // What the model's last forward pass, of N tokens, left in its router; runs nothing
  template <class real> void observe(GPT<real> &model, int64_t N) {
    const Router<real> &router = *model.router;
    if (!tokens) begin(model);
    tokens += N;
    observe_parameters(model);
    for (int64_t j = 0; j <= c.M(); j++) {
      const auto h = device::on_host(j < c.M() ? router.input(j) : router.output(), N * c.C);
      add_squares(inputs[j], &h[0], N);
      const real *mix = j < c.M() ? router.mix(j) : nullptr;
      if (mix) add_squares(mixes[j], &device::on_host(mix, N * c.C)[0], N);
      if (j > 0) observe_update(model, j - 1, &h[0], N);
    }
    for (size_t j = 0; j < reads.size(); j++) observe_read(reads[j], router.read_values((int64_t)j, N), N);
  }
  // The gradients the model holds, after gradients() of a whole batch
  template <class real> void add_gradients(GPT<real> &model) {
    gradient.resize(model.c.M());
    gradient_calls++;
    model.gradient_norm();
    for (int64_t l = 0; l < model.c.L; l++) {
      const Backbone::Layer &rows = model.rows.layer[l];
      const auto squares = [&](const Row &row) { return model.squares[row.index]; };
      gradient[2 * l] += squares(rows.qkv) + squares(rows.proj);
      gradient[2 * l + 1] += squares(rows.gateup) + squares(rows.down);
    }
  }

  // ---- results
  double mean(double sum) const { return sum / (double)tokens; }
  double rms(double squares) const { return exact::sqrt(squares / ((double)tokens * (double)c.C)); }
  double effective_distance(const Read &r) const {
    double sum = 0;
    for (size_t i = 0; i < r.weight.size(); i++) sum += mean(r.weight[i]) * r.distance[i];
    return sum;
  }
  double share(const Read &r, const std::string &kind) const {
    double sum = 0;
    for (size_t i = 0; i < r.weight.size(); i++) sum += r.kinds[i] == kind ? mean(r.weight[i]) : 0;
    return sum;
  }
  double details_share(const Read &r) const {
    double sum = share(r, "partial detail");
    for (const std::string &detail : c.detail_list()) sum += share(r, detail);
    return sum;
  }
  template <class F> double mean_over_reads(F f) const {
    double sum = 0;
    for (size_t j = 1; j < reads.size(); j++) sum += f(reads[j]) / (double)(reads.size() - 1);
    return sum;
  }
  // The whole report, routing.json
  std::string json() const {
    Members m = {{"router", c.router}, {"layers", c.L}, {"channels", c.C}, {"tokens", tokens}};
    if (!reads.empty()) {
      if (!c.full()) m.emplace_back("block", c.block);
      m.emplace_back("details", texts(c.detail_list()));
      m.emplace_back("summary", object(summary()));
      std::vector<Literal> items;
      for (const Read &r : reads) items.push_back(Literal::raw("\n    " + read_json(r)));
      m.emplace_back("reads", array(items));
      if (c.detail_count()) m.emplace_back("coefficients", array(coefficients));
    }
    m.emplace_back("rms", roots(inputs));
    m.emplace_back("update_rms", roots(updates));
    if (c.delta()) m.emplace_back("mix_rms", roots(mixes));
    if (!scale.empty()) m.emplace_back("scale", numbers(scale));
    std::vector<double> norms;
    for (double g : gradient) norms.push_back(exact::sqrt(g / (double)gradient_calls));
    if (gradient_calls) m.emplace_back("gradient_norm", numbers(norms));
    return runtime::json::object(m, true) + "\n";
  }
  // The short form: members of an event {"event":"routes",...} of log.jsonl
  Members short_members() const {
    Members m;
    if (!reads.empty()) m = summary();
    std::vector<double> betas;
    for (const Read &r : reads) betas.insert(betas.end(), r.beta.begin(), r.beta.end());
    if (!betas.empty()) m.emplace_back("beta", spread(betas));
    if (!scale.empty()) m.emplace_back("scale", spread(scale));
    m.emplace_back("rms_first", (float)rms(inputs.front()));
    m.emplace_back("rms_last", (float)rms(inputs.back()));
    return m;
  }
  std::string short_json() const { return object(short_members()).text; }

 private:
  static Literal array(const std::vector<Literal> &items) { return Literal::raw(runtime::json::array(items)); }
  static Literal object(const Members &members) { return Literal::raw(runtime::json::object(members)); }
  static Literal texts(const std::vector<std::string> &list) { return array({list.begin(), list.end()}); }
  static Literal numbers(const std::vector<double> &list, double over = 1) {
    std::vector<Literal> items;
    for (double x : list) items.push_back((float)(x / over));
    return array(items);
  }
  // Smallest, mean, largest
  static Literal spread(const std::vector<double> &list) {
    double sum = 0;
    for (const double x : list) sum += x;
    return numbers({*std::min_element(list.begin(), list.end()), sum / (double)list.size(),
                    *std::max_element(list.begin(), list.end())});
  }
  Literal roots(std::vector<double> squares) const {
    for (double &x : squares) x = rms(x);
    return numbers(squares);
  }
  Members summary() const {
    Members shares;
    for (const std::string &kind : kinds)
      shares.emplace_back(kind, (float)mean_over_reads([&](const Read &r) { return share(r, kind); }));
    return {{"details_share", (float)mean_over_reads([&](const Read &r) { return details_share(r); })},
            {"entropy", (float)mean_over_reads([&](const Read &r) { return mean(r.entropy); })},
            {"effective_distance", (float)mean_over_reads([&](const Read &r) { return effective_distance(r); })},
            {"kinds", object(shares)}};
  }
  std::string read_json(const Read &r) const {
    const double T = (double)tokens, entropy = mean(r.entropy);
    Members m = {{"read", r.name}, {"sources", texts(r.sources)}, {"kinds", texts(r.kinds)}};
    m.emplace_back("weights", numbers(r.weight, T));
    m.emplace_back("term_rms", numbers(r.term, T));
    m.emplace_back("entropy", (float)entropy);
    m.emplace_back("effective_sources", (float)exact::exp(entropy));
    m.emplace_back("effective_distance", (float)effective_distance(r));
    m.emplace_back("details_share", (float)details_share(r));
    m.emplace_back("query_norm", (float)r.query_norm);
    if (!r.beta.empty()) m.emplace_back("beta", numbers(r.beta));
    return runtime::json::object(m);
  }

  template <class real> void begin(const GPT<real> &model) {
    c = model.c;
    inputs.assign(c.M() + 1, 0);
    updates.assign(c.M(), 0);
    mixes.assign(c.delta() ? c.M() : 0, 0);
    for (const ReadInfo &info : model.router->reads()) begin_read(info, (double)reads.size());
  }
  void begin_read(const ReadInfo &info, double number) {
    Read r;
    r.name = info.name;
    r.query = info.query;
    for (const SourceInfo &source : info.sources) {
      r.sources.push_back(source.name);
      r.kinds.push_back(source.kind);
      r.distance.push_back(number - source.place);
      if (!std::count(kinds.begin(), kinds.end(), source.kind)) kinds.push_back(source.kind);
    }
    r.weight.assign(r.sources.size(), 0);
    r.term.assign(r.sources.size(), 0);
    reads.push_back(r);
  }
  template <class real> void add_squares(double &sum, const real *x, int64_t N) const {
    for (int64_t t = 0; t < N; t++) sum = sum + (double)exact::lane_dot(x + t * c.C, x + t * c.C, c.C);
  }
  // u_j, or where its router does not keep it the difference of the stream behind it, `after`
  template <class real> void observe_update(const GPT<real> &model, int64_t j, const real *after, int64_t N) {
    if (model.router->keeps_updates()) {
      add_squares(updates[j], &device::on_host(model.router->update(j), N * c.C)[0], N);
      return;
    }
    const auto before = device::on_host(model.router->input(j), N * c.C);
    std::vector<real> difference(N * c.C);
    for (int64_t i = 0; i < N * c.C; i++) difference[i] = after[i] - before[i];
    add_squares(updates[j], difference.data(), N);
  }
  // rms(s_i) of r_i = 1/sqrt(rms(s_i)^2 + key_eps)
  double source_rms(double inverse) const { return exact::sqrt(std::max(0., 1 / (inverse * inverse) - c.key_eps)); }
  template <class real> void observe_read(Read &r, const ReadValues<real> &v, int64_t N) const {
    const int64_t n = (int64_t)r.sources.size();
    r.beta.assign(v.bias.begin(), v.bias.end());
    for (int64_t t = 0; t < N; t++) {
      double sum = 0, scores = 0;
      for (int64_t i = 0; i < n; i++) {
        const real above = v.z[t * n + i] - v.mx[t];
        const double p = (double)exact::exp_neg(above) * (double)v.inv[t];
        r.weight[i] += p;
        r.term[i] += p * source_rms((double)v.inverse_rms[t * n + i]);
        sum += p;
        scores += p * (double)above;
      }
      r.entropy -= scores + sum * exact::log((double)v.inv[t]);  // log p_i = z_i - mx + log inv
    }
  }
  template <class real> void observe_parameters(const GPT<real> &model) {
    scale.clear();
    coefficients.clear();
    for (int64_t j = 0; j < c.M(); j++) {
      const Row row = model.router->scale(j);
      if (!row) continue;
      const auto values = device::on_host(model.w[row], row.size);
      scale.push_back(0);
      for (int64_t i = 0; i < row.size; i++) scale.back() += std::fabs((double)values[i]) / (double)row.size;
    }
    for (Read &r : reads) {
      if (!r.query) continue;
      const auto q = device::on_host(model.w[r.query], c.C);
      r.query_norm = exact::sqrt((double)exact::lane_dot(&q[0], &q[0], c.C));
    }
    for (const BlockCoefficients &x : model.router->coefficients())
      coefficients.push_back(object({{"block", x.block}, {"detail", x.detail}, {"values", numbers(x.values)}}));
  }
};
