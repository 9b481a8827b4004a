// layers_nonlinear.h: half of test_layers.cu: attention, SwiGLU, stream methods, cross-entropy, AdamW, and passes.
#pragma once
#include "test/layers_common.h"

// ---- attention

struct Attention {
  int64_t B, T, NH, HS;
  Vec<double> qkv, dout, out, m, n, dqkv;
  double loss() {
    out.resize(B * T * NH * HS);
    m.resize(B * NH * T);
    n.resize(B * NH * T);
    plain::attention_forward(out.data(), m.data(), n.data(), qkv.data(), B, T, NH, HS);
    return dot(out, dout);
  }
  void backward() {
    loss();
    dqkv.assign(qkv.size(), 7);  // what was there before must not matter
    plain::attention_backward(dqkv.data(), dout.data(), out.data(), m.data(), n.data(), qkv.data(), B, T, NH, HS);
  }
};
static void attention(const Golden &golden) {
  check::test("attention: goldens", [&] {
    const auto s = golden.shape("attention.qkv");
    const int64_t NH = (int64_t)golden.number("attention.NH");
    Attention f{s[0], s[1], NH, s[2] / 3 / NH, golden("attention.qkv"), golden("attention.dout"), {}, {}, {}, {}};
    f.backward();
    close("out", f.out, golden("attention.out"));
    close("dqkv", f.dqkv, golden("attention.dqkv"));
  });
  check::test("attention: finite differences", [] {
    for (int64_t T : {1, 6}) {
      Attention f{2, T, 3, 5, random<double>(2 * T * 45, 1), random<double>(2 * T * 15, 2), {}, {}, {}, {}};
      f.backward();
      same_as_differences("dqkv", f.qkv, f.dqkv, [&] { return f.loss(); });
      for (int64_t d = 0; d < 2 * 15 && T == 1; d++)  // one key: no gradient for q and k
        that(std::fabs(f.dqkv[d]) < 1e-15, "T = 1: dq, dk = %g", f.dqkv[d]);
    }
  });
  check::test("attention: rows do not see later tokens; large scores; m and n give the weights back", [] {
    const int64_t T = 9, NH = 2, HS = 4, C = NH * HS;
    Vec<float> qkv = random<float>(T * 3 * C, 1, 2), out(T * C), m(NH * T), n(NH * T), later = out, m2 = m, n2 = n;
    plain::attention_forward(out.data(), m.data(), n.data(), qkv.data(), 1, T, NH, HS);
    Vec<float> changed = qkv;
    for (int64_t i = 6 * 3 * C; i < T * 3 * C; i++) changed[i] = NAN;
    plain::attention_forward(later.data(), m2.data(), n2.data(), changed.data(), 1, T, NH, HS);
    check::same_bits("rows 0..5", later.data(), out.data(), 6 * C);
    for (int64_t i = 0; i < T * 3 * C; i++) changed[i] = i % (3 * C) < 2 * C ? qkv[i] * 30 : qkv[i];
    plain::attention_forward(later.data(), m2.data(), n2.data(), changed.data(), 1, T, NH, HS);
    for (float x : later) that(std::fabs(x) < 10, "with scores of thousands: %g", x);
    const plain::Head<float> head{qkv.data(), qkv.data() + C, qkv.data() + 2 * C, 3 * C, HS};
    for (int64_t i = 0; i < T; i++) {
      double sum = 0;
      for (int64_t j = 0; j <= i; j++) sum += exact::exp_neg(head.score(i, j) - m[i]) * n[i];
      that(std::fabs(sum - 1) < 1e-6, "row %d: weights sum to %g", (int)i, sum);
    }
  });
}
static void attention_masks() {
  check::test("attention: masked keys are left out, not added as zero: a -0 stays", [] {
    // heads of one channel, q = 0 (equal weights); products that underflow to -0 in row 1, then a masked key of size 1
    const int64_t T = 3;
    const float tiny = 0x1p-149f;
    const Vec<float> qkv = {0, tiny, -tiny, 0, tiny, -tiny, 0, 1, 1};
    Vec<float> out(T), m(T), n(T), dqkv(9);
    plain::attention_forward(out.data(), m.data(), n.data(), qkv.data(), 1, T, 1, 1);
    that(check::pattern(out[1]) == 0x80000000u, "row 1 is %g, want -0", out[1]);
    const Vec<float> other = {0, -tiny, .5f, 0, tiny, -.5f, 0, 1, 1}, dout = {0, .25f, 0};
    plain::attention_forward(out.data(), m.data(), n.data(), other.data(), 1, T, 1, 1);
    plain::attention_backward(dqkv.data(), dout.data(), out.data(), m.data(), n.data(), other.data(), 1, T, 1, 1);
    that(check::pattern(dqkv[3]) == 0x80000000u, "dq of row 1 is %g, want -0", dqkv[3]);
  });
  check::test("attention: decoding step t is row t of the forward, bit for bit", [] {
    for (int64_t HS : {2, 33})
      for (int64_t NH : {1, 3}) {
        const int64_t T = 40, C = NH * HS;
        const Vec<float> qkv = random<float>(T * 3 * C, 5, 2);
        Vec<float> out(T * C), m(NH * T), n(NH * T), k(T * C, NAN), v(T * C, NAN), row(C);
        plain::attention_forward(out.data(), m.data(), n.data(), qkv.data(), 1, T, NH, HS);
        for (int64_t t = 0; t < T; t++) {
          std::copy_n(&qkv[t * 3 * C + C], C, &k[t * C]);
          std::copy_n(&qkv[t * 3 * C + 2 * C], C, &v[t * C]);
          plain::attention_decode(row.data(), &qkv[t * 3 * C], k.data(), v.data(), t, NH, HS);
          const std::string what = format("row %d of %d heads of %d", (int)t, (int)NH, (int)HS);
          check::same_bits(what.c_str(), row.data(), &out[t * C], C);
        }
      }
  });
}

// ---- swiglu

static void swiglu(const Golden &golden) {
  check::test("swiglu: goldens", [&] {
    const auto s = golden.shape("swiglu.out");
    const int64_t N = s[0] * s[1], H = s[2];
    const Vec<double> x = golden("swiglu.gateup"), dy = golden("swiglu.dout");
    Vec<double> out(N * H), again(N * H), dx(N * 2 * H);
    plain::swiglu_forward(out.data(), x.data(), N, H);
    plain::swiglu_backward(dx.data(), again.data(), dy.data(), x.data(), N, H);
    close("out", out, golden("swiglu.out"));
    close("dgateup", dx, golden("swiglu.dgateup"));
    same("out made again", again, out);
  });
  check::test("swiglu: finite differences, in place", [] {
    const int64_t N = 10, H = 7;
    Vec<double> x = random<double>(N * 2 * H, 1, 2), out(N * H), dx = x;
    const Vec<double> dy = random<double>(N * H, 2);
    Vec<double> place = dy;
    plain::swiglu_backward(dx.data(), place.data(), place.data(), dx.data(), N, H);
    same_as_differences("dgateup", x, dx, [&] {
      plain::swiglu_forward(out.data(), x.data(), N, H);
      return dot(out, dy);
    });
    plain::swiglu_forward(out.data(), x.data(), N, H);
    same("out made again in place", place, out);
  });
}

// ---- residual: the stream methods

// x' (B,T,C) of one method; scale is a (1) or l (C)
static void stream_forward(const std::string &method, Vec<double> &y, const Vec<double> &x, const Vec<double> &u,
                           const Vec<double> &scale, int64_t C) {
  const int64_t n = (int64_t)x.size();
  y.resize(n);
  if (method == "prenorm") plain::residual_forward(y.data(), x.data(), u.data(), n);
  if (method == "rezero") plain::rezero_forward(y.data(), x.data(), u.data(), scale.data(), n / C, C);
  if (method == "layerscale") plain::layerscale_forward(y.data(), x.data(), u.data(), scale.data(), n / C, C);
}
static void stream_backward(const std::string &method, Vec<double> &du, Vec<double> &dscale, const Vec<double> &dy,
                            const Vec<double> &u, const Vec<double> &scale, int64_t B, int64_t T, int64_t C) {
  du.assign(dy.begin(), dy.end());
  dscale.assign(scale.size(), 7);  // prenorm: du = dx'
  double *ds = dscale.data();
  if (method == "rezero") plain::rezero_backward(du.data(), ds, dy.data(), u.data(), scale.data(), B, T, C, {});
  if (method == "layerscale") plain::layerscale_backward(du.data(), ds, dy.data(), u.data(), scale.data(), B, T, C, {});
}
static void residual(const Golden &golden) {
  check::test("rezero and layerscale: goldens", [&] {
    for (const std::string method : {"rezero", "layerscale"}) {
      const std::string name = method + ".", s = method == "rezero" ? "a" : "l";
      const auto shape = golden.shape(name + "x");
      const Vec<double> x = golden(name + "x"), u = golden(name + "u"), scale = golden(name + s);
      const Vec<double> dy = golden(name + "dy");
      Vec<double> y, du, dscale;
      stream_forward(method, y, x, u, scale, shape[2]);
      stream_backward(method, du, dscale, dy, u, scale, shape[0], shape[1], shape[2]);
      close((name + "y").c_str(), y, golden(name + "y"));
      close((name + "du").c_str(), du, golden(name + "du"));
      close((name + "dscale").c_str(), dscale, golden(name + "d" + s));
      close((name + "dx").c_str(), dy, golden(name + "dx"));
    }
  });
  check::test("prenorm, rezero and layerscale: finite differences", [] {
    const int64_t B = 2, T = 5, C = 7, n = B * T * C;
    for (const std::string method : {"prenorm", "rezero", "layerscale"}) {
      Vec<double> x = random<double>(n, 1), u = random<double>(n, 2), y, du, dscale;
      Vec<double> scale = random<double>(method == "rezero" ? 1 : C, 3);
      const Vec<double> dy = random<double>(n, 4);
      const auto loss = [&] {
        stream_forward(method, y, x, u, scale, C);
        return dot(y, dy);
      };
      stream_backward(method, du, dscale, dy, u, scale, B, T, C);
      same_as_differences((method + " dx").c_str(), x, dy, loss);
      same_as_differences((method + " du").c_str(), u, du, loss);
      if (method != "prenorm") same_as_differences((method + " dscale").c_str(), scale, dscale, loss);
    }
  });
  check::test("rezero with a = 0 and layerscale with l = 1: the stream itself, and PreNorm", [] {
    const int64_t n = 70;
    const Vec<float> x = random<float>(n, 1), u = random<float>(n, 2), zero(1, 0), ones(7, 1);
    Vec<float> y(n), want(n);
    plain::rezero_forward(y.data(), x.data(), u.data(), zero.data(), 10, 7);
    same("rezero", y, x);
    plain::layerscale_forward(y.data(), x.data(), u.data(), ones.data(), 10, 7);
    plain::residual_forward(want.data(), x.data(), u.data(), n);
    same("layerscale", y, want);
  });
}

// ---- cross-entropy

static void crossentropy(const Golden &golden) {
  check::test("cross-entropy: goldens", [&] {
    const auto s = golden.shape("crossentropy.logits");
    const int64_t N = s[0] * s[1], V = s[2];
    const Vec<int32_t> targets = golden.tokens("crossentropy.targets");
    Vec<double> logits = golden("crossentropy.logits"), dlogits = logits, losses(N), again(N);
    plain::crossentropy_forward(losses.data(), logits.data(), V, targets.data(), N, V);
    plain::crossentropy_backward(again.data(), dlogits.data(), V, targets.data(), N, V, N);
    close("losses", losses, golden("crossentropy.losses"));
    close("dlogits", dlogits, golden("crossentropy.dlogits"));
    same("losses of backward", again, losses);
  });
  check::test("cross-entropy: finite differences, V = 1, 2, 27; rows sum to zero; padding stays", [] {
    const int64_t N = 10, ld = 32, count = 23;
    for (int64_t V : {1, 2, 27}) {
      const Vec<int32_t> targets = random_tokens(N, 4, V);
      Vec<double> z(N * V), losses(N), padded(N * ld, 12345);
      for (int64_t i = 0; i < N * V; i++) z[i] = padded[i / V * ld + i % V] = 2 * rng::normal(9, i);
      plain::crossentropy_backward(losses.data(), padded.data(), ld, targets.data(), N, V, count);
      Vec<double> dz(N * V);
      for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int64_t j = 0; j < V; j++) sum += dz[n * V + j] = padded[n * ld + j];
        that(std::fabs(sum) < 1e-16, "row %d sums to %g", (int)n, sum);
        for (int64_t j = V; j < ld; j++) that(padded[n * ld + j] == 12345, "padding of row %d", (int)n);
      }
      same_as_differences(format("dlogits, V = %d", (int)V).c_str(), z, dz, [&] {
        Vec<double> copy = z, l(N);
        plain::crossentropy_forward(l.data(), copy.data(), V, targets.data(), N, V);
        return std::accumulate(l.begin(), l.end(), 0.) / count;
      });
      for (int64_t n = 0; n < N && V == 1; n++)
        that(check::pattern(losses[n]) == 0 && dz[n] == 0, "one symbol: loss %g, gradient %g", losses[n], dz[n]);
    }
  });
  check::test("cross-entropy in float: large logits, losses of backward = losses of forward, padding stays", [] {
    const int64_t N = 50, ld = 48;
    for (int64_t V : {1, 2, 27, 33}) {
      const Vec<int32_t> targets = random_tokens(N, 4, V);
      Vec<float> a = random<float>(N * ld, 8, 100), b, l1(N), l2(N);
      for (int64_t i = 0; i < N * ld; i++) {
        if (i / ld % 3 == 0) a[i] = -1e4f - a[i];
        if (i % ld >= V) a[i] = NAN;
      }
      b = a;
      plain::crossentropy_forward(l1.data(), a.data(), ld, targets.data(), N, V);
      plain::crossentropy_backward(l2.data(), b.data(), ld, targets.data(), N, V, N);
      same("losses", l2, l1);
      for (int64_t n = 0; n < N; n++) that(l1[n] >= 0 && l1[n] < 1000, "loss %g", l1[n]);
      for (int64_t i = 0; i < N * ld; i++)
        that((a[i] != a[i]) == (i % ld >= V) && (b[i] != b[i]) == (i % ld >= V), "element %d, V = %d", (int)i, (int)V);
    }
  });
}

// ---- AdamW

static void adamw(const Golden &golden) {
  check::test("AdamW: goldens; the scale of clipping; nothing moves zeros", [&] {
    const auto number = [&](const char *key) { return golden.number(std::string("adamw.") + key); };
    const double step = number("step") + 1, b1 = number("beta1"), b2 = number("beta2");
    AdamW h{number("lr"), b1, b2, number("adam-eps"), number("weight-decay"), 0, 0, 1};
    h.correction1 = 1 - std::pow(b1, step);
    h.correction2 = 1 - std::pow(b2, step);
    Vec<double> p = golden("adamw.p"), g = golden("adamw.g"), m = golden("adamw.m"), v = golden("adamw.v");
    const int64_t n = (int64_t)p.size();
    plain::adamw_update(p.data(), g.data(), m.data(), v.data(), n, h);
    close("p", p, golden("adamw.p1"));
    close("m", m, golden("adamw.m1"));
    close("v", v, golden("adamw.v1"));
    Vec<double> p2 = golden("adamw.p"), m2 = golden("adamw.m"), v2 = golden("adamw.v");
    for (double &x : g) x = x * 4;
    h.scale = 0.25;
    plain::adamw_update(p2.data(), g.data(), m2.data(), v2.data(), n, h);
    same("p with scale 1/4 of 4 g", p2, p);
    same("m", m2, m);
    same("v", v2, v);
    Vec<double> zero(n), pz(n), mz(n), vz(n);
    plain::adamw_update(pz.data(), zero.data(), mz.data(), vz.data(), n, h);
    same("zeros", pz, zero);
  });
  check::test("AdamW: the formula written a second time, with an eps that shows", [] {
    const int64_t n = 20;
    const Vec<double> p = random<double>(n, 1), g = random<double>(n, 2), m = random<double>(n, 3, 0.1);
    Vec<double> v = random<double>(n, 4, 0.1), want(n);
    for (double &x : v) x = x * x;
    const double lr = 0.3, b1 = 0.8, b2 = 0.7, eps = 0.4, decay = 0.2, c1 = 0.6, c2 = 0.35, scale = 0.9;
    for (int64_t i = 0; i < n; i++) {
      const double G = g[i] * scale, m1 = b1 * m[i] + (1 - b1) * G, v1 = b2 * v[i] + (1 - b2) * G * G;
      want[i] = p[i] - lr * decay * p[i] - lr * (m1 / c1) / (std::sqrt(v1 / c2) + eps);
    }
    Vec<double> got = p, m1 = m, v1 = v;
    plain::adamw_update(got.data(), g.data(), m1.data(), v1.data(), n, {lr, b1, b2, eps, decay, c1, c2, scale});
    close("p", got, want, 1e-15);
  });
  check::test("sum of squares: chunks of 65,536, 32 lanes, ascending, in double", [] {
    for (int64_t n : {0, 1, 31, 33, 65535, 65536, 65537, 2 * 65536 + 77}) {
      const Vec<float> g = uneven<float>(n, 3);
      double want = 0;
      for (int64_t first = 0; first < n; first += 65536) {
        double lane[32] = {};
        for (int64_t i = first; i < std::min(n, first + 65536); i++)
          lane[i % 32] = std::fma((double)g[i], (double)g[i], lane[i % 32]);
        for (int step : {16, 8, 4, 2, 1})
          for (int i = 0; i < step; i++) lane[i] += lane[i + step];
        want += lane[0];
      }
      const double got = plain::sum_of_squares(g.data(), n);
      check::same_bits(format("n = %d", (int)n).c_str(), &got, &want, 1);
    }
  });
}

// ---- the counter in every gradient that sums over sequences

template <class real> void passes(const char *name) {
  check::test(name, [] {
    const int64_t LARGEST = 9, T = 4, C = 5, OC = 3, V = 4, N = LARGEST * T;
    const Vec<real> x = uneven<real>(N * C, 1), dy = uneven<real>(N * C, 2), dout = uneven<real>(N * OC, 3);
    const Vec<real> gain = random<real>(C, 4);
    const Vec<int32_t> tokens = random_tokens(N, 5, V - 1);
    const Vec<real> rstd = random<real>(N, 6, 0.1, 1);
    Vec<real> d(N * C);
    using exact::Carry;
    const auto at = [&](const Vec<real> &v, int64_t b) { return v.data() + b * (int64_t)v.size() / LARGEST; };
    sums_over_sequences<real>("embedding", V * C, [&](real *out, int64_t b, int64_t B, const Carry &carry) {
      plain::embedding_backward(out, at(dy, b), tokens.data() + b * T, B, T, V, C, carry);
    });
    sums_over_sequences<real>("rmsnorm gain", C, [&](real *out, int64_t b, int64_t B, const Carry &carry) {
      plain::rmsnorm_backward(d.data(), out, at(dy, b), at(x, b), at(rstd, b), gain.data(), B, T, C, carry);
    });
    sums_over_sequences<real>("matmul weight", OC * C, [&](real *out, int64_t b, int64_t B, const Carry &carry) {
      plain::matmul_backward_dweight(out, at(dout, b), OC, at(x, b), B, T, C, OC, carry);
    });
    sums_over_sequences<real>("rezero a", 1, [&](real *out, int64_t b, int64_t B, const Carry &carry) {
      plain::rezero_backward(d.data(), out, at(dy, b), at(x, b), gain.data(), B, T, C, carry);
    });
    sums_over_sequences<real>("layerscale l", C, [&](real *out, int64_t b, int64_t B, const Carry &carry) {
      plain::layerscale_backward(d.data(), out, at(dy, b), at(x, b), gain.data(), B, T, C, carry);
    });
  });
}
