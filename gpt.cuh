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
#include "backend.cuh"
#include "layers/random.cuh"
#include "layers/tensors.cuh"
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

struct Config {
  std::string router = "prenorm";
  int64_t L = 4, C = 128, NH = 4, T = 128, V = 0;
  double eps = 1e-12, layerscale_init = 0.1;
  int64_t HS() const { return C / NH; }
  int64_t H() const { return round_up(divide_up(8 * C, 3), 32); }
  int64_t M() const { return 2 * L; }
  int64_t ld_logits() const { return round_up(V, 16); }  // the vocabulary, padded: 64-byte rows
  // FLOPs of one training step per token: 6 x parameters of the matrix products + 6 L C T (causal attention, half of T)
  double flops_per_token(int64_t tokens) const {
    return 6. * ((double)L * (4. * C * C + 3. * C * H()) + (double)V * C) + 6. * L * C * tokens;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// The table. Its order is the order of tensors in checkpoints and of the gradient norm.

inline TensorTable tensor_table(const Config &c) {
  TensorTable t;
  const double std = 0.02, out = 0.02 / exact::sqrt(2. * (double)c.L);
  t.add("embed", c.V, c.C, Init::normal, std, true);
  for (int64_t l = 0; l < c.L; l++) {
    const std::string layer = format("layer.%d.", (int)l);
    t.add(layer + "attn.norm", c.C, 1, Init::constant, 1, false);
    t.add(layer + "attn.qkv", 3 * c.C, c.C, Init::normal, std, true);
    t.add(layer + "attn.proj", c.C, c.C, Init::normal, out, true);
    t.add(layer + "mlp.norm", c.C, 1, Init::constant, 1, false);
    t.add(layer + "mlp.gateup", 2 * c.H(), c.C, Init::normal, std, true);
    t.add(layer + "mlp.down", c.C, c.H(), Init::normal, out, true);
  }
  t.add("final.norm", c.C, 1, Init::constant, 1, false);
  t.add("head", c.V, c.C, Init::normal, std, true);
  for (int64_t j = 0; j < c.M(); j++) {
    if (c.router == "rezero") t.add(format("router.%d.a", (int)j), 1, 1, Init::constant, 0, false, true);
    if (c.router == "layerscale")
      t.add(format("router.%d.l", (int)j), c.C, 1, Init::constant, c.layerscale_init, false, true);
  }
  return t;
}

// A flat buffer (parameters, gradients, moments) under the table's names. Rows of a layer are found by their place.
template <class real> struct Weights {
  struct Layer {
    real *attn_norm, *qkv, *proj, *mlp_norm, *gateup, *down;
  };
  real *embed, *final_norm, *head;
  std::vector<Layer> layer;
  std::vector<real *> router;  // the rows a router added, in table order
  Weights() = default;
  Weights(const TensorTable &t, real *flat, int64_t L) {
    size_t i = 0;
    auto next = [&] { return flat + t.rows[i++].offset; };
    embed = next();
    for (int64_t l = 0; l < L; l++) {
      Layer x;
      for (real **p : {&x.attn_norm, &x.qkv, &x.proj, &x.mlp_norm, &x.gateup, &x.down}) *p = next();
      layer.push_back(x);
    }
    final_norm = next(), head = next();
    while (i < t.rows.size()) router.push_back(next());
  }
};

// What a pass works on: B sequences of T tokens, the gradients it adds to, and the earlier levels of the counter
template <class real> struct Pass {
  int64_t B, T;
  Weights<real> grads;
  exact::Carry carry;
  int64_t N() const { return B * T; }
};

// ---------------------------------------------------------------------------------------------------------------------
// Routers: where a sublayer reads its input and writes its update. Call order in a pass:
//   forward    e = embedding() is filled;  per j ascending: read(j), update(j) is filled, write(j);  read_final()
//   backward   read_final_backward(dout);  per j descending: du = write_backward(j), read_backward(j, dh);  then
//              embedding_backward()
// All pointers are (N,C). input(j) is the h that read(j) gave, kept for backward.

template <class real> struct Router {
  virtual ~Router() = default;
  virtual void carve(Arena<real> &arena, int64_t N) = 0;  // takes its activations; called with a counting arena first
  virtual real *embedding() = 0;
  virtual const real *read(int64_t j) = 0;
  virtual real *update(int64_t j) = 0;
  virtual void write(int64_t j, const Pass<real> &pass) = 0;
  virtual const real *read_final() = 0;
  virtual const real *input(int64_t j) = 0;
  virtual void read_final_backward(const real *dout, const Pass<real> &pass) = 0;
  virtual const real *write_backward(int64_t j, const Pass<real> &pass) = 0;
  virtual void read_backward(int64_t j, const real *dh, const Pass<real> &pass) = 0;
  virtual const real *embedding_backward() = 0;
};

// The stream methods: x_0 = e, h_j = x_j, out = x_M. Keeps every x_j, and u_j where a scale needs it.
template <class real> struct StreamRouter : Router<real> {
  const Config &c;
  const Weights<real> &w;
  enum Kind { prenorm, rezero, layerscale } kind;
  std::vector<real *> x, u;
  real *dx = nullptr, *du = nullptr;
  StreamRouter(const Config &c, const Weights<real> &w)
      : c(c),
        w(w),
        kind(c.router == "rezero"       ? rezero
             : c.router == "layerscale" ? layerscale
                                        : prenorm) {}
  void carve(Arena<real> &arena, int64_t N) override {
    x.clear(), u.clear();
    for (int64_t j = 0; j <= c.M(); j++) x.push_back(arena.take(N * c.C));
    for (int64_t j = 0; j < c.M(); j++) u.push_back(j && kind == prenorm ? u[0] : arena.take(N * c.C));
    dx = arena.take(N * c.C);
    du = kind == prenorm ? dx : arena.take(N * c.C);
  }
  real *embedding() override { return x[0]; }
  const real *read(int64_t j) override { return x[j]; }
  const real *input(int64_t j) override { return x[j]; }
  real *update(int64_t j) override { return u[j]; }
  const real *read_final() override { return x[c.M()]; }
  void write(int64_t j, const Pass<real> &p) override {
    if (kind == prenorm) device::residual_forward(x[j + 1], x[j], u[j], p.N() * c.C);
    if (kind == rezero) device::rezero_forward(x[j + 1], x[j], u[j], w.router[j], p.N(), c.C);
    if (kind == layerscale) device::layerscale_forward(x[j + 1], x[j], u[j], w.router[j], p.N(), c.C);
  }
  void read_final_backward(const real *dout, const Pass<real> &p) override {
    memcpy(dx, dout, p.N() * c.C * sizeof(real));
  }
  const real *write_backward(int64_t j, const Pass<real> &p) override {
    if (kind == rezero) device::rezero_backward(du, p.grads.router[j], dx, u[j], w.router[j], p.B, p.T, c.C, p.carry);
    if (kind == layerscale)
      device::layerscale_backward(du, p.grads.router[j], dx, u[j], w.router[j], p.B, p.T, c.C, p.carry);
    return du;
  }
  void read_backward(int64_t, const real *dh, const Pass<real> &p) override {
    device::residual_forward(dx, dx, dh, p.N() * c.C);
  }
  const real *embedding_backward() override { return dx; }
};

template <class real> std::unique_ptr<Router<real>> make_router(const Config &c, const Weights<real> &w) {
  return std::make_unique<StreamRouter<real>>(c, w);
}

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
    layer.clear(), rstd.clear();
    for (int64_t j = 0; j <= c.M(); j++) rstd.push_back(arena.take(N));
    for (int64_t l = 0; l < c.L; l++) {
      if (l && !training) {
        layer.push_back(layer[0]);
        continue;
      }
      Layer x;
      x.qkv = arena.take(N * 3 * c.C), x.heads = arena.take(N * c.C);
      x.m = arena.take(N * c.NH), x.n = arena.take(N * c.NH), x.gateup = arena.take(N * 2 * c.H());
      layer.push_back(x);
    }
    normed = arena.take(N * c.C), hidden = arena.take(N * c.H()), logits = arena.take(N * c.ld_logits()),
    losses = arena.take(N);
    dnormed = training ? arena.take(N * c.C) : nullptr, dqkv = training ? arena.take(N * 3 * c.C) : nullptr;
    rope = arena.take(c.T * c.HS());
  }
};

// How much a run needs: sequences per pass, passes per step, and whether gradients and moments exist
struct Sizes {
  int64_t B = 1, passes = 1;
  bool training = true;
  int64_t levels() const {  // gradient buffers of the counter over passes, besides the gradients themselves
    int64_t n = 0;
    while (passes > 1 && (passes - 1) >> n) n++;
    return n;
  }
};

template <class real> struct GPT {
  Config c;
  Sizes sizes;
  TensorTable table;
  Buffer<real> params, grads, moments, memory;  // grads: the gradients, then the levels; moments: m, then v
  Weights<real> w;
  std::unique_ptr<Router<real>> router;
  Activations<real> a;
  std::vector<double> squares;  // of each tensor's gradient, from the last norm

  GPT(const Config &config, const Sizes &s)
      : c(config),
        sizes(s),
        table(tensor_table(c)) {
    params = Buffer<real>(table.floats, "parameters");
    w = Weights<real>(table, params.data, c.L);
    if (s.training) {
      grads = Buffer<real>(table.floats * (1 + s.levels()), "gradients");
      moments = Buffer<real>(2 * table.floats, "optimizer state");
    }
    router = make_router<real>(c, w);
    Arena<real> count;
    carve(count);
    memory = Buffer<real>(count.used, "activations");
    Arena<real> arena{memory.data, 0};
    carve(arena);
    device::rope_table(a.rope, c.T, c.HS());
  }
  GPT(const GPT &) = delete;
  void carve(Arena<real> &arena) {
    router->carve(arena, sizes.B * c.T);
    a.carve(arena, c, sizes.B * c.T, sizes.training);
  }

  static MemoryPlan plan(const Config &c, const Sizes &s, int threads) {
    const TensorTable table = tensor_table(c);
    const Weights<real> none(table, nullptr, c.L);
    Arena<real> arena;
    make_router<real>(c, none)->carve(arena, s.B * c.T);
    Activations<real>().carve(arena, c, s.B * c.T, s.training);
    const int64_t size = sizeof(real), flat = table.floats * size;
    MemoryPlan plan;
    plan.add("parameters", flat);
    plan.add("gradients", s.training ? flat : 0);
    plan.add(format("gradient levels of %d passes", (int)s.passes), s.training ? flat * s.levels() : 0);
    plan.add("optimizer state", s.training ? 2 * flat : 0);
    plan.add(format("activations, %.0f bytes per token", (double)arena.used * size / (double)(s.B * c.T)),
             arena.used * size);
    plan.add(format("scratch of %d threads", threads), device::scratch_bytes(c.C, c.T, threads));
    return plan;
  }

  // Normal deviates keyed by (seed, tensor name, element): every method starts from the same backbone
  void initialize(uint64_t seed) {
    for (const Tensor &t : table.rows) {
      real *p = params.data + t.offset;
      if (t.init == Init::normal)
        device::normal_fill(p, t.size(), t.value, rng::key_of(seed, t.name.c_str()));
      else
        std::fill_n(p, t.size(), (real)t.value);
    }
  }

  // ---- forward: tokens (B,T) -> a.logits (B,T,V)
  void attention_sublayer(int64_t l, const real *h, real *u, int64_t B, int64_t T) {
    const auto &x = a.layer[l];
    const auto &p = w.layer[l];
    const int64_t N = B * T, C = c.C;
    device::rmsnorm_forward(a.normed, a.rstd[2 * l], h, p.attn_norm, N, C, c.eps);
    device::matmul_forward(x.qkv, 3 * C, a.normed, p.qkv, N, C, 3 * C);
    device::rope_forward(x.qkv, a.rope, B, T, c.NH, c.HS());
    device::attention_forward(x.heads, x.m, x.n, x.qkv, B, T, c.NH, c.HS());
    device::matmul_forward(u, C, x.heads, p.proj, N, C, C);
  }
  void mlp_sublayer(int64_t l, const real *h, real *u, int64_t N) {
    const auto &x = a.layer[l];
    const auto &p = w.layer[l];
    const int64_t C = c.C, H = c.H();
    device::rmsnorm_forward(a.normed, a.rstd[2 * l + 1], h, p.mlp_norm, N, C, c.eps);
    device::matmul_forward(x.gateup, 2 * H, a.normed, p.gateup, N, C, 2 * H);
    device::swiglu_forward(a.hidden, x.gateup, N, H);
    device::matmul_forward(u, C, a.hidden, p.down, N, H, C);
  }
  void head(int64_t N) {
    device::rmsnorm_forward(a.normed, a.rstd[c.M()], router->read_final(), w.final_norm, N, c.C, c.eps);
    device::matmul_forward(a.logits, c.ld_logits(), a.normed, w.head, N, c.C, c.V);
  }
  void forward(const int32_t *tokens, int64_t B, int64_t T) {
    const Pass<real> pass{B, T, {}, {}};
    device::embedding_forward(router->embedding(), w.embed, tokens, pass.N(), c.C);
    for (int64_t j = 0; j < c.M(); j++) {
      const real *h = router->read(j);
      if (j % 2 == 0)
        attention_sublayer(j / 2, h, router->update(j), B, T);
      else
        mlp_sublayer(j / 2, h, router->update(j), pass.N());
      router->write(j, pass);
    }
    head(pass.N());
  }

  // ---- backward, from dlogits in a.logits to every gradient of the pass
  void attention_sublayer_backward(int64_t l, const real *h, const real *du, const Pass<real> &pass) {
    const auto &x = a.layer[l];
    const auto &p = w.layer[l], &g = pass.grads.layer[l];
    const int64_t B = pass.B, T = pass.T, N = B * T, C = c.C;
    device::matmul_backward_dinp(a.dnormed, du, C, p.proj, N, C, C);  // d of the heads' output
    device::matmul_backward_dweight(g.proj, du, C, x.heads, B, T, C, C, pass.carry);
    device::attention_backward(a.dqkv, a.dnormed, x.heads, x.m, x.n, x.qkv, B, T, c.NH, c.HS());
    device::rope_backward(a.dqkv, a.rope, B, T, c.NH, c.HS());
    device::rmsnorm_apply(a.normed, h, a.rstd[2 * l], p.attn_norm, N, C);
    device::matmul_backward_dweight(g.qkv, a.dqkv, 3 * C, a.normed, B, T, C, 3 * C, pass.carry);
    device::matmul_backward_dinp(a.dnormed, a.dqkv, 3 * C, p.qkv, N, C, 3 * C);
    device::rmsnorm_backward(a.dnormed, g.attn_norm, a.dnormed, h, a.rstd[2 * l], p.attn_norm, B, T, C, pass.carry);
  }
  void mlp_sublayer_backward(int64_t l, const real *h, const real *du, const Pass<real> &pass) {
    const auto &x = a.layer[l];
    const auto &p = w.layer[l], &g = pass.grads.layer[l];
    const int64_t B = pass.B, T = pass.T, N = B * T, C = c.C, H = c.H();
    device::matmul_backward_dinp(a.hidden, du, C, p.down, N, H, C);
    device::swiglu_backward(x.gateup, a.hidden, a.hidden, x.gateup, N,
                            H);  // in place: gate and up are not needed again
    device::matmul_backward_dweight(g.down, du, C, a.hidden, B, T, H, C, pass.carry);
    device::rmsnorm_apply(a.normed, h, a.rstd[2 * l + 1], p.mlp_norm, N, C);
    device::matmul_backward_dweight(g.gateup, x.gateup, 2 * H, a.normed, B, T, C, 2 * H, pass.carry);
    device::matmul_backward_dinp(a.dnormed, x.gateup, 2 * H, p.gateup, N, C, 2 * H);
    device::rmsnorm_backward(a.dnormed, g.mlp_norm, a.dnormed, h, a.rstd[2 * l + 1], p.mlp_norm, B, T, C, pass.carry);
  }
  void backward(const int32_t *tokens, const Pass<real> &pass) {
    const int64_t N = pass.N(), ld = c.ld_logits();
    device::matmul_backward_dweight(pass.grads.head, a.logits, ld, a.normed, pass.B, pass.T, c.C, c.V, pass.carry);
    device::matmul_backward_dinp(a.dnormed, a.logits, ld, w.head, N, c.C, c.V);
    device::rmsnorm_backward(a.dnormed, pass.grads.final_norm, a.dnormed, router->read_final(), a.rstd[c.M()],
                             w.final_norm, pass.B, pass.T, c.C, pass.carry);
    router->read_final_backward(a.dnormed, pass);
    for (int64_t j = c.M() - 1; j >= 0; j--) {
      const real *du = router->write_backward(j, pass);
      if (j % 2 == 0)
        attention_sublayer_backward(j / 2, router->input(j), du, pass);
      else
        mlp_sublayer_backward(j / 2, router->input(j), du, pass);
      router->read_backward(j, a.dnormed, pass);
    }
    device::embedding_backward(pass.grads.embed, router->embedding_backward(), tokens, pass.B, pass.T, c.V, c.C,
                               pass.carry);
  }

  // Sum of the losses of B sequences: chain per sequence in double; the caller's counter joins sequences
  void count_losses(exact::Counter<double> &counter, int64_t B, int64_t T) const {
    for (int64_t b = 0; b < B; b++) {
      double sum = 0;
      for (int64_t t = 0; t < T; t++) sum = sum + (double)a.losses[b * T + t];
      counter.push(sum);
    }
  }

  // Gradients of the mean loss over `count` predictions, of B of the batch's sequences, in passes of sizes.B; the sum
  // of the losses. B sequences may be the share of one rank: then count is still that of the whole batch.
  double gradients(const int32_t *inputs, const int32_t *targets, int64_t B, int64_t T, int64_t count) {
    const int64_t passes = divide_up(B, sizes.B);
    exact::Counter<double> losses;
    for (int64_t p = 0; p < passes; p++) {
      const int64_t first = p * sizes.B * T;
      const bool last = p + 1 == passes;
      int64_t place = 0;  // of this pass's sum: 0 = the gradients, 1 + l = level l
      if (!last) place = 1 + __builtin_ctzll(~(unsigned long long)p);
      Pass<real> pass{
          std::min(sizes.B, B - p * sizes.B), T, Weights<real>(table, grads.data + place * table.floats, c.L), {}};
      for (int64_t l = 0; p >> l; l++) {
        if (p >> l & 1)
          pass.carry.offset[pass.carry.adds++] = (1 + l - place) * table.floats;
        else if (!last)
          break;
      }
      forward(inputs + first, pass.B, T);
      device::crossentropy_backward(a.losses, a.logits, c.ld_logits(), targets + first, pass.N(), c.V, count);
      count_losses(losses, pass.B, T);
      backward(inputs + first, pass);
    }
    return losses.finish();
  }

  // Losses of B sequences, without gradients
  void evaluate(exact::Counter<double> &losses, const int32_t *inputs, const int32_t *targets, int64_t B, int64_t T) {
    forward(inputs, B, T);
    device::crossentropy_forward(a.losses, a.logits, c.ld_logits(), targets, B * T, c.V);
    count_losses(losses, B, T);
  }

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
      h.decay = t.decay ? decay : 0, h.lr = t.router ? lr * router_lr : lr;
      device::adamw_update(params.data + t.offset, grads.data + t.offset, moments.data + t.offset,
                           moments.data + table.floats + t.offset, t.size(), h);
    }
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Decoding with a cache of rotated keys and values. Position t's logits have the bits of row t of GPT::forward.
template <class real> struct Decoder {
  GPT<real> &model;
  Buffer<real> cache;  // L x 2 x (T,C)
  int64_t t = 0;       // tokens in the cache
  explicit Decoder(GPT<real> &model)
      : model(model),
        cache(model.c.L * 2 * model.c.T * model.c.C, "key and value cache") {}

  bool full() const { return t == model.c.T; }
  // Appends one token; returns the logits (V) that predict the next
  const real *step(int32_t token) {
    const Config &c = model.c;
    const Pass<real> pass{1, 1, {}, {}};
    Router<real> &router = *model.router;
    device::embedding_forward(router.embedding(), model.w.embed, &token, 1, c.C);
    for (int64_t j = 0; j < c.M(); j++) {
      const real *h = router.read(j);
      if (j % 2 == 0)
        attention(j / 2, h, router.update(j));
      else
        model.mlp_sublayer(j / 2, h, router.update(j), 1);
      router.write(j, pass);
    }
    model.head(1);
    t++;
    return model.a.logits;
  }
  void attention(int64_t l, const real *h, real *u) {
    const Config &c = model.c;
    const auto &x = model.a.layer[l];
    const auto &p = model.w.layer[l];
    const int64_t C = c.C, HS = c.HS();
    real *k = cache.data + l * 2 * c.T * C, *v = k + c.T * C;
    device::rmsnorm_forward(model.a.normed, model.a.rstd[2 * l], h, p.attn_norm, 1, C, c.eps);
    device::matmul_forward(x.qkv, 3 * C, model.a.normed, p.qkv, 1, C, 3 * C);
    device::rope_forward(x.qkv, model.a.rope + t * HS, 1, 1, c.NH, HS);  // row t of the table
    memcpy(k + t * C, x.qkv + C, C * sizeof(real)), memcpy(v + t * C, x.qkv + 2 * C, C * sizeof(real));
    device::attention_decode(x.heads, x.qkv, k, v, t, c.NH, HS);
    device::matmul_forward(u, C, x.heads, p.proj, 1, C, C);
  }
};
