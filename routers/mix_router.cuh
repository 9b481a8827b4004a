// mix_router.cuh: the methods on the depth mixer (attnres.cuh, wav_router.cuh), as mix_plan.cuh lays them out.
//
//   attnres, block, wav, haares   h_j = mix of read j's sources; out = the final read
//   delta, delta-block            h_j = x_j + y_j with the mix y_j, x_{j+1} = x_j + u_j beside it; out = x_M
//
// Parameters: router.READ.q, .g (C), .beta (details) of every read but read 0; router.block.B.coef (length) if learned.
// Backward goes through the reads last to first. A group's dh rows are kept until its first read is done, then phase 1
// adds to ds of its sources. Where du_j is completed: full, ds of source u_j, by phase 2 of the reads of its own group
// and phase 1 of later ones; blocks, from the running gradients G_d of the open block, by the backward of read j + 1 (the
// first to see u_j), or, for the last update of a block, when the block's stored rows have all their gradients.
#pragma once
#include "../wav_router.cuh"
#include "mix_plan.cuh"

template <class real> struct MixRouter : Router<real> {
  const Config &config;
  const MixPlan plan;
  const Flat<real> weights;
  struct Rows {
    Row q, g, beta;
  };
  std::vector<Rows> rows;             // of every read
  std::vector<Row> coefficient_rows;  // of every block, where they are learned

  // ---- forward leaves
  std::vector<Source<real>> sources;   // all, in the plan's order
  std::vector<MixGroup<real>> groups;  // their sources: copies of the above
  real *e = nullptr;                   // the embedding: source 0
  std::vector<real *> u;               // of every sublayer; full: u[j] is also the row of source 1 + j
  std::vector<real *> y;               // of every read: its mix; y[0] = e, nobody writes it
  std::vector<real *> h;               // what read(j) returns: y[j], the same memory; delta: x_j + y_j
  std::vector<real *> saved;           // of every read, see MixRead
  struct Block {
    std::vector<real *> row, r, c;  // of its sum and details, stored when it closes
    std::vector<real *> ds;         // of the same; while the block is open in backward: its G_d
    real *coef = nullptr;           // (bases, length)
  };
  std::vector<Block> blocks;
  std::vector<real *> r;         // of every source
  real *x = nullptr;             // delta: the stream, in place: x_0 is e
  bool constants_ready = false;  // biases and coefficients that are not learned stand in their places
  // ---- shared by all groups
  real *dh = nullptr;  // GROUP rows: o in forward, dh in backward (see MixGroup); row 0 also dout of the final read
  real *D = nullptr, *mx1 = nullptr, *l1 = nullptr;
  // ---- backward
  std::vector<real *> ds;                                  // of every source
  real *dx = nullptr;                                      // delta: of the stream
  real *du = nullptr;                                      // of the update that backward has reached
  real *dw = nullptr, *dbias = nullptr, *dcoef = nullptr;  // (GROUP,B,C), (GROUP,B,details), (B): per sequence

  MixRouter(const Config &config, const TensorTable &table, const Flat<real> &weights)
      : config(config),
        plan(config),
        weights(weights) {
    for (const MixPlan::Read &read : plan.reads) {
      Rows x;
      if (read.queries) x.q = table.find(read.parameter("q"));
      if (read.queries) x.g = table.find(read.parameter("g"));
      if (read.beta) x.beta = table.find(read.parameter("beta"));
      rows.push_back(x);
    }
    for (const MixPlan::Block &block : plan.blocks)
      if (plan.learned) coefficient_rows.push_back(table.find(block.coef));
  }
  int64_t details() const { return plan.detail_count(); }
  int64_t size(const Pass<real> &p) const { return p.N() * config.C; }

  // ---- memory
  void carve(Arena<real> &arena, int64_t N, bool training) override {
    const int64_t C = config.C, B = divide_up(N, config.T);
    constants_ready = false;
    carve_sources(arena, N, training);
    carve_reads(arena, N);
    x = plan.delta ? arena.take(N * C) : nullptr;
    dh = arena.take(GROUP * stride(N));
    for (real **scalars : {&D, &mx1, &l1}) *scalars = arena.take(GROUP * N);
    groups.clear();
    for (const MixPlan::Group &group : plan.groups) carve_group(group, arena, N);
    if (!training) return;
    dx = plan.delta ? arena.take(N * C) : nullptr;
    du = arena.take(N * C);
    dw = arena.take(GROUP * B * C);
    dbias = arena.take(GROUP * B * details());
    dcoef = arena.take(B);
  }
  // From one read's rows of dh to the next: rows of many reads are read side by side (see STAGGER)
  int64_t stride(int64_t N) const { return N * config.C + STAGGER / (int64_t)sizeof(real); }

  // The partials of a block after so many updates
  BlockPartials<real> block_partials(int64_t block, int64_t updates) const {
    const MixPlan::Block &b = plan.blocks[block];
    return {(int)updates, u.data() + b.first, plan.bases,     blocks[block].coef,
            b.length,     config.rho,         config.wav_eps, config.key_eps};
  }

 private:
  void carve_sources(Arena<real> &arena, int64_t N, bool training) {
    const int64_t size = N * config.C;
    for (auto *list : {&u, &r, &ds}) list->clear();
    sources.clear();
    blocks.clear();
    const auto source = [&](real *row) {
      r.push_back(arena.take(N));
      ds.push_back(training ? arena.take(size) : nullptr);
      sources.push_back({row, r.back(), ds.back(), plan.sources[sources.size()].detail});
    };
    e = arena.take(size);
    source(e);
    for (int64_t j = 0; j < plan.M; j++) {
      u.push_back(arena.take(size));
      if (plan.full) source(u[j]);
    }
    for (const MixPlan::Block &planned : plan.blocks) {
      Block b;
      b.coef = arena.take(plan.bases * planned.length);
      for (int d = 0; d < plan.bases; d++) {
        b.row.push_back(arena.take(size));
        source(b.row[d]);
        b.r.push_back(r.back());
        b.c.push_back(arena.take(N));
        b.ds.push_back(ds.back());
      }
      blocks.push_back(b);
    }
  }
  void carve_reads(Arena<real> &arena, int64_t N) {
    for (auto *list : {&h, &y, &saved}) list->clear();
    for (size_t j = 0; j < plan.reads.size(); j++) {
      y.push_back(j == 0 ? e : arena.take(N * config.C));
      h.push_back(j == 0 || !plan.delta ? y[j] : arena.take(N * config.C));
      saved.push_back(arena.take(N * plan.reads[j].partials * 3));
    }
  }
  void carve_group(const MixPlan::Group &planned, Arena<real> &arena, int64_t N) {
    MixGroup<real> g;
    g.reads = planned.reads;
    g.first = planned.first;
    g.details = (int)details();
    for (size_t i = 0; i < planned.sources.size(); i++) {
      g.sources.push_back(sources[planned.sources[i]]);
      g.sources.back().fresh = planned.fresh[i];
    }
    g.w = arena.take(GROUP * config.C);
    g.bias = arena.take(GROUP * (1 + details()));
    g.stride = stride(N);
    g.z = arena.take(N * (int64_t)g.sources.size() * GROUP);
    g.mx = arena.take(GROUP * N);
    g.inv = arena.take(GROUP * N);
    g.mx1 = mx1;
    g.l1 = l1;
    g.o = g.dh = dh;
    g.D = D;
    groups.push_back(g);
  }

  // ---- forward
  // The parameters as they are: w = g*q and the biases of every read, learned coefficients
  void take_parameters() {
    if (!constants_ready) write_constants();
    for (size_t j = 0; j < plan.reads.size(); j++) {
      const MixPlan::Read &read = plan.reads[j];
      const MixGroup<real> &g = groups[read.group];
      if (read.queries)
        device::query_forward(g.w + read.lane * config.C, weights[rows[j].q], weights[rows[j].g], config.C);
      if (read.beta) device::copy(bias_of_details(read), weights[rows[j].beta], details());
    }
    for (size_t b = 0; b < coefficient_rows.size(); b++) {
      const int64_t length = plan.blocks[b].length;
      device::copy(blocks[b].coef + plan.learned * length, weights[coefficient_rows[b]], length);
    }
  }
  void write_constants() {
    for (const MixPlan::Read &read : plan.reads) {
      device::fill(bias_of_details(read) - 1, 1, (real)0);
      device::fill(bias_of_details(read), details(), (real)config.beta);
    }
    for (size_t b = 0; b < blocks.size(); b++)
      for (int d = 0; d < plan.bases; d++) {
        const std::vector<double> list = detail_coefficients(plan, (int64_t)b, d, config.seed);
        const std::vector<real> coef(list.begin(), list.end());
        device::upload(blocks[b].coef + d * plan.blocks[b].length, coef.data(), (int64_t)coef.size());
      }
    constants_ready = true;
  }
  real *bias_of_details(const MixPlan::Read &read) const {
    return groups[read.group].bias + read.lane * (1 + details()) + 1;
  }
  MixRead<real> mix_read(int64_t j) const { return {groups[plan.reads[j].group], plan.reads[j].lane, y[j], saved[j]}; }
  UpdatePartials<real> update_partials(int64_t j) const {
    const int n = plan.reads[j].partials;
    return {n, n ? sources.data() + 1 + j - n : nullptr};
  }
  bool merges_updates(int64_t j) const { return plan.full || plan.is_final(j); }  // the final read: none of them

  void mix_forward(int64_t j, const Pass<real> &p) {
    if (merges_updates(j))
      device::mix_phase2(mix_read(j), update_partials(j), p.N(), config.C);
    else
      device::mix_phase2(mix_read(j), block_partials(plan.reads[j].block, plan.reads[j].position), p.N(), config.C);
  }

 public:
  real *embedding() override {
    take_parameters();
    return e;
  }
  const real *read(int64_t j, const Pass<real> &p) override {
    if (j == 0) device::source_scale(r[0], e, p.N(), config.C, config.key_eps);
    if (plan.reads[j].lane == 0) device::mix_phase1(groups[plan.reads[j].group], p.N(), config.C);
    if (j == 0) return e;
    mix_forward(j, p);
    if (plan.delta) device::residual_forward(h[j], x, y[j], size(p));
    return h[j];
  }
  real *update(int64_t j) override { return u[j]; }
  void write(int64_t j, const Pass<real> &p) override {
    if (plan.full)
      device::source_scale(r[1 + j], u[j], p.N(), config.C, config.key_eps);
    else if (closes_block(j))
      close_block(plan.reads[j].block, p);
    if (plan.delta) device::residual_forward(x, j == 0 ? e : x, u[j], size(p));
  }
  const real *read_final(const Pass<real> &p) override {
    if (!plan.has_final) return x;
    device::mix_phase1(groups.back(), p.N(), config.C);
    mix_forward(plan.M, p);
    return h.back();
  }
  const real *input(int64_t j) const override { return h[j]; }
  const real *output() const override { return plan.has_final ? h.back() : x; }

  // ---- backward
  real *doutput() override { return plan.delta ? dx : dh; }
  real *dinput(int64_t j) override { return dh + plan.reads[j].lane * groups[plan.reads[j].group].stride; }
  void read_final_backward(const Pass<real> &p) override {
    for (const size_t i : plan.unread) device::fill(ds[i], size(p), (real)0);
    if (plan.has_final) read_group_backward(plan.M, p);
  }
  const real *write_backward(int64_t j, const Pass<real> &p) override {
    const real *grad = plan.full ? ds[1 + j] : du;
    if (!plan.full && closes_block(j)) close_block_backward(j, p);
    if (!plan.delta) return grad;
    device::residual_forward(du, dx, grad, size(p));
    return du;
  }
  void read_backward(int64_t j, const Pass<real> &p) override {
    if (plan.delta) device::residual_forward(dx, dx, dinput(j), size(p));
    read_group_backward(j, p);
  }
  const real *embedding_backward(const Pass<real> &p) override {
    if (!plan.delta) return ds[0];
    device::residual_forward(dx, dx, ds[0], size(p));
    return dx;
  }
  void finish(const Flat<real> &grads) override {
    for (const Rows &row : rows)
      if (row.q) device::query_backward(grads[row.q], grads[row.g], weights[row.q], weights[row.g], config.C);
  }

  // ---- for observers
  std::vector<ReadInfo> reads() const override {
    std::vector<ReadInfo> list;
    for (size_t j = 0; j < plan.reads.size(); j++)
      list.push_back({plan.reads[j].name, plan.sources_of((int64_t)j), rows[j].q});
    return list;
  }
  ReadValues<real> read_values(int64_t j, int64_t N) const override {
    const MixPlan::Read &read = plan.reads[j];
    const MixGroup<real> &g = groups[read.group];
    const int64_t n = (int64_t)g.sources.size(), all = n + read.partials;
    const auto z = device::on_host(g.z, N * n * GROUP), kept = device::on_host(saved[j], N * read.partials * 3);
    const auto mx = device::on_host(g.mx, GROUP * N), inv = device::on_host(g.inv, GROUP * N);
    const auto bias = device::on_host(g.bias_of(read.lane), 1 + details());
    ReadValues<real> v;
    if (read.queries && (!plan.is_final(j) || config.final_all)) v.bias.assign(&bias[0] + 1, &bias[0] + 1 + details());
    v.z.resize(N * all);
    v.inverse_rms.resize(N * all);
    for (int64_t t = 0; t < N; t++) {
      v.mx.push_back(read.queries ? mx[t * GROUP + read.lane] : 0);
      v.inv.push_back(read.queries ? inv[t * GROUP + read.lane] : 1);
      for (int64_t i = 0; i < n; i++) v.z[t * all + i] = read.queries ? z[(t * n + i) * GROUP + read.lane] : 0;
      for (int64_t d = 0; d < read.partials; d++) {
        v.z[t * all + n + d] = kept[d * 3 * N + t];
        v.inverse_rms[t * all + n + d] = kept[(d * 3 + 1) * N + t];
      }
    }
    for (int64_t i = 0; i < n; i++) {
      const auto scale = device::on_host(g.sources[i].r, N);
      for (int64_t t = 0; t < N; t++) v.inverse_rms[t * all + i] = scale[t];
    }
    return v;
  }
  const real *mix(int64_t j) const override { return plan.delta && j > 0 ? y[j] : nullptr; }
  std::vector<BlockCoefficients> coefficients() const override {
    std::vector<BlockCoefficients> list;
    for (size_t b = 0; b < blocks.size(); b++)
      for (int d = 1; d < plan.bases; d++) {
        const int64_t length = plan.blocks[b].length;
        const auto coef = device::on_host(blocks[b].coef + d * length, length);
        list.push_back({(int64_t)b, plan.details[d - 1], {&coef[0], &coef[0] + length}});
      }
    return list;
  }

 private:
  bool closes_block(int64_t j) const { return plan.reads[j].position + 1 == plan.blocks[plan.reads[j].block].length; }
  void close_block(int64_t block, const Pass<real> &p) {
    const Block &b = blocks[block];
    const StoredBlock<real> to{b.row.data(), b.r.data(), b.c.data()};
    device::close_block(to, block_partials(block, plan.blocks[block].length), p.N(), config.C);
  }
  // Its stored rows have all their gradients: they become the block's G_d, and du of its last update
  void close_block_backward(int64_t j, const Pass<real> &p) {
    const Block &b = blocks[plan.reads[j].block];
    const int64_t length = plan.blocks[plan.reads[j].block].length;
    device::close_block_backward(b.ds.data(), b.c.data(), plan.bases, p.N(), config.C);
    device::fill(dcoef, p.B, (real)0);
    device::block_update_backward(update_gradient(), b.ds.data(), block_partials(plan.reads[j].block, length),
                                  (int)length - 1, p.B, p.T, config.C);
    add_coefficient(j, p);
  }
  UpdateGradient<real> update_gradient() const { return {du, dcoef, plan.learned}; }
  // The gradient of update j's learned coefficient, beside its du
  void add_coefficient(int64_t j, const Pass<real> &p) {
    if (!plan.learned) return;
    real *const grad = p.grads[coefficient_rows[plan.reads[j].block]] + plan.reads[j].position;
    device::add_sequences(grad, dcoef, p.B, 1, p.carry);
  }
  // Phase 2 of read j; behind the group's first read, phase 1 of the group and the sums over sequences
  void read_group_backward(int64_t j, const Pass<real> &p) {
    const MixPlan::Read &read = plan.reads[j];
    const MixGroup<real> &g = groups[read.group];
    if (read.lane == g.reads - 1) {
      device::fill(dw, GROUP * p.B * config.C, (real)0);
      device::fill(dbias, GROUP * p.B * details(), (real)0);
    }
    if (read.queries) mix_backward(j, p);
    if (read.lane > 0) return;
    device::mix_phase1_backward(dw, dbias, g, p.B, p.T, config.C);
    for (int k = g.begin(); k < g.reads; k++) {
      const Rows &row = rows[j + k];
      device::add_sequences(p.grads[row.q], dw_of(k, p), p.B, config.C, p.carry);
      if (row.beta) device::add_sequences(p.grads[row.beta], dbias_of(k, p), p.B, details(), p.carry);
    }
  }
  real *dw_of(int k, const Pass<real> &p) const { return dw + k * p.B * config.C; }
  real *dbias_of(int k, const Pass<real> &p) const { return dbias + k * p.B * details(); }
  void mix_backward(int64_t j, const Pass<real> &p) {
    const MixPlan::Read &read = plan.reads[j];
    real *const dw_k = dw_of(read.lane, p), *const dbias_k = dbias_of(read.lane, p);
    if (merges_updates(j)) {
      const ReadGradients<real> to{read.partials ? ds.data() + 1 + j - read.partials : nullptr, dw_k, dbias_k};
      device::mix_phase2_backward(to, mix_read(j), update_partials(j), p.B, p.T, config.C);
      return;
    }
    const BlockPartials<real> partials = block_partials(read.block, read.position);
    const ReadGradients<real> to{blocks[read.block].ds.data(), dw_k, dbias_k};
    if (read.position == 0) {
      device::mix_phase2_backward(to, mix_read(j), partials, p.B, p.T, config.C);
      return;
    }
    device::fill(dcoef, p.B, (real)0);
    device::block_read_backward(update_gradient(), to, mix_read(j), partials, p.B, p.T, config.C);
    add_coefficient(j - 1, p);
  }
};

template <> struct FamilyOf<Family::mix> {
  template <class real> using Router = MixRouter<real>;
  static void add_rows(TensorTable &t, const Config &c) { add_mix_rows(t, c); }
};
