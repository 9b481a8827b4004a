// gpt.cuh: the model. One table of parameters, flat buffers, forward, backward, optimizer step, decoding.
//
//     for j in sublayers:  h = router.read(j);  u = sublayer(j, rmsnorm(j, h));  router.write(j)
//     out = router.read_final();  logits = rmsnorm(out) head^T
//
// Sublayer j of M = 2L: even = attention, odd = MLP, of layer j/2. A method (prenorm, rezero, ...) never shows outside
// its Router. Everything here says device::, the namespace of this build; `real` is float, or double in the tests.
//
// Names: B sequences, T tokens, N = B*T, C channels, NH heads, HS = C/NH, L layers, H hidden, V vocabulary; d-
// before a name: the gradient of the loss with respect to it.
#pragma once
#include "routers/routers.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// Activations of one pass. Kept for backward per layer: qkv, the heads' output, softmax maxima and inverse sums, gate
// and up; per norm 1/rms. Made again in backward: norm outputs, SwiGLU products, attention weights.

template <class real> struct Activations {
  struct Layer {
    real *qkv, *heads, *m, *n, *gateup;
  };
  std::vector<Layer> layer;
  std::vector<real *> rstd;  // M + 1
  real *normed, *hidden, *logits, *losses, *dnormed, *dqkv, *rope;
  void carve(Arena<real> &arena, const Config &c, int64_t N, bool training) {
    layer.clear();
    rstd.clear();
    for (int64_t j = 0; j <= c.M(); j++) rstd.push_back(arena.take(N));
    for (int64_t l = 0; l < c.L; l++) {
      if (l && !training) {
        layer.push_back(layer[0]);
        continue;
      }
      Layer x;
      x.qkv = arena.take(N * 3 * c.C);
      x.heads = arena.take(N * c.C);
      x.m = arena.take(N * c.NH);
      x.n = arena.take(N * c.NH);
      x.gateup = arena.take(N * 2 * c.H());
      layer.push_back(x);
    }
    normed = arena.take(N * c.C);
    hidden = arena.take(N * c.H());
    logits = arena.take(N * c.ld_logits());
    losses = arena.take(N);
    dnormed = training ? arena.take(N * c.C) : nullptr;
    dqkv = training ? arena.take(N * 3 * c.C) : nullptr;
    rope = arena.take(c.T * c.HS());
  }
};

// How much a run needs: sequences per pass, passes per step, and whether gradients and moments exist
struct Sizes {
  int64_t B = 1, passes = 1;
  bool training = true;
  // Gradient buffers of the counter over passes, besides the gradients themselves
  int64_t levels() const { return exact::counter_levels(passes); }
};

template <class real> struct GPT {
  Config c;
  Sizes sizes;
  TensorTable table;
  Backbone rows;
  device::Buffer<real> params, grads, moments, memory;  // grads: the gradients, then the levels; moments: m, then v
  device::Buffer<int32_t> tokens, targets;              // of the pass
  Flat<real> w;                                         // the parameters
  std::unique_ptr<Router<real>> router;
  Activations<real> a;
  std::vector<double> squares;  // of each tensor's gradient, by Row::index, from the last norm

  GPT(const Config &config, const Sizes &s)
      : c(config),
        sizes(s),
        rows(add_backbone_rows(table, c)) {
    add_router_rows(table, c);
    params = device::Buffer<real>(table.floats, "parameters");
    w.data = params.data;
    if (s.training) {
      grads = device::Buffer<real>(table.floats * (1 + s.levels()), "gradients");
      moments = device::Buffer<real>(2 * table.floats, "optimizer state");
    }
    router = make_router<real>(c, table, w);
    Arena<real> count;
    carve(count);
    memory = device::Buffer<real>(count.used, "activations");
    for (auto *x : {&tokens, &targets}) *x = device::Buffer<int32_t>(s.B * c.T, "tokens");
    Arena<real> arena{memory.data, 0};
    carve(arena);
    device::rope_table(a.rope, c.T, c.HS());
  }
  GPT(const GPT &) = delete;
  void carve(Arena<real> &arena) {
    router->carve(arena, sizes.B * c.T, sizes.training);
    a.carve(arena, c, sizes.B * c.T, sizes.training);
  }

  static MemoryPlan plan(const Config &c, const Sizes &s, int threads) {
    const TensorTable table = tensor_table(c);
    Arena<real> arena;
    const auto router = make_router<real>(c, table, Flat<real>());
    router->carve(arena, s.B * c.T, s.training);
    size_t sources = 0;  // of the largest read
    for (const ReadInfo &read : router->reads()) sources = std::max(sources, read.sources.size());
    Activations<real>().carve(arena, c, s.B * c.T, s.training);
    const int64_t size = sizeof(real), flat = table.floats * size;
    MemoryPlan plan;
    plan.add("parameters", flat);
    plan.add("gradients", s.training ? flat : 0);
    plan.add(format("gradient levels of %d passes", (int)s.passes), s.training ? flat * s.levels() : 0);
    plan.add("optimizer state", s.training ? 2 * flat : 0);
    plan.add(format("activations, %.0f bytes per token", (double)arena.used * size / (double)(s.B * c.T)),
             arena.used * size);
    plan.add("tokens", 2 * s.B * c.T * (int64_t)sizeof(int32_t));
    plan.add(format("scratch of %d threads", threads),
             device::scratch_bytes(s.B, c.T, c.C, c.V, (int64_t)sources, threads));
    return plan;
  }

  // Normal deviates keyed by (seed, tensor name, element): every method starts from the same backbone
  void initialize(uint64_t seed) {
    for (const Tensor &t : table.rows) {
      real *p = params.data + t.offset;
      if (t.init == Init::normal)
        device::normal_fill(p, t.size(), t.value, rng::key_of(seed, t.name.c_str()));
      else
        device::fill(p, t.size(), (real)t.value);
      if (t.init == Init::split) device::fill(p + t.size() / 2, t.size() - t.size() / 2, (real)-t.value);
    }
  }

  // ---- forward: tokens (B,T) -> a.logits (B,T,V)
  void attention_sublayer(int64_t l, const real *h, real *u, int64_t B, int64_t T) {
    const auto &x = a.layer[l];
    const auto &p = rows.layer[l];
    const int64_t N = B * T, C = c.C;
    device::rmsnorm_forward(a.normed, a.rstd[2 * l], h, w[p.attn_norm], N, C, c.eps);
    device::matmul_forward(x.qkv, 3 * C, a.normed, w[p.qkv], N, C, 3 * C);
    device::rope_forward(x.qkv, a.rope, B, T, c.NH, c.HS());
    device::attention_forward(x.heads, x.m, x.n, x.qkv, B, T, c.NH, c.HS());
    device::matmul_forward(u, C, x.heads, w[p.proj], N, C, C);
  }
  void mlp_sublayer(int64_t l, const real *h, real *u, int64_t N) {
    const auto &x = a.layer[l];
    const auto &p = rows.layer[l];
    const int64_t C = c.C, H = c.H();
    device::rmsnorm_forward(a.normed, a.rstd[2 * l + 1], h, w[p.mlp_norm], N, C, c.eps);
    device::matmul_forward(x.gateup, 2 * H, a.normed, w[p.gateup], N, C, 2 * H);
    device::swiglu_forward(a.hidden, x.gateup, N, H);
    device::matmul_forward(u, C, a.hidden, w[p.down], N, H, C);
  }
  void head(const Pass<real> &pass) {
    const int64_t N = pass.N();
    device::rmsnorm_forward(a.normed, a.rstd[c.M()], router->read_final(pass), w[rows.final_norm], N, c.C, c.eps);
    device::matmul_forward(a.logits, c.ld_logits(), a.normed, w[rows.head], N, c.C, c.V);
  }
  void forward(const int32_t *inputs, int64_t B, int64_t T) {
    const Pass<real> pass{B, T, {}, {}};
    device::upload(tokens.data, inputs, pass.N());
    device::embedding_forward(router->embedding(), w[rows.embed], tokens.data, pass.N(), c.C);
    for (int64_t j = 0; j < c.M(); j++) {
      const real *h = router->read(j, pass);
      if (j % 2 == 0)
        attention_sublayer(j / 2, h, router->update(j), B, T);
      else
        mlp_sublayer(j / 2, h, router->update(j), pass.N());
      router->write(j, pass);
    }
    head(pass);
  }

  // ---- backward, from dlogits in a.logits to every gradient of the pass
  void attention_sublayer_backward(int64_t l, real *dh, const real *h, const real *du, const Pass<real> &pass) {
    const auto &x = a.layer[l];
    const auto &p = rows.layer[l];
    const Flat<real> &g = pass.grads;
    const int64_t B = pass.B, T = pass.T, N = B * T, C = c.C;
    device::matmul_backward_dinp(a.dnormed, du, C, w[p.proj], N, C, C);  // d of the heads' output
    device::matmul_backward_dweight(g[p.proj], du, C, x.heads, B, T, C, C, pass.carry);
    device::attention_backward(a.dqkv, a.dnormed, x.heads, x.m, x.n, x.qkv, B, T, c.NH, c.HS());
    device::rope_backward(a.dqkv, a.rope, B, T, c.NH, c.HS());
    device::rmsnorm_apply(a.normed, h, a.rstd[2 * l], w[p.attn_norm], N, C);
    device::matmul_backward_dweight(g[p.qkv], a.dqkv, 3 * C, a.normed, B, T, C, 3 * C, pass.carry);
    device::matmul_backward_dinp(a.dnormed, a.dqkv, 3 * C, w[p.qkv], N, C, 3 * C);
    device::rmsnorm_backward(dh, g[p.attn_norm], a.dnormed, h, a.rstd[2 * l], w[p.attn_norm], B, T, C, pass.carry);
  }
  void mlp_sublayer_backward(int64_t l, real *dh, const real *h, const real *du, const Pass<real> &pass) {
    const auto &x = a.layer[l];
    const auto &p = rows.layer[l];
    const Flat<real> &g = pass.grads;
    const int64_t B = pass.B, T = pass.T, N = B * T, C = c.C, H = c.H();
    device::matmul_backward_dinp(a.hidden, du, C, w[p.down], N, H, C);
    device::swiglu_backward(x.gateup, a.hidden, a.hidden, x.gateup, N,
                            H);  // in place: gate and up are not needed again
    device::matmul_backward_dweight(g[p.down], du, C, a.hidden, B, T, H, C, pass.carry);
    device::rmsnorm_apply(a.normed, h, a.rstd[2 * l + 1], w[p.mlp_norm], N, C);
    device::matmul_backward_dweight(g[p.gateup], x.gateup, 2 * H, a.normed, B, T, C, 2 * H, pass.carry);
    device::matmul_backward_dinp(a.dnormed, x.gateup, 2 * H, w[p.gateup], N, C, 2 * H);
    device::rmsnorm_backward(dh, g[p.mlp_norm], a.dnormed, h, a.rstd[2 * l + 1], w[p.mlp_norm], B, T, C, pass.carry);
  }
  void backward(const Pass<real> &pass) {
    const int64_t N = pass.N(), ld = c.ld_logits();
    device::matmul_backward_dweight(pass.grads[rows.head], a.logits, ld, a.normed, pass.B, pass.T, c.C, c.V,
                                    pass.carry);
    device::matmul_backward_dinp(a.dnormed, a.logits, ld, w[rows.head], N, c.C, c.V);
    device::rmsnorm_backward(router->doutput(), pass.grads[rows.final_norm], a.dnormed, router->output(), a.rstd[c.M()],
                             w[rows.final_norm], pass.B, pass.T, c.C, pass.carry);
    router->read_final_backward(pass);
    for (int64_t j = c.M() - 1; j >= 0; j--) {
      const real *du = router->write_backward(j, pass);
      if (j % 2 == 0)
        attention_sublayer_backward(j / 2, router->dinput(j), router->input(j), du, pass);
      else
        mlp_sublayer_backward(j / 2, router->dinput(j), router->input(j), du, pass);
      router->read_backward(j, pass);
    }
    device::embedding_backward(pass.grads[rows.embed], router->embedding_backward(pass), tokens.data, pass.B, pass.T,
                               c.V, c.C, pass.carry);
  }

  // Sum of the losses of B sequences: chain per sequence in double; the caller's counter joins sequences
  void count_losses(exact::Counter<double> &counter, int64_t B, int64_t T) const {
    const auto all = device::on_host(a.losses, B * T);
    for (int64_t b = 0; b < B; b++) {
      double sum = 0;
      for (int64_t t = 0; t < T; t++) sum = sum + (double)all[b * T + t];
      counter.push(sum);
    }
  }

  // Gradients of the mean loss over `count` predictions, of B of the batch's sequences, in passes of sizes.B; the sum
  // of the losses. B sequences may be the share of one rank: then count is still that of the whole batch.
  double gradients(const int32_t *inputs, const int32_t *answers, int64_t B, int64_t T, int64_t count) {
    const int64_t passes = divide_up(B, sizes.B);
    exact::Counter<double> losses;
    for (int64_t p = 0; p < passes; p++) {
      const int64_t first = p * sizes.B * T;
      const bool last = p + 1 == passes;
      const exact::CounterStep step = exact::counter_step(p, last);
      const int64_t place = 1 + step.to;  // of this pass's sum: 0 the gradients, 1 + l level l
      Pass<real> pass{std::min(sizes.B, B - p * sizes.B), T, {grads.data + place * table.floats}, {}};
      for (int i = 0; i < step.adds; i++)
        pass.carry.offset[pass.carry.adds++] = (1 + step.level[i] - place) * table.floats;
      forward(inputs + first, pass.B, T);
      device::upload(targets.data, answers + first, pass.N());
      device::crossentropy_backward(a.losses, a.logits, c.ld_logits(), targets.data, pass.N(), c.V, count);
      count_losses(losses, pass.B, T);
      backward(pass);
    }
    return losses.finish();
  }

  // Losses of B sequences, without gradients
  void evaluate(exact::Counter<double> &losses, const int32_t *inputs, const int32_t *answers, int64_t B, int64_t T) {
    forward(inputs, B, T);
    device::upload(targets.data, answers, B * T);
    device::crossentropy_forward(a.losses, a.logits, c.ld_logits(), targets.data, B * T, c.V);
    count_losses(losses, B, T);
  }

  // Once, when the gradients of all passes (and ranks) are summed, before the norm
  void finish_gradients() { router->finish({grads.data}); }

  double gradient_norm() {
    double sum = 0;
    squares.clear();
    for (const Tensor &t : table.rows) {
      squares.push_back(device::sum_of_squares(grads.data + t.offset, t.size()));
      sum = sum + squares.back();
    }
    return exact::sqrt(sum);
  }
  // After gradient_norm(): the first tensor whose gradient is not finite, or nullptr
  const Tensor *first_not_finite() const {
    for (size_t i = 0; i < squares.size(); i++)
      if (!(squares[i] < HUGE_VAL)) return &table.rows[i];
    return nullptr;
  }
  void update(AdamW h, double router_lr, double decay) {
    const double lr = h.lr;
    for (const Tensor &t : table.rows) {
      h.decay = t.decay ? decay : 0;
      h.lr = t.router ? lr * router_lr : lr;
      device::adamw_update(params.data + t.offset, grads.data + t.offset, moments.data + t.offset,
                           moments.data + table.floats + t.offset, t.size(), h);
    }
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Decoding with a cache of rotated keys and values. Position t's logits have the bits of row t of GPT::forward.
template <class real> struct Decoder {
  GPT<real> &model;
  device::Buffer<real> cache;  // L x 2 x (T,C)
  int64_t t = 0;               // tokens in the cache
  explicit Decoder(GPT<real> &model)
      : model(model),
        cache(model.c.L * 2 * model.c.T * model.c.C, "key and value cache") {}

  bool full() const { return t == model.c.T; }
  // Appends one token; returns the logits (V) that predict the next, on the device
  const real *step(int32_t token) {
    const Config &c = model.c;
    const Pass<real> pass{1, 1, {}, {}};
    Router<real> &router = *model.router;
    device::upload(model.tokens.data, &token, 1);
    device::embedding_forward(router.embedding(), model.w[model.rows.embed], model.tokens.data, 1, c.C);
    for (int64_t j = 0; j < c.M(); j++) {
      const real *h = router.read(j, pass);
      if (j % 2 == 0)
        attention(j / 2, h, router.update(j));
      else
        model.mlp_sublayer(j / 2, h, router.update(j), 1);
      router.write(j, pass);
    }
    model.head(pass);
    t++;
    return model.a.logits;
  }
  void attention(int64_t l, const real *h, real *u) {
    const Config &c = model.c;
    const auto &x = model.a.layer[l];
    const auto &p = model.rows.layer[l];
    const Flat<real> &w = model.w;
    const int64_t C = c.C, HS = c.HS();
    real *k = cache.data + l * 2 * c.T * C, *v = k + c.T * C;
    device::rmsnorm_forward(model.a.normed, model.a.rstd[2 * l], h, w[p.attn_norm], 1, C, c.eps);
    device::matmul_forward(x.qkv, 3 * C, model.a.normed, w[p.qkv], 1, C, 3 * C);
    device::rope_forward(x.qkv, model.a.rope + t * HS, 1, 1, c.NH, HS);  // row t of the table
    device::copy(k + t * C, x.qkv + C, C);
    device::copy(v + t * C, x.qkv + 2 * C, C);
    device::attention_decode(x.heads, x.qkv, k, v, t, c.NH, HS);
    device::matmul_forward(u, C, x.heads, w[p.proj], 1, C, C);
  }
};
