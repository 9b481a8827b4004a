// parameters.cuh: the table of the backbone's parameters, and how code finds a tensor: by a Row (layers/tensors.cuh),
// which add() returns and find(name) gives, in any flat buffer. The order of the table is the order of tensors in
// checkpoints and of the gradient norm; a family's rows come last (routers.cuh: tensor_table).
#pragma once
#include "config.cuh"
#include "../layers/exact.cuh"
#include "../layers/tensors.cuh"

// The rows of the backbone
struct Backbone {
  struct Layer {
    Row attn_norm, qkv, proj, mlp_norm, gateup, down;
  };
  Row embed, final_norm, head;
  std::vector<Layer> layer;
};

inline Backbone add_backbone_rows(TensorTable &t, const Config &c) {
  const double std = 0.02, out = 0.02 / exact::sqrt(2. * (double)c.L);
  const auto matrix = [&](const std::string &name, int64_t rows, int64_t columns, double deviation) {
    return t.add(name, rows, columns, Init::normal, deviation, true);
  };
  const auto gains = [&](const std::string &name) { return t.add(name, c.C, 1, Init::constant, 1, false); };
  Backbone b;
  b.embed = matrix("embed", c.V, c.C, std);
  for (int64_t l = 0; l < c.L; l++) {
    const std::string layer = format("layer.%d.", (int)l);
    Backbone::Layer x;
    x.attn_norm = gains(layer + "attn.norm");
    x.qkv = matrix(layer + "attn.qkv", 3 * c.C, c.C, std);
    x.proj = matrix(layer + "attn.proj", c.C, c.C, out);
    x.mlp_norm = gains(layer + "mlp.norm");
    x.gateup = matrix(layer + "mlp.gateup", 2 * c.H(), c.C, std);
    x.down = matrix(layer + "mlp.down", c.C, c.H(), out);
    b.layer.push_back(x);
  }
  b.final_norm = gains("final.norm");
  b.head = matrix("head", c.V, c.C, std);
  return b;
}

// A vector that a router adds: no decay, learning rate times --router-lr
inline Row add_router_vector(TensorTable &t, const std::string &name, int64_t n, Init init, double value) {
  return t.add(name, n, 1, init, value, false, true);
}

// A flat buffer (parameters, gradients, a moment) in the layout of the table
template <class real> struct Flat {
  real *data = nullptr;
  real *operator[](const Row &row) const { return data + row.offset; }
};
