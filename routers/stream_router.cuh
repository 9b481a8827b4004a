// stream_router.cuh: the stream methods (layers/residual.cuh): x_0 = e, h_j = x_j, out = x_M. Keeps every x_j, and u_j
// where a scale needs it. Parameters: router.J.a, one scalar (rezero); router.J.l, one gain a channel (layerscale).
#pragma once
#include "router.cuh"

inline std::string scale_name(const Config &c, int64_t j) {
  return format("router.%d.%s", (int)j, c.method().scale == Scale::scalar ? "a" : "l");
}
inline void add_stream_rows(TensorTable &t, const Config &c) {
  const Scale scale = c.method().scale;
  for (int64_t j = 0; j < c.M() && scale != Scale::one; j++)
    add_router_vector(t, scale_name(c, j), scale == Scale::scalar ? 1 : c.C, Init::constant,
                      scale == Scale::scalar ? 0 : c.layerscale_init);
}

template <class real> struct StreamRouter : Router<real> {
  const Config &config;
  const Flat<real> weights;
  const Scale kind;
  std::vector<Row> scales;  // of every update; none for prenorm
  std::vector<real *> x;    // M + 1
  std::vector<real *> u;    // M; prenorm needs no update again: all are one buffer
  real *dx = nullptr;       // of the stream, at the sublayer that backward has reached
  real *du = nullptr;       // prenorm: du_j = dx, the same memory
  real *dh = nullptr;

  StreamRouter(const Config &config, const TensorTable &table, const Flat<real> &weights)
      : config(config),
        weights(weights),
        kind(config.method().scale) {
    for (int64_t j = 0; j < config.M() && kind != Scale::one; j++) scales.push_back(table.find(scale_name(config, j)));
  }
  void carve(Arena<real> &arena, int64_t N, bool training) override {
    const int64_t size = N * config.C, M = config.M();
    x.clear();
    u.clear();
    for (int64_t j = 0; j <= M; j++) x.push_back(arena.take(size));
    for (int64_t j = 0; j < M; j++) u.push_back(j && kind == Scale::one ? u[0] : arena.take(size));
    if (!training) return;
    dx = arena.take(size);
    dh = arena.take(size);
    du = kind == Scale::one ? dx : arena.take(size);
  }

  real *embedding() override { return x[0]; }
  const real *read(int64_t j, const Pass<real> &) override { return x[j]; }
  real *update(int64_t j) override { return u[j]; }
  void write(int64_t j, const Pass<real> &p) override {
    switch (kind) {
      case Scale::one:
        return device::residual_forward(x[j + 1], x[j], u[j], p.N() * config.C);
      case Scale::scalar:
        return device::rezero_forward(x[j + 1], x[j], u[j], weights[scales[j]], p.N(), config.C);
      case Scale::channels:
        return device::layerscale_forward(x[j + 1], x[j], u[j], weights[scales[j]], p.N(), config.C);
    }
  }
  const real *read_final(const Pass<real> &) override { return x[config.M()]; }
  const real *input(int64_t j) const override { return x[j]; }
  const real *output() const override { return x[config.M()]; }

  real *doutput() override { return dx; }
  void read_final_backward(const Pass<real> &) override {}
  const real *write_backward(int64_t j, const Pass<real> &p) override {
    if (kind == Scale::one) return du;
    const real *scale = weights[scales[j]];
    real *grad = p.grads[scales[j]];
    if (kind == Scale::scalar)
      device::rezero_backward(du, grad, dx, u[j], scale, p.B, p.T, config.C, p.carry);
    else
      device::layerscale_backward(du, grad, dx, u[j], scale, p.B, p.T, config.C, p.carry);
    return du;
  }
  real *dinput(int64_t) override { return dh; }
  void read_backward(int64_t, const Pass<real> &p) override { device::residual_forward(dx, dx, dh, p.N() * config.C); }
  const real *embedding_backward(const Pass<real> &) override { return dx; }

  bool keeps_updates() const override { return kind != Scale::one; }
  Row scale(int64_t j) const override { return scales.empty() ? Row() : scales[j]; }
};

template <> struct FamilyOf<Family::stream> {
  template <class real> using Router = StreamRouter<real>;
  static void add_rows(TensorTable &t, const Config &c) { add_stream_rows(t, c); }
};
