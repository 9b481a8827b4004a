// routers_edges.h: numerical edges in float and double (nothing infinite where the mathematics has nothing infinite),
// and bits in float: passes, shares of ranks, decoding, memory carved again, for every method.
#pragma once
#include "test/routers_common.h"

namespace routers {

// ---- edges of whole models

template <class real> void finite_model(const std::string &what, GPT<real> &model, const Batch &batch) {
  const Config &c = model.c;
  const double loss = gradients(model, batch);
  all_finite((what + ": loss").c_str(), &loss, 1);
  for (int64_t j = 0; j < c.M(); j++)
    all_finite(what + ": h of read " + read_name(c, j), model.router->input(j), batch.B * c.T * c.C);
  all_finite(what + ": output", model.router->output(), batch.B * c.T * c.C);
  for (const Tensor &t : model.table.rows) all_finite(what + ": d" + t.name, model.grads.data + t.offset, t.size());
  const double norm = model.gradient_norm();
  all_finite((what + ": gradient norm").c_str(), &norm, 1);
}
template <class real> void updates_of_zero(const Method &m, Start start) {
  const Config c = configure(m, 3, 4);
  const Batch batch(2, c.T, c.V, 31);
  GPT<real> model(c, Sizes{2, 1, true});
  scatter(model, start);
  for (const Tensor &t : model.table.rows)
    if (t.name.find("proj") != std::string::npos || t.name.find("down") != std::string::npos)
      std::fill_n(model.params.data + t.offset, t.size(), (real)0);
  finite_model(label(m, c) + ", updates of zero", model, batch);
  for (int64_t j = 0; j < c.M(); j++)
    for (int64_t i = 0; i < 2 * c.T * c.C; i++) that(mixer(model).u[j][i] == 0, "update %d is zero", (int)j);
}
template <class real> void extreme_beta(const Method &m, double value) {
  const Config c = configure(m, 3, 4);
  const int64_t N = 2 * c.T;
  const Batch batch(2, c.T, c.V, 32);
  GPT<real> model(c, Sizes{2, 1, true});
  scatter(model, Start::random);
  for (const Tensor &t : model.table.rows)
    if (t.name.find(".beta") != std::string::npos) std::fill_n(model.params.data + t.offset, t.size(), (real)value);
  finite_model(format("%s, beta %g", label(m, c).c_str(), value), model, batch);
  for (int64_t j = 1; j < c.M(); j++) {  // all of the weight, or nothing, is in the details
    const std::vector<real> p = weights(mixer(model), j, N);
    const int64_t n = (int64_t)p.size() / N;
    for (int64_t i = 0; i < N * n; i++) {
      const bool detail = i % n && (i % n - 1) % (1 + c.detail_count());
      if (detail == (value < 0)) that(p[i] == 0, "read %d: p of source %d is %g", (int)j, (int)(i % n), (double)p[i]);
    }
  }
}
template <class real> void deep() {
  Config c = configure(method("attnres"), 200, 8);
  c.T = 2;
  const Batch batch(1, c.T, c.V, 33);
  GPT<real> model(c, Sizes{1, 1, true});
  for (bool scattered : {true, false}) {
    scattered ? scatter(model, Start::random) : model.initialize(1);
    finite_model(format("200 layers, %s", scattered ? "random" : "initialized"), model, batch);
    const std::vector<real> p = weights(mixer(model), c.M(), c.T);
    that((int64_t)p.size() == 401 * c.T, "401 sources in the final read");
    double sum = 0;
    for (real x : p) sum += (double)x;
    that(std::fabs(sum - (double)c.T) < 1e-5, "weights add up to %.9g", sum / (double)c.T);
  }
}
template <class real> void models_at_edges(const char *type) {
  check::test(format("edges, %s: updates of exactly zero, every method", type).c_str(), [] {
    for (const Method &m : methods())
      for (Start start : {Start::zero, Start::random}) updates_of_zero<real>(m, start);
  });
  check::test(format("edges, %s: beta = -1e4 and +1e4", type).c_str(), [] {
    for (const Method &m : methods())
      for (double value : {-1e4, 1e4})
        if (configure(m, 3, 4).detail_count() && !m.fixed_beta) extreme_beta<real>(m, value);
  });
  check::test(format("edges, %s: 200 layers of attnres, 401 sources", type).c_str(), [] { deep<real>(); });
  check::test(format("edges, %s: width 36", type).c_str(), [] {
    for (const Method &m : methods()) {
      Config c = configure(m, 2, 2);
      c.C = 36;
      c.NH = 3;
      GPT<real> model(c, Sizes{2, 1, true});
      scatter(model, Start::random, 0.1);
      finite_model(label(m, c) + ", C = 36", model, Batch(2, c.T, c.V, 34));
    }
  });
}

// ---- edges of one group of reads

// e as finished source, an open block of the updates u; one read; everything forward and backward
template <class real> struct OneBlock {
  int64_t C, m, N = 3;
  std::vector<std::vector<real>> u;
  std::vector<std::vector<real>> G;
  std::vector<real> e, r, z, mx1, l1, mx, inv, o, w, bias, h, saved, D, dh, dw, dbias, ds, coef;
  OneBlock(int64_t C, int64_t m)
      : C(C),
        m(m),
        u(m, std::vector<real>(N * C)),
        G(3, std::vector<real>(N * C)),
        e(N * C),
        r(N),
        z(N * GROUP),
        mx1(N * GROUP),
        l1(N * GROUP),
        mx(N * GROUP),
        inv(N * GROUP),
        o(GROUP * N * C),
        w(GROUP * C),
        bias(GROUP * 3),
        h(N * C),
        saved(N * 9),
        D(N * GROUP),
        dh(GROUP * N * C),
        dw(GROUP * C),
        dbias(GROUP * 2),
        ds(N * C) {
    uint64_t i = 0;
    for (auto *v : {&e, &w, &dh})
      for (real &x : *v) x = (real)rng::normal(7, i++);
    for (auto &v : u)
      for (real &x : v) x = (real)rng::normal(7, i++);
    for (int d = 0; d < 3; d++)
      for (int64_t k = 0; k < m; k++) coef.push_back((real)sign(d, k));
  }
  // Of the sum, phase, split
  double sign(int d, int64_t position) const {
    if (d == 1) return position % 2 ? -1 : 1;
    return d == 0 || 2 * position < m ? 1 : -1;
  }
  MixGroup<real> group() {
    MixGroup<real> g;
    g.reads = 1;
    g.details = 2;
    g.w = w.data();
    g.bias = bias.data();
    g.stride = N * C;
    g.sources = {{e.data(), r.data(), ds.data(), 0}};
    g.z = z.data();
    g.mx1 = mx1.data();
    g.l1 = l1.data();
    g.mx = mx.data();
    g.inv = inv.data();
    g.o = o.data();
    g.dh = dh.data();
    g.D = D.data();
    return g;
  }
  // Reads with the first `updates` of the block open (0: e alone); returns the scales c of token 0
  std::vector<real> run(const char *what, int updates, double wav_eps = 1e-6) {
    const MixGroup<real> g = group();
    std::vector<const real *> rows;
    for (auto &v : u) rows.push_back(v.data());
    const BlockPartials<real> open{updates, rows.data(), 3, coef.data(), m, 2, wav_eps, 1e-12};
    device::source_scale(r.data(), e.data(), N, C, 1e-12);
    device::mix_phase1(g, N, C);
    const MixRead<real> read{g, 0, h.data(), saved.data()};
    device::mix_phase2(read, open, N, C);
    real *to[] = {G[0].data(), G[1].data(), G[2].data()};
    device::mix_phase2_backward({to, dw.data(), dbias.data()}, read, open, 1, N, C);
    device::mix_phase1_backward(dw.data(), dbias.data(), g, 1, N, C);
    all_finite(format("%s: h", what), h.data(), N * C);
    all_finite(format("%s: ds", what), ds.data(), N * C);
    all_finite(format("%s: dw", what), dw.data(), C);
    all_finite(format("%s: dbeta", what), dbias.data(), 2);
    for (auto &v : G) all_finite(format("%s: G", what), v.data(), N * C);
    return {saved[2 * N], saved[5 * N], saved[8 * N]};
  }
};
template <class real> void blocks_at_edges(const char *type) {
  check::test(format("edges, %s: one source: h is the source, ds is dh, dq is exactly zero", type).c_str(), [] {
    for (int64_t C : {1, 7, 36, 1056}) {
      OneBlock<real> x(C, 4);
      x.run("one source", 0);
      check::same_bits("h", x.h.data(), x.e.data(), x.N * C);
      check::same_bits("ds", x.ds.data(), x.dh.data(), x.N * C);
      for (real dw : x.dw) that(dw == 0, "dw is %g", (double)dw);
      for (real p : x.inv) that(p == 1 || p == 0, "1/sum is %g", (double)p);
    }
  });
  check::test(format("edges, %s: D = 0 (equal halves), C = 0, all zero, and only one of them", type).c_str(), [] {
    for (int64_t C : {1, 8, 36, 1056}) {
      OneBlock<real> halves(C, 4), none(C, 2), zero(C, 4), scarcely(C, 2);
      halves.u[2] = halves.u[0];
      halves.u[3] = halves.u[1];
      const real split = halves.run("equal halves", 4)[2];
      that(split == 2, "c of a detail of zero is rho, not %g", (double)split);
      for (int64_t i = 0; i < none.N * C; i++) none.u[1][i] = -none.u[0][i];
      const std::vector<real> c = none.run("a sum of zero", 2);
      that(c[0] == 1 && c[1] == 0 && c[2] == 0, "c of details of a sum of zero: %g", (double)c[1]);
      for (auto &u : zero.u) std::fill(u.begin(), u.end(), (real)0);
      zero.run("all zero", 4);
      zero.run("all zero, one update", 1);
      for (int64_t i = 0; i < scarcely.N * C; i++) scarcely.u[1][i] = scarcely.u[0][i] * (real)(1 + 1e-6);
      scarcely.run("nearly equal halves", 2);
      scarcely.run("nearly equal halves, tiny eps", 2, 1e-30);
    }
  });
}

// ---- the split of a batch never shows

inline Config bits_config(const Method &m) {
  Config c = configure(m, 3, 4);
  c.C = 12;
  c.NH = 3;
  c.T = 5;
  c.V = 13;
  return c;
}
inline void same_in_passes(const Method &m, int64_t B) {
  const Config c = bits_config(m);
  const Batch batch(B, c.T, c.V, 40 + B);
  GPT<float> whole(c, Sizes{B, 1, true});
  scatter(whole, Start::random);
  const double want = gradients(whole, batch);
  for (int64_t pass : {8, 4, 2, 1}) {
    GPT<float> model(c, Sizes{pass, divide_up(B, pass), true});
    scatter(model, Start::random);
    for (int64_t i = 0; i < model.grads.n; i++) model.grads[i] = NAN;  // what an earlier step left must not matter
    std::fill(model.memory.data, model.a.rope, NAN);                   // nor what memory held; the rope table is last
    const double loss = gradients(model, batch);
    const std::string what = format("%s: B = %d in passes of %d", m.name, (int)B, (int)pass);
    check::same_bits((what + ": loss").c_str(), &loss, &want, 1);
    same_tensors(what, whole.table, model.grads.data, whole.grads.data);
  }
}
// The shares of the ranks, joined nearest partner first; finish_gradients once, on the sum
inline void same_in_shares(const Method &m, int64_t ranks) {
  const Config c = bits_config(m);
  const int64_t B = 8, share = B / ranks;
  const Batch batch(B, c.T, c.V, 50);
  GPT<float> whole(c, Sizes{B, 1, true}), model(c, Sizes{share, 1, true});
  scatter(whole, Start::random);
  scatter(model, Start::random);
  gradients(whole, batch);
  const int64_t n = model.table.floats;
  std::vector<std::vector<float>> sum(ranks);
  for (int64_t r = 0; r < ranks; r++) {
    model.gradients(&batch.inputs[r * share * c.T], &batch.targets[r * share * c.T], share, c.T, B * c.T);
    sum[r].assign(model.grads.data, model.grads.data + n);
  }
  for (int64_t partner = 1; partner < ranks; partner *= 2)
    for (int64_t r = 0; r < ranks; r += 2 * partner)
      for (int64_t i = 0; i < n; i++) sum[r][i] = sum[r][i] + sum[r ^ partner][i];
  std::copy_n(sum[0].data(), n, model.grads.data);
  model.finish_gradients();
  same_tensors(format("%s: %d ranks", m.name, (int)ranks), whole.table, model.grads.data, whole.grads.data);
}
inline void same_decoded(const Method &m) {
  const Config c = bits_config(m);
  GPT<float> model(c, Sizes{1, 1, false}), decoding(c, Sizes{1, 1, false});
  scatter(model, Start::random);
  scatter(decoding, Start::random);
  const Batch batch(1, c.T, c.V, 60);
  forward(model, batch);
  Decoder<float> decoder(decoding);
  for (int round = 0; round < 2; round++, decoder.t = 0)  // a second text in the same cache
    for (int64_t t = 0; t < c.T; t++)
      check::same_bits(format("%s: position %d", m.name, (int)t).c_str(), decoder.step(batch.inputs[t]),
                       model.a.logits + t * c.ld_logits(), c.V);
  const std::vector<float> want = logits(model, c.T);
  for (int64_t T = 1; T < c.T; T++) {  // a shorter window in the same memory
    model.forward(batch.inputs.data(), 1, T);
    check::same_bits(format("%s: %d tokens", m.name, (int)T).c_str(), logits(model, T).data(), want.data(), T * c.V);
  }
  for (int64_t B : {3, 2}) {  // fewer sequences than memory is for
    GPT<float> larger(c, Sizes{4, 1, true}), fits(c, Sizes{B, 1, true});
    scatter(larger, Start::random);
    scatter(fits, Start::random);
    const Batch some(B, c.T, c.V, 61);
    const double a = gradients(larger, some), b = gradients(fits, some);
    check::same_bits("loss", &a, &b, 1);
    same_tensors(format("%s: %d of 4", m.name, (int)B), fits.table, larger.grads.data, fits.grads.data);
  }
}
// A router that was used is carved again, into memory full of NaN: nothing of the old memory is taken for granted
inline void same_carved_again(const Method &m) {
  const Config c = bits_config(m);
  const Batch batch(2, c.T, c.V, 62);
  GPT<float> fresh(c, Sizes{2, 1, true}), used(c, Sizes{2, 1, true});
  scatter(fresh, Start::random);
  scatter(used, Start::random);
  const double want = gradients(fresh, batch);
  gradients(used, batch);
  Arena<float> count;
  used.router->carve(count, 2 * c.T, true);
  std::fill_n(used.memory.data, count.used, NAN);
  Arena<float> arena{used.memory.data, 0};
  used.router->carve(arena, 2 * c.T, true);
  const double again = gradients(used, batch);
  check::same_bits(format("%s: loss", m.name).c_str(), &again, &want, 1);
  same_tensors(format("%s: carved again", m.name), fresh.table, used.grads.data, fresh.grads.data);
}
inline void bits_of(const Method &m) {
  check::test(format("bits: %s: passes, shares of ranks, decoding, carved again", m.name).c_str(), [&] {
    same_carved_again(m);
    for (int64_t B : {8, 7}) same_in_passes(m, B);
    for (int64_t ranks : {2, 4}) same_in_shares(m, ranks);
    same_decoded(m);
  });
}

// Under --final-read c nobody reads the details of the last block: their coefficients have gradients of exactly +0
inline void unread_coefficients() {
  check::test("edges: the last block's learned coefficients under --final-read c: +0", [] {
    for (bool all : {false, true}) {
      Config c = configure(method("random,duplicate,learned"), 3, 4);
      c.final_all = all;
      GPT<float> model(c, Sizes{2, 2, true});
      scatter(model, Start::random);
      gradients(model, Batch(4, c.T, c.V, 35));
      const float *last = row(model, "router.block.1.coef", model.grads.data);
      const float *first = row(model, "router.block.0.coef", model.grads.data);
      for (int k = 0; k < 4; k++) that(first[k] != 0, "block 0, %d: %g", k, (double)first[k]);
      // its first update is read by sublayer 5 as a partial; what is behind the last update is the final read alone
      that((check::pattern(last[1]) == 0) == !all, "block 1, 1: %g", (double)last[1]);
    }
  });
}

inline void edges_and_bits() {
  unread_coefficients();
  models_at_edges<float>("float");
  models_at_edges<double>("double");
  blocks_at_edges<float>("float");
  blocks_at_edges<double>("double");
  for (const Method &m : methods()) bits_of(m);
}

}  // namespace routers
