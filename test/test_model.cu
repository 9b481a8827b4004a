// test_model.cu: the whole model, every method of the table but those of the depth mixer (test_routers.cu has them), a new
// family included: GPT<double> against finite differences, and rows of the router that no gradient reaches; GPT<float> bit
// for bit over passes, shares of ranks, decoding, evaluation, seeds and padding; the memory plan. The stream methods also
// against test/golden (PyTorch float64), with their start values and pinned bits of a few training steps.
#include "test/difference.h"
#include "test/hash.h"
#include "test/model_common.h"

using check::that;

template <class Which> std::vector<std::string> methods_where(Which which) {
  std::vector<std::string> names;
  for (const Method &m : METHODS)
    if (which(m.family)) names.push_back(m.name);
  return names;
}
static std::vector<std::string> methods() {
  return methods_where([](Family family) { return family != Family::mix; });
}
static std::vector<std::string> stream_methods() {
  return methods_where([](Family family) { return family == Family::stream; });
}

// Odd everywhere: the vocabulary, the number of heads, three layers
static Config small(const std::string &router) {
  Config c;
  c.router = router;
  c.L = 3;
  c.C = 12;
  c.NH = 3;
  c.T = 6;
  c.V = 13;
  c.eps = 1e-5;
  c.layerscale_init = 0.1;
  return c;
}
// What lies between the tensors of a flat buffer is +0 for ever
template <class real> void padding_is_zero(const char *what, const TensorTable &table, const real *flat) {
  for (const Tensor &t : table.rows)
    for (int64_t i = t.offset + t.size(); i < t.offset + round_up(t.size(), 64); i++)
      that(check::pattern(flat[i]) == 0, "%s: padding behind %s is %g", what, t.name.c_str(), (double)flat[i]);
}

// ---- goldens

static void goldens(const std::string &router) {
  check::test((router + ": goldens: logits, loss, every gradient").c_str(), [&] {
    GoldenModel g(router);
    g.model->forward(g.tokens.data(), g.B(), g.c.T);
    g.compare("logits", logits(*g.model, g.N()).data(), g.N() * g.c.V, 1e-10);
    const double loss = g.gradients();
    g.compare("loss", &loss, 1, 1e-10);
    g.compare_table("g.", g.model->grads.data, 1e-10);
  });
  check::test((router + ": goldens: 20 steps of training").c_str(), [&] {
    GoldenModel g(router);
    g.same_training();
    padding_is_zero("parameters", g.model->table, g.model->params.data);
    padding_is_zero("gradients", g.model->table, g.model->grads.data);
    padding_is_zero("first moments", g.model->table, g.model->moments.data);
    padding_is_zero("second moments", g.model->table, g.model->moments.data + g.model->table.floats);
  });
}

// ---- finite differences

static void differences(const std::string &router) {
  check::test((router + ": finite differences of the whole model, every tensor").c_str(), [&] {
    Config c = small(router);
    c.C = 8;
    c.NH = 2;
    c.T = 5;
    c.V = 5;
    GPT<double> model(c, Sizes{2, 1, true});
    scatter(model);
    const Batch batch(2, c.T, c.V, 9);
    gradients(model, batch);
    std::vector<double> analytic(model.grads.data, model.grads.data + model.table.floats);
    for (const Tensor &t : model.table.rows)
      same_as_differences(t.name.c_str(), model.params.data + t.offset, &analytic[t.offset], t.size(), [&] {
        exact::Counter<double> losses;
        model.evaluate(losses, batch.inputs.data(), batch.targets.data(), batch.B, batch.T);
        return losses.finish() / (double)(batch.B * batch.T);
      });
  });
}

// ---- a row that no gradient can reach should not be in the table (docs/float_order.md, rule 8)

// The norm behind a read divides by the size of what it reads. A scalar in front of all of it then has a gradient of
// rounding noise, which AdamW would blow up to full steps; so has one between streams that are still equal. A start
// value may give exactly 0.
static void reached(const std::string &router) {
  check::test((router + ": the gradient of no row of the router is rounding noise").c_str(), [&] {
    Config c = small(router);
    c.eps = 1e-12;
    const Batch batch(2, c.T, c.V, 10);
    for (const Start start : {Start::random, Start::zero}) {
      GPT<double> model(c, Sizes{2, 1, true});
      scatter(model, start);
      gradients(model, batch);
      const auto largest = [&](const Tensor &t) {
        double g = 0;
        for (int64_t i = 0; i < t.size(); i++) g = std::max(g, std::fabs(model.grads[t.offset + i]));
        return g;
      };
      double all = 0;
      for (const Tensor &t : model.table.rows) all = std::max(all, largest(t));
      for (const Tensor &t : model.table.rows) {
        const double g = largest(t);
        that(!t.router || g > 1e-7 * all || (g == 0 && start == Start::zero), "%s, %s: %g where others have %g",
             t.name.c_str(), start == Start::zero ? "at the start" : "anywhere", g, all);
      }
    }
  });
}

// ---- the split of a batch never shows

static void same_in_passes(const std::string &router, int64_t B) {
  const Config c = small(router);
  const Batch batch(B, c.T, c.V, 20 + B);
  GPT<float> whole(c, Sizes{B, 1, true});
  scatter(whole);
  const double want = gradients(whole, batch);
  for (int64_t pass : {8, 4, 2, 1}) {
    GPT<float> model(c, Sizes{pass, divide_up(B, pass), true});
    scatter(model);
    const std::string what = format("B = %d in passes of %d", (int)B, (int)pass);
    for (int64_t i = 0; i < model.grads.n; i++) model.grads[i] = NAN;  // what an earlier step left must not matter
    const double loss = gradients(model, batch);
    check::same_bits((what + ": loss").c_str(), &loss, &want, 1);
    same_tensors(what, whole.table, model.grads.data, whole.grads.data);
    const double norm = model.gradient_norm(), norm_want = whole.gradient_norm();
    check::same_bits((what + ": norm").c_str(), &norm, &norm_want, 1);
  }
}
// The shares of the ranks, one after another, joined nearest partner first: r^1, then r^2
static void same_in_shares(const std::string &router, int64_t B, int64_t ranks) {
  const Config c = small(router);
  const Batch batch(B, c.T, c.V, 40 + B);
  GPT<float> whole(c, Sizes{B, 1, true}), model(c, Sizes{B == 16 ? B / ranks / 2 : B / ranks, B == 16 ? 2 : 1, true});
  scatter(whole);
  scatter(model);
  const double want = gradients(whole, batch);
  const int64_t share = B / ranks, first = share * c.T, n = model.table.floats;
  std::vector<std::vector<float>> sum(ranks);
  std::vector<double> loss(ranks);
  for (int64_t r = 0; r < ranks; r++) {
    loss[r] = model.gradients(&batch.inputs[r * first], &batch.targets[r * first], share, c.T, B * c.T);
    sum[r].assign(model.grads.data, model.grads.data + n);
  }
  for (int64_t partner = 1; partner < ranks; partner *= 2)
    for (int64_t r = 0; r < ranks; r += 2 * partner) {  // the other half of each pair holds the same sum
      for (int64_t i = 0; i < n; i++) sum[r][i] = sum[r][i] + sum[r ^ partner][i];
      loss[r] = loss[r] + loss[r ^ partner];
    }
  const std::string what = format("B = %d on %d ranks", (int)B, (int)ranks);
  same_tensors(what, whole.table, sum[0].data(), whole.grads.data);
  const double mean = loss[0] / (double)(B * c.T);
  check::same_bits((what + ": loss").c_str(), &mean, &want, 1);
}
static void splits(const std::string &router) {
  check::test((router + ": passes of 8, 4, 2, 1 give the same gradients, bit for bit").c_str(), [&] {
    for (int64_t B : {8, 6, 7, 12}) same_in_passes(router, B);
  });
  check::test((router + ": shares of 2 and 4 ranks give the same gradients, bit for bit").c_str(), [&] {
    for (int64_t ranks : {2, 4})
      for (int64_t B : {8, 16}) same_in_shares(router, B, ranks);
  });
}

// ---- forward without training

static void inference(const std::string &router) {
  check::test((router + ": decoding gives the rows of the forward, bit for bit").c_str(), [&] {
    const Config c = small(router);
    GPT<float> model(c, Sizes{1, 1, false}), decoding(c, Sizes{1, 1, false});
    scatter(model);
    scatter(decoding);
    const Batch batch(1, c.T, c.V, 60);
    model.forward(batch.inputs.data(), 1, c.T);
    Decoder<float> decoder(decoding);
    for (int round = 0; round < 2; round++, decoder.t = 0)  // a second text in the same cache
      for (int64_t t = 0; t < c.T; t++) {
        that(!decoder.full(), "full at %d", (int)t);
        const float *logits = decoder.step(batch.inputs[t]);
        check::same_bits(format("position %d", (int)t).c_str(), logits, model.a.logits + t * c.ld_logits(), c.V);
      }
    decoder.t = c.T;
    that(decoder.full(), "full after T tokens");
  });
  check::test((router + ": evaluation does not know how windows are grouped").c_str(), [&] {
    const Config c = small(router);
    const Batch batch(11, c.T, c.V, 61);
    double want = 0;
    for (int64_t B : {11, 1, 2, 3, 8}) {
      GPT<float> model(c, Sizes{B, 1, B == 2});
      scatter(model);
      exact::Counter<double> losses;
      for (int64_t b = 0; b < 11; b += B)
        model.evaluate(losses, &batch.inputs[b * c.T], &batch.targets[b * c.T], std::min(B, 11 - b), c.T);
      model.evaluate(losses, &batch.inputs[7], &batch.targets[7], 1, 4);  // the last window is shorter
      const double sum = losses.finish();
      if (B == 11) want = sum;
      check::same_bits(format("groups of %d", (int)B).c_str(), &sum, &want, 1);
    }
    GPT<float> model(c, Sizes{11, 1, true});
    scatter(model);
    exact::Counter<double> losses;
    model.evaluate(losses, batch.inputs.data(), batch.targets.data(), 11, c.T);
    const double loss = gradients(model, batch), again = losses.finish() / (double)(11 * c.T);
    check::same_bits("training and evaluation", &again, &loss, 1);
  });
}

// ---- what the table promises

static void construction() {
  check::test("the same seed gives the same backbone in every method; another seed another", [] {
    const Config c = small("prenorm");
    GPT<float> model(c, Sizes{1, 1, false}), other(c, Sizes{1, 1, false});
    model.initialize(5);
    other.initialize(6);
    for (const std::string &router : methods()) {
      GPT<float> scaled(small(router), Sizes{1, 1, false});
      scaled.initialize(5);
      for (size_t i = 0; i < model.table.rows.size(); i++) {
        const Tensor &t = model.table.rows[i], &u = scaled.table.rows[i];
        that(t.name == u.name && !u.router, "row %s", u.name.c_str());
        check::same_bits(t.name.c_str(), scaled.params.data + u.offset, model.params.data + t.offset, t.size());
        const float *mine = model.params.data + t.offset, *theirs = other.params.data + t.offset;
        const bool equal = !memcmp(mine, theirs, t.size() * sizeof(float));
        that(equal == (t.init == Init::constant), "%s with another seed", t.name.c_str());
      }
      for (size_t i = model.table.rows.size(); i < scaled.table.rows.size(); i++) {
        const Tensor &t = scaled.table.rows[i];
        that(t.router && !t.decay, "%s", t.name.c_str());
      }
    }
  });
  check::test("rezero and layerscale add a row per sublayer, from 0 and from --layerscale-init", [] {
    const Config c = small("prenorm");
    const size_t backbone = tensor_table(c).rows.size();
    for (const std::string &router : stream_methods()) {
      GPT<float> model(small(router), Sizes{1, 1, false});
      model.initialize(5);
      const size_t rows = model.table.rows.size() - backbone;
      that(rows == (router == "prenorm" ? 0 : (size_t)c.M()), "%s adds %d rows", router.c_str(), (int)rows);
      const float start = router == "rezero" ? 0.f : 0.1f;
      for (size_t i = backbone; i < model.table.rows.size(); i++) {
        const Tensor &t = model.table.rows[i];
        for (int64_t k = 0; k < t.size(); k++)
          that(model.params[t.offset + k] == start, "%s starts at %g", t.name.c_str(), start);
      }
    }
  });
}
static void initialization() {
  check::test("initialization: standard deviations, unit gains; decay on matrices alone", [] {
    Config c = small("layerscale");
    c.C = 96;
    c.V = 67;
    GPT<float> model(c, Sizes{1, 1, false});
    model.initialize(1);
    for (const Tensor &t : model.table.rows) {
      double sum = 0, square = 0;
      for (int64_t i = 0; i < t.size(); i++) {
        const double x = model.params[t.offset + i];
        sum += x;
        square += x * x;
      }
      const auto has = [&](const char *part) { return t.name.find(part) != std::string::npos; };
      const bool norm = has("norm"), out = has("proj") || has("down"), constant = norm || t.router;
      const double mean = sum / t.size(), rms = std::sqrt(square / t.size());
      double want = out ? 0.02 / std::sqrt(6.) : 0.02;
      if (t.router) want = 0.1;
      if (norm) want = 1;
      that(std::fabs(rms / want - 1) < 0.05, "%s: root mean square %g, want %g", t.name.c_str(), rms, want);
      const double error = std::fabs(mean - (constant ? want : 0));
      that(error < (constant ? 1e-6 : 0.1) * want, "%s: mean %g", t.name.c_str(), mean);
      that(t.decay == (t.cols > 1), "%s: decay", t.name.c_str());
      that(t.router == (t.name.compare(0, 7, "router.") == 0), "%s: router", t.name.c_str());
    }
  });
}
static void sums() {
  check::test("sum of the losses: a chain per sequence, then the counter, in double", [] {
    GPT<float> model(small("prenorm"), Sizes{5, 1, false});
    const int64_t T = 6;
    int other_chain = 0, other_tree = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
      double s[5], straight = 0, back[5];
      for (int64_t b = 0; b < 5; b++) {
        s[b] = back[b] = 0;
        for (int64_t t = 0; t < T; t++) {  // sizes so different that a double cannot hold the sum
          const int64_t i = b * T + t;
          model.a.losses[i] = (float)std::ldexp(1 + rng::uniform(seed, i), (int)rng::below(seed + 99, i, 40));
          s[b] = s[b] + (double)model.a.losses[i];
          straight = straight + (double)model.a.losses[i];
        }
        for (int64_t t = T - 1; t >= 0; t--) back[b] = back[b] + (double)model.a.losses[b * T + t];
      }
      const double want = ((s[0] + s[1]) + (s[2] + s[3])) + s[4];
      other_tree += straight != want;
      other_chain += ((back[0] + back[1]) + (back[2] + back[3])) + back[4] != want;
      exact::Counter<double> counter;
      model.count_losses(counter, 3, T);
      for (int64_t i = 0; i < 2 * T; i++) model.a.losses[i] = model.a.losses[3 * T + i];
      model.count_losses(counter, 2, T);
      const double got = counter.finish();
      check::same_bits("sum", &got, &want, 1);
    }
    that(other_chain > 1 && other_tree > 1, "the numbers should tell orders apart: %d, %d", other_chain, other_tree);
  });
}
static void updates() {
  check::test("a gradient that is not finite is found by name", [] {
    GPT<float> model(small("rezero"), Sizes{1, 1, true});
    for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
      model.gradient_norm();
      that(!model.first_not_finite(), "all are finite");
      const Tensor &t = model.table.rows[5];
      model.grads[t.offset + t.size() - 1] = bad;
      model.gradient_norm();
      that(model.first_not_finite() == &t, "%s holds %g", t.name.c_str(), (double)bad);
      model.grads[t.offset + t.size() - 1] = 1e30f;
    }
  });
  check::test("update: decay and --router-lr act on the rows of the table that say so", [] {
    GPT<double> model(small("layerscale"), Sizes{1, 1, true});
    scatter(model);
    AdamW h{};
    h.lr = 0.01;
    h.beta1 = 0.9;
    h.beta2 = 0.95;
    h.eps = 1e-30;
    h.scale = 1;
    h.correction1 = 0.1;
    h.correction2 = 0.05;
    const std::vector<double> before(model.params.data, model.params.data + model.params.n);
    for (const Tensor &t : model.table.rows)
      for (int64_t i = 0; i < t.size(); i++) model.grads[t.offset + i] = 1;  // a step of lr each
    model.update(h, 3, 0.5);
    for (const Tensor &t : model.table.rows)
      for (int64_t i = t.offset; i < t.offset + t.size(); i++) {
        const double want = before[i] - (t.router ? 0.03 : 0.01) * (1 + (t.decay ? 0.5 * before[i] : 0));
        const double got = model.params[i];
        that(std::fabs(got - want) < 1e-14, "%s: %.17g want %.17g", t.name.c_str(), got, want);
      }
    padding_is_zero("parameters", model.table, model.params.data);
  });
}

template <class real> void plan_is_what_is_allocated(const Config &c, const Sizes &s) {
  const GPT<real> model(c, s);
  const int64_t numbers = model.params.n + model.grads.n + model.moments.n + model.memory.n;
  const int64_t bytes = numbers * (int64_t)sizeof(real) + (model.tokens.n + model.targets.n) * (int64_t)sizeof(int32_t);
  const int64_t plan = GPT<real>::plan(c, s, 1).total() - device::scratch_bytes(s.B, c.T, c.C, c.V, 0, 1);
  that(plan == bytes, "%s, B = %d, %d passes, training %d: plan %lld, allocated %lld", c.router.c_str(), (int)s.B,
       (int)s.passes, (int)s.training, (long long)plan, (long long)bytes);
  that(model.grads.n == (s.training ? model.table.floats * (1 + s.levels()) : 0), "gradient levels");
  for (const Tensor &t : model.table.rows)
    that((uintptr_t)(model.params.data + t.offset) % ALIGNMENT == 0, "%s is aligned", t.name.c_str());
}
static void memory() {
  check::test("the memory plan is what is allocated", [] {
    for (const std::string &router : methods())
      for (bool training : {true, false})
        for (int64_t passes : {1, 2, 3, 4, 5, 8, 9}) {
          plan_is_what_is_allocated<float>(small(router), Sizes{3, passes, training});
          plan_is_what_is_allocated<double>(small(router), Sizes{2, passes, training});
        }
    const int64_t levels[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
    for (int64_t p = 1; p < 10; p++) that(Sizes{1, p, true}.levels() == levels[p], "levels of %d passes", (int)p);
  });
  check::test("padding of flat buffers and logits is never written", [] {
    for (const std::string &router : methods()) {
      const Config c = small(router);
      GPT<float> model(c, Sizes{2, 3, true});
      scatter(model);
      const int64_t N = 2 * c.T, ld = c.ld_logits();
      that(ld > c.V, "rows of logits are padded");
      for (int64_t i = 0; i < N * ld; i++) model.a.logits[i] = 12345;
      for (int step = 1; step <= 2; step++) {
        gradients(model, Batch(5, c.T, c.V, 70 + step));
        model.gradient_norm();
        model.update(adamw(1e-3, 0.9, 0.95, 1e-8, step, 1), 1, 0.1);
      }
      for (int64_t i = 0; i < N * ld; i++) that((model.a.logits[i] == 12345) == (i % ld >= c.V), "logit %d", (int)i);
      for (int64_t level = 0; level <= model.sizes.levels(); level++)
        padding_is_zero("gradients", model.table, model.grads.data + level * model.table.floats);
      padding_is_zero("parameters", model.table, model.params.data);
      padding_is_zero("first moments", model.table, model.moments.data);
      padding_is_zero("second moments", model.table, model.moments.data + model.table.floats);
    }
  });
}

// ---- pinned bits: three steps in float, every layer forward and backward, every method

static void pinned(const std::string &router, uint64_t want) {
  check::test(format("%s: pinned bits of 3 steps, float order %d", router.c_str(), exact::FLOAT_ORDER).c_str(), [&] {
    Config c = small(router);
    c.C = 36;
    c.T = 35;
    c.V = 37;
    GPT<float> model(c, Sizes{4, 2, true});
    model.initialize(1);
    Hash hash;
    for (int step = 1; step <= 3; step++) {
      const Batch b(6, c.T, c.V, 80 + step);
      hash.add(model.gradients(b.inputs.data(), b.targets.data(), b.B, b.T, b.B * b.T));
      const double norm = model.gradient_norm();
      hash.add(norm);
      model.update(adamw(1e-2, 0.9, 0.95, 1e-8, step, 0.5 / norm), 1, 0.1);
    }
    for (const Tensor &t : model.table.rows)
      for (int64_t i = 0; i < t.size(); i++) hash.add(model.params[t.offset + i]);
    that(hash.value == want, "0x%016" PRIx64 ", want 0x%016" PRIx64, hash.value, want);
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  set_float_mode();
  for (const std::string &router : stream_methods()) goldens(router);
  for (const std::string &router : methods()) {
    differences(router);
    reached(router);
    splits(router);
    inference(router);
  }
  construction();
  initialization();
  sums();
  updates();
  memory();
  pinned("prenorm", 0xc4469e0a57074c8a);
  pinned("rezero", 0xfb4d8e72319ecc1b);
  pinned("layerscale", 0xf44c32644a6251fe);
  return check::report();
}
