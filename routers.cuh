// routers.cuh: the configuration, the table of parameters, and the routers: how sublayers read and write the residual
// stream. A method never shows outside its Router. Everything here says device::, the namespace of this build.
#pragma once
#include "backend.cuh"
#include "layers/random.cuh"
#include "layers/tensors.cuh"
#include "wav_router.cuh"
#include <algorithm>
#include <memory>
#include <vector>

struct Config {
  std::string router = "prenorm";
  int64_t L = 4, C = 128, NH = 4, T = 128, V = 0;
  double eps = 1e-12, layerscale_init = 0.1;
  // of the routers on the depth mixer
  int64_t block = 8;                 // sublayers of a block
  std::vector<std::string> details;  // phase, split, random, duplicate, learned
  double rho = 2, beta = -2, wav_eps = 1e-6, key_eps = 1e-12;
  bool fixed_beta = false, final_all = false;
  uint64_t seed = 1;  // of random details
  bool mixes() const { return router != "prenorm" && router != "rezero" && router != "layerscale"; }
  bool full() const { return router == "attnres" || router == "delta"; }  // every update is a source
  bool delta() const {
    return router == "delta" || router == "delta-block";
  }  // a stream with unit weights beside the mix
  int64_t blocks() const { return divide_up(M(), block); }
  int64_t block_length(int64_t b) const { return std::min(block, M() - b * block); }
  int D() const { return (int)details.size(); }
  int64_t sources() const { return mixes() ? 1 + (full() ? M() : blocks() * (1 + D())) : 0; }  // of the final read
  bool learns() const { return std::count(details.begin(), details.end(), "learned") > 0; }
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

// No row without a gradient: sublayer 0 reads e alone, a final read without details has no beta. Nothing here decays.
inline void add_router_rows(TensorTable &t, const Config &c) {
  auto vector = [&](const std::string &name, int64_t n, double value) {
    t.add(name, n, 1, Init::constant, value, false, true);
  };
  for (int64_t j = 0; j < c.M() && !c.mixes(); j++) {
    if (c.router == "rezero") vector(format("router.%d.a", (int)j), 1, 0);
    if (c.router == "layerscale") vector(format("router.%d.l", (int)j), c.C, c.layerscale_init);
  }
  auto read = [&](const std::string &name, bool details) {
    vector(name + ".q", c.C, 0);
    vector(name + ".g", c.C, 1);
    if (details && c.D() && !c.fixed_beta) vector(name + ".beta", c.D(), c.beta);
  };
  for (int64_t j = 1; j < c.M() && c.mixes(); j++) read(format("router.%d", (int)j), true);
  if (c.mixes() && !c.delta()) read("router.final", c.final_all);
  for (int64_t b = 0; b < c.blocks() && c.learns(); b++)
    t.add(format("router.block.%d.coef", (int)b), c.block_length(b), 1, Init::split, 1, false, true);
}

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
  add_router_rows(t, c);
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
    final_norm = next();
    head = next();
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
//   backward   doutput() is filled, read_final_backward();  per j descending: du = write_backward(j), dinput(j) is
//              filled,
//              read_backward(j);  then embedding_backward()
//   finish     once, after the last pass (and rank): what is left to do with the summed gradients
// All pointers are (N,C). input(j) and output() are what read(j) and read_final() gave, kept for backward.

template <class real> struct Router {
  virtual ~Router() = default;
  virtual void carve(Arena<real> &arena, int64_t N, bool training) = 0;  // takes its activations; counts first
  virtual real *embedding() = 0;
  virtual const real *read(int64_t j, const Pass<real> &pass) = 0;
  virtual real *update(int64_t j) = 0;
  virtual void write(int64_t j, const Pass<real> &pass) = 0;
  virtual const real *read_final(const Pass<real> &pass) = 0;
  virtual const real *input(int64_t j) = 0;
  virtual const real *output() = 0;
  virtual real *doutput() = 0;
  virtual void read_final_backward(const Pass<real> &pass) = 0;
  virtual const real *write_backward(int64_t j, const Pass<real> &pass) = 0;
  virtual real *dinput(int64_t j) = 0;
  virtual void read_backward(int64_t j, const Pass<real> &pass) = 0;
  virtual const real *embedding_backward(const Pass<real> &pass) = 0;
  virtual void finish(const Weights<real> &) {}
};

// The stream methods: x_0 = e, h_j = x_j, out = x_M. Keeps every x_j, and u_j where a scale needs it.
template <class real> struct StreamRouter : Router<real> {
  const Config &c;
  const Weights<real> &w;
  enum Kind { prenorm, rezero, layerscale } kind;
  std::vector<real *> x, u;
  real *dx = nullptr, *du = nullptr, *dh = nullptr;
  StreamRouter(const Config &c, const Weights<real> &w)
      : c(c),
        w(w),
        kind(c.router == "rezero"       ? rezero
             : c.router == "layerscale" ? layerscale
                                        : prenorm) {}
  void carve(Arena<real> &arena, int64_t N, bool training) override {
    x.clear();
    u.clear();
    for (int64_t j = 0; j <= c.M(); j++) x.push_back(arena.take(N * c.C));
    for (int64_t j = 0; j < c.M(); j++) u.push_back(j && kind == prenorm ? u[0] : arena.take(N * c.C));
    if (!training) return;
    dx = arena.take(N * c.C);
    dh = arena.take(N * c.C);
    du = kind == prenorm ? dx : arena.take(N * c.C);
  }
  real *embedding() override { return x[0]; }
  const real *read(int64_t j, const Pass<real> &) override { return x[j]; }
  const real *input(int64_t j) override { return x[j]; }
  real *update(int64_t j) override { return u[j]; }
  const real *read_final(const Pass<real> &) override { return x[c.M()]; }
  const real *output() override { return x[c.M()]; }
  void write(int64_t j, const Pass<real> &p) override {
    if (kind == prenorm) device::residual_forward(x[j + 1], x[j], u[j], p.N() * c.C);
    if (kind == rezero) device::rezero_forward(x[j + 1], x[j], u[j], w.router[j], p.N(), c.C);
    if (kind == layerscale) device::layerscale_forward(x[j + 1], x[j], u[j], w.router[j], p.N(), c.C);
  }
  real *doutput() override { return dx; }
  void read_final_backward(const Pass<real> &) override {}
  const real *write_backward(int64_t j, const Pass<real> &p) override {
    real *grad = kind == prenorm ? nullptr : p.grads.router[j];
    if (kind == rezero) device::rezero_backward(du, grad, dx, u[j], w.router[j], p.B, p.T, c.C, p.carry);
    if (kind == layerscale) device::layerscale_backward(du, grad, dx, u[j], w.router[j], p.B, p.T, c.C, p.carry);
    return du;
  }
  real *dinput(int64_t) override { return dh; }
  void read_backward(int64_t, const Pass<real> &p) override { device::residual_forward(dx, dx, dh, p.N() * c.C); }
  const real *embedding_backward(const Pass<real> &) override { return dx; }
};

// The methods on the depth mixer. Sources: e, then every update (attnres, delta), or of every closed block its sum and
// its details (block, delta-block, wav, haares); a read also sees what appeared since its group began, or its block's
// sums. delta, delta-block: h_j = x_j + y_j with the mix y_j and x_{j+1} = x_j + u_j beside it; out = x_M.
template <class real> struct MixRouter : Router<real> {
  const Config &c;
  const Weights<real> &w;
  struct Read {
    int64_t group, lane, block, position;
    size_t row;  // of q in w.router; g and beta behind it
    bool beta;
  };
  struct Block {
    int64_t first, length;
    size_t source, coef_row;
    std::vector<real *> rows, r, c, ds;  // of its sum and details
    real *coef = nullptr;                // (1+D, length)
  };
  int bases, learned = 0;   // learned: which basis is, 0 none
  bool prepared = false;    // coefficients that are not learned are there
  std::vector<Read> reads;  // M, and the final one
  std::vector<MixGroup<real>> groups;
  std::vector<Block> blocks;
  std::vector<Source<real>> sources;  // all, in order
  std::vector<real *> u, r_u, h, y, saved, ds, zeroed;
  real *e = nullptr, *r_e = nullptr, *x = nullptr, *dx = nullptr, *du = nullptr, *scratch = nullptr, *D = nullptr;
  real *dw = nullptr, *db = nullptr, *dcoef = nullptr;

  MixRouter(const Config &c, const Weights<real> &w)
      : c(c),
        w(w),
        bases(c.full() ? 0 : 1 + c.D()) {
    for (int d = 0; d < c.D(); d++) learned = c.details[d] == "learned" ? 1 + d : learned;
    plan_reads();
  }

  // ---- the plan: which group and lane each read is, and which row of parameters
  void plan_reads() {
    size_t row = 0;
    for (int64_t j = 0; j < c.M(); j++) {
      const int64_t b = c.full() ? 0 : j / c.block, position = c.full() ? j : j % c.block, lane = position % GROUP;
      if (lane == 0) {
        groups.emplace_back();
        groups.back().details = c.D();
        if (j == 0) groups.back().first = c.delta() ? MixGroup<real>::none : MixGroup<real>::copy;
      }
      groups.back().K = (int)lane + 1;
      const bool beta = c.D() && !c.fixed_beta && j > 0;
      reads.push_back({(int64_t)groups.size() - 1, lane, b, position, row, beta});
      if (j > 0) row += beta ? 3 : 2;
    }
    if (!c.delta()) {
      groups.emplace_back();
      groups.back().K = 1;
      groups.back().details = c.D();
      const bool beta = c.D() && !c.fixed_beta && c.final_all;
      reads.push_back({(int64_t)groups.size() - 1, 0, c.blocks(), 0, row, beta});
      row += beta ? 3 : 2;
    }
    for (int64_t b = 0; b < c.blocks() && !c.full(); b++)
      blocks.push_back({b * c.block, c.block_length(b), 1 + (size_t)(b * bases), row + (size_t)b, {}, {}, {}, {}});
  }
  int64_t final_read() const { return c.M(); }
  // Sources complete before a read's group began, or seen by the final read
  bool visible(int64_t j, const Source<real> &s, size_t index) const {
    if (j == final_read()) return s.detail == 0 || c.final_all;
    const int64_t first = j - reads[j].lane;
    return (int64_t)index < 1 + (c.full() ? first : reads[j].block * bases);
  }

  // ---- memory
  void carve(Arena<real> &arena, int64_t N, bool training) override {
    const int64_t C = c.C, M = c.M(), B = divide_up(N, c.T);
    for (auto *list : {&u, &r_u, &h, &y, &saved, &ds}) list->clear();
    prepared = false;
    sources.clear();
    auto gradient = [&] {
      ds.push_back(training ? arena.take(N * C) : nullptr);
      return ds.back();
    };
    e = arena.take(N * C);
    r_e = arena.take(N);
    sources.push_back({e, r_e, gradient(), 0});
    for (int64_t j = 0; j < M; j++) {
      u.push_back(arena.take(N * C));
      if (!c.full()) continue;
      r_u.push_back(arena.take(N));
      sources.push_back({u[j], r_u[j], gradient(), 0});
    }
    for (Block &b : blocks) carve_block(b, arena, N, gradient);
    for (int64_t j = 0; j < (int64_t)reads.size(); j++) {
      h.push_back(j == 0 ? e : arena.take(N * C));
      y.push_back(j == 0 || !c.delta() ? h[j] : arena.take(N * C));
      saved.push_back(arena.take(N * partials(j) * 3));
    }
    x = c.delta() ? arena.take(N * C) : nullptr;
    scratch = arena.take(GROUP * stride(N));
    D = arena.take(GROUP * N);
    std::vector<bool> seen(sources.size());
    for (size_t g = groups.size(); g-- > 0;) carve_group(groups[g], first_read(g), arena, N, seen);
    zeroed.clear();
    for (size_t i = 0; i < sources.size(); i++)
      if (!seen[i]) zeroed.push_back(sources[i].ds);
    if (!training) return;
    dx = c.delta() ? arena.take(N * C) : nullptr;
    du = arena.take(N * C);
    dw = arena.take(GROUP * B * C);
    db = arena.take(GROUP * B * c.D());
    dcoef = arena.take(B);
  }
  template <class F> void carve_block(Block &b, Arena<real> &arena, int64_t N, F gradient) {
    b.rows.clear();
    b.r.clear();
    b.c.clear();
    b.ds.clear();
    b.coef = arena.take(bases * b.length);
    for (int d = 0; d < bases; d++) {
      b.rows.push_back(arena.take(N * c.C));
      b.r.push_back(arena.take(N));
      b.c.push_back(arena.take(N));
      b.ds.push_back(gradient());
      sources.push_back({b.rows[d], b.r[d], b.ds[d], d});
    }
  }
  // Backward runs through the groups last to first: the first to see a source writes its ds; `zeroed` sees no group
  void carve_group(MixGroup<real> &g, int64_t j, Arena<real> &arena, int64_t N, std::vector<bool> &seen) {
    g.sources.clear();
    for (size_t i = 0; i < sources.size(); i++) {
      if (!visible(j, sources[i], i)) continue;
      g.sources.push_back(sources[i]);
      g.sources.back().fresh = !seen[i];
      seen[i] = true;
    }
    g.z = arena.take(N * (int64_t)g.sources.size() * GROUP);
    g.mx = arena.take(GROUP * N);
    g.l = arena.take(GROUP * N);
    g.w = arena.take(GROUP * c.C);
    g.bias = arena.take(GROUP * (1 + c.D()));
    g.stride = stride(N);
    g.o = g.dh = scratch;
    g.D = D;
  }
  int64_t stride(int64_t N) const { return N * c.C + STAGGER / (int64_t)sizeof(real); }
  int64_t first_read(size_t group) const {
    int64_t j = 0;
    while (reads[j].group != (int64_t)group) j++;
    return j;
  }
  int64_t partials(int64_t j) const {
    if (j == final_read()) return 0;
    return c.full() ? reads[j].lane : reads[j].position ? bases : 0;
  }

  // ---- forward
  void prepare() {  // w = g*q and the biases of every read, the coefficients of every block
    for (size_t j = 0; j < reads.size(); j++) {
      MixGroup<real> &g = groups[reads[j].group];
      real *bias = const_cast<real *>(g.bias) + reads[j].lane * (1 + c.D());
      if (j > 0)
        device::query_forward(const_cast<real *>(g.w) + reads[j].lane * c.C, w.router[reads[j].row],
                              w.router[reads[j].row + 1], c.C);
      device::fill(bias, 1, (real)0);
      device::fill(bias + 1, c.D(), (real)c.beta);
      if (reads[j].beta) device::copy(bias + 1, w.router[reads[j].row + 2], c.D());
    }
    for (size_t b = 0; b < blocks.size(); b++)
      for (int d = 0; d < bases; d++)
        if (!prepared || d == learned) detail_coefficients(blocks[b].coef + d * blocks[b].length, b, d);
    prepared = true;
  }
  void detail_coefficients(real *to, size_t b, int d) const {
    const int64_t m = blocks[b].length;
    if (d && d == learned) return device::copy(to, w.router[blocks[b].coef_row], m);
    std::vector<real> coef(m);
    const std::string kind = d == 0 ? "sum" : c.details[d - 1];
    for (int64_t k = 0; k < m; k++) {
      const real split = k < m / 2 ? 1 : -1, phase = (blocks[b].first + k) % 2 == 0 ? 1 : -1;
      coef[k] = kind == "phase" ? phase : kind == "split" || kind == "random" ? split : 1;
    }
    const uint64_t key = rng::key_of(c.seed, format("random.%d", (int)b).c_str());
    for (int64_t i = m - 1; i > 0 && kind == "random"; i--) std::swap(coef[i], coef[rng::below(key, i, i + 1)]);
    device::upload(to, coef.data(), m);
  }
  BlockPartials<real> open(const Block &b, int64_t updates) const {
    return {(int)updates, u.data() + b.first, bases, b.coef, b.length, c.rho, c.wav_eps, c.key_eps};
  }
  UpdatePartials<real> updates(int64_t j) const { return {(int)reads[j].lane, sources.data() + 1 + j - reads[j].lane}; }

  real *embedding() override {
    prepare();
    return e;
  }
  const real *read(int64_t j, const Pass<real> &p) override {
    if (j == 0) device::source_scale(r_e, e, p.N(), c.C, c.key_eps);
    const MixGroup<real> &g = groups[reads[j].group];
    if (reads[j].lane == 0) device::mix_phase1(g, p.N(), c.C);
    if (j == 0) return e;
    mix(j, y[j], p);
    if (c.delta()) device::residual_forward(h[j], x, y[j], p.N() * c.C);
    return h[j];
  }
  void mix(int64_t j, real *to, const Pass<real> &p) {
    const MixGroup<real> &g = groups[reads[j].group];
    const int k = (int)reads[j].lane;
    if (c.full() || j == final_read())
      device::mix_phase2(to, saved[j], g, k, j == final_read() ? UpdatePartials<real>{0, nullptr} : updates(j), p.N(),
                         c.C);
    else
      device::mix_phase2(to, saved[j], g, k, open(blocks[reads[j].block], reads[j].position), p.N(), c.C);
  }
  real *update(int64_t j) override { return u[j]; }
  const real *input(int64_t j) override { return h[j]; }
  void write(int64_t j, const Pass<real> &p) override {
    if (c.full())
      device::source_scale(r_u[j], u[j], p.N(), c.C, c.key_eps);
    else if (Block &b = blocks[reads[j].block]; reads[j].position + 1 == b.length)
      device::close_block(b.rows.data(), b.r.data(), b.c.data(), open(b, b.length), p.N(), c.C);
    if (c.delta()) device::residual_forward(x, j == 0 ? e : x, u[j], p.N() * c.C);
  }
  const real *read_final(const Pass<real> &p) override {
    if (c.delta()) return x;
    device::mix_phase1(groups.back(), p.N(), c.C);
    mix(final_read(), h.back(), p);
    return h.back();
  }
  const real *output() override { return c.delta() ? x : h.back(); }

  // ---- backward
  real *doutput() override { return c.delta() ? dx : scratch; }
  real *dinput(int64_t j) override {
    const MixGroup<real> &g = groups[reads[j].group];
    return g.dh + reads[j].lane * g.stride;
  }
  void read_final_backward(const Pass<real> &p) override {
    for (real *d : zeroed) device::fill(d, p.N() * c.C, (real)0);
    if (!c.delta()) read_group_backward(final_read(), p);
  }
  void read_backward(int64_t j, const Pass<real> &p) override {
    if (c.delta()) device::residual_forward(dx, dx, dinput(j), p.N() * c.C);
    read_group_backward(j, p);
  }
  // Phase 2 of read j; behind the group's first read, phase 1 of the group and the sums over sequences
  void read_group_backward(int64_t j, const Pass<real> &p) {
    const Read &read = reads[j];
    const MixGroup<real> &g = groups[read.group];
    const int k = (int)read.lane;
    if (k == g.K - 1) {
      device::fill(dw, GROUP * p.B * c.C, (real)0);
      device::fill(db, GROUP * p.B * c.D(), (real)0);
    }
    real *dw_k = dw + k * p.B * c.C, *db_k = db + k * p.B * c.D();
    if (j > 0 && (c.full() || j == final_read())) {
      const UpdatePartials<real> none{0, nullptr}, open = j == final_read() ? none : updates(j);
      device::mix_phase2_backward(ds.data() + 1 + j - k, dw_k, db_k, y[j], saved[j], g, k, open, p.B, p.T, c.C);
    } else if (j > 0) {
      const Block &b = blocks[read.block];
      const BlockPartials<real> partials = open(b, read.position);
      if (read.position == 0) {
        device::mix_phase2_backward(b.ds.data(), dw_k, db_k, y[j], saved[j], g, k, partials, p.B, p.T, c.C);
      } else {
        device::fill(dcoef, p.B, (real)0);
        device::block_read_backward(du, dcoef, learned, b.ds.data(), dw_k, db_k, y[j], saved[j], g, k, partials, p.B,
                                    p.T, c.C);
        add_coefficient(j - 1, p);
      }
    }
    if (k > 0) return;
    device::mix_phase1_backward(dw, db, g, p.B, p.T, c.C);
    for (int lane = g.begin(); lane < g.K; lane++) {
      const Read &r = reads[j + lane];
      device::add_sequences(p.grads.router[r.row], dw + lane * p.B * c.C, p.B, c.C, p.carry);
      if (r.beta) device::add_sequences(p.grads.router[r.row + 2], db + lane * p.B * c.D(), p.B, c.D(), p.carry);
    }
  }
  // The gradient of update j's learned coefficient, beside its du
  void add_coefficient(int64_t j, const Pass<real> &p) {
    if (!learned) return;
    real *const grad = p.grads.router[blocks[reads[j].block].coef_row] + reads[j].position;
    device::add_sequences(grad, dcoef, p.B, 1, p.carry);
  }
  const real *write_backward(int64_t j, const Pass<real> &p) override {
    const real *grad = c.full() ? ds[1 + j] : du;
    if (!c.full() && reads[j].position + 1 == blocks[reads[j].block].length) {
      Block &b = blocks[reads[j].block];
      device::close_block_backward(b.ds.data(), b.c.data(), bases, p.N(), c.C);
      device::fill(dcoef, p.B, (real)0);
      device::block_update_backward(du, dcoef, learned, b.ds.data(), open(b, b.length), (int)b.length - 1, p.B, p.T,
                                    c.C);
      add_coefficient(j, p);
    }
    if (!c.delta()) return grad;
    device::residual_forward(du, dx, grad, p.N() * c.C);
    return du;
  }
  const real *embedding_backward(const Pass<real> &p) override {
    if (!c.delta()) return ds[0];
    device::residual_forward(dx, dx, ds[0], p.N() * c.C);
    return dx;
  }
  void finish(const Weights<real> &grads) override {
    for (size_t j = 1; j < reads.size(); j++) {
      const size_t row = reads[j].row;
      device::query_backward(grads.router[row], grads.router[row + 1], w.router[row], w.router[row + 1], c.C);
    }
  }

  // The sources of every read by name, as `show --reads` prints them
  std::string list_reads() const {
    std::string text;
    for (size_t j = 0; j < reads.size(); j++) {
      text += (int64_t)j == final_read() ? "final:" : format("%d:", (int)j);
      for (size_t i = 0; i < sources.size(); i++)
        if (visible((int64_t)j, sources[i], i)) text += " " + source_name(i);
      if (c.full() && (int64_t)j != final_read())
        for (int64_t i = j - (size_t)reads[j].lane; i < (int64_t)j; i++) text += format(" u%d", (int)i);
      for (int d = 0; d < bases && partials((int64_t)j); d++) text += d == 0 ? " PC" : " P" + c.details[d - 1];
      text += "\n";
    }
    return text;
  }
  std::string source_name(size_t i) const {
    if (i == 0) return "e";
    if (c.full()) return format("u%d", (int)i - 1);
    const int b = (int)(i - 1) / bases, d = (int)(i - 1) % bases;
    return d == 0 ? format("C%d", b) : format("%s%d", c.details[d - 1].c_str(), b);
  }
};

template <class real> std::unique_ptr<Router<real>> make_router(const Config &c, const Weights<real> &w) {
  if (c.mixes()) return std::make_unique<MixRouter<real>>(c, w);
  return std::make_unique<StreamRouter<real>>(c, w);
}
