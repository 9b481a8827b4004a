// config.cuh: what decides the model: its shape, its method, and what the method needs to know.
#pragma once
#include "methods.cuh"
#include <algorithm>

struct Config {
  std::string router = METHODS[0].name;
  int64_t L = 4, C = 128, NH = 4, T = 128, V = 0;
  double eps = 1e-12, layerscale_init = 0.1;
  // of the routers on the depth mixer
  int64_t block = 8;             // sublayers of a block
  std::string details = "auto";  // the method's own, none, or a list: phase, split, random, duplicate, learned
  double rho = 2, beta = -2, wav_eps = 1e-6, key_eps = 1e-12;
  bool fixed_beta = false, final_all = false;
  uint64_t seed = 1;  // of random details

  // ---- the method. An unknown name throws
  const Method &method() const { return method_named(router); }
  bool mixes() const { return method().family == Family::mix; }
  bool full() const { return method().sources == Sources::updates; }  // every update is a source
  bool delta() const { return method().delta; }                       // a stream with unit weights beside the mix
  std::vector<std::string> detail_list() const { return details_of(method(), details); }
  int64_t detail_count() const { return (int64_t)detail_list().size(); }
  int64_t blocks() const { return divide_up(M(), block); }
  int64_t block_length(int64_t b) const { return std::min(block, M() - b * block); }

  // ---- the shape
  int64_t HS() const { return C / NH; }
  int64_t H() const { return round_up(divide_up(8 * C, 3), 32); }
  int64_t M() const { return 2 * L; }
  int64_t ld_logits() const { return round_up(V, 16); }  // the vocabulary, padded: 64-byte rows
  // FLOPs of one training step per token: 6 x parameters of the matrix products + 6 L C T (causal attention, half of T)
  double flops_per_token(int64_t tokens) const {
    return 6. * ((double)L * (4. * C * C + 3. * C * H()) + (double)V * C) + 6. * L * C * tokens;
  }
};
