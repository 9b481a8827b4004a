// test_layers.cu: every function of layers/ as plain<double> against test/golden (PyTorch float64, 1e-10 of the largest
// entry of each tensor) and against finite differences (1e-7) at other sizes; and what needs no tolerance: passes,
// padding, results made again, decoding.
#include "test/layers_nonlinear.h"

// ---- embedding

static void embedding(const Golden &golden) {
  check::test("embedding: goldens", [&] {
    const auto shape = golden.shape("embedding.out"), table = golden.shape("embedding.weight");
    const int64_t B = shape[0], T = shape[1], C = shape[2], V = table[0];
    const Vec<int32_t> tokens = golden.tokens("embedding.tokens");
    Vec<double> out(B * T * C), dweight(V * C, 7);
    plain::embedding_forward(out.data(), golden("embedding.weight").data(), tokens.data(), B * T, C);
    plain::embedding_backward(dweight.data(), golden("embedding.dout").data(), tokens.data(), B, T, V, C, {});
    close("out", out, golden("embedding.out"));
    close("dweight", dweight, golden("embedding.dweight"));
    for (int64_t c = 0; c < C; c++)
      that(check::pattern(dweight[(V - 1) * C + c]) == 0, "an absent token's gradient is +0");
  });
  check::test("embedding: finite differences", [] {
    const int64_t B = 2, T = 5, C = 7, V = 4;
    const Vec<int32_t> tokens = random_tokens(B * T, 1, V);
    const Vec<double> dout = random<double>(B * T * C, 3);
    Vec<double> weight = random<double>(V * C, 2), out(B * T * C), dweight(V * C);
    plain::embedding_backward(dweight.data(), dout.data(), tokens.data(), B, T, V, C, {});
    same_as_differences("dweight", weight, dweight, [&] {
      plain::embedding_forward(out.data(), weight.data(), tokens.data(), B * T, C);
      return dot(out, dout);
    });
  });
}

// ---- rmsnorm

struct Norm {
  int64_t B, T, C;
  double eps;
  Vec<double> x, gain, dy, y, rstd, dx, dgain;
  double loss() {
    y.resize(x.size());
    rstd.resize(B * T);
    plain::rmsnorm_forward(y.data(), rstd.data(), x.data(), gain.data(), B * T, C, eps);
    return dot(y, dy);
  }
  void backward() {
    loss();
    dx.resize(x.size());
    dgain.resize(C);
    plain::rmsnorm_backward(dx.data(), dgain.data(), dy.data(), x.data(), rstd.data(), gain.data(), B, T, C, {});
  }
};
static void rmsnorm(const Golden &golden) {
  check::test("rmsnorm: goldens", [&] {
    const auto s = golden.shape("rmsnorm.x");
    Norm f{s[0], s[1], s[2], golden.number("rmsnorm.eps"), {}, {}, {}, {}, {}, {}, {}};
    f.x = golden("rmsnorm.x");
    f.gain = golden("rmsnorm.gain");
    f.dy = golden("rmsnorm.dy");
    f.backward();
    close("y", f.y, golden("rmsnorm.y"));
    close("dx", f.dx, golden("rmsnorm.dx"));
    close("dgain", f.dgain, golden("rmsnorm.dgain"));
  });
  check::test("rmsnorm: finite differences", [] {
    for (int64_t C : {1, 2, 7, 33}) {
      Norm f{2, 5, C, 0.03, random<double>(10 * C, 1), random<double>(C, 2, 0.3, 1), {}, {}, {}, {}, {}};
      f.dy = random<double>(10 * C, 3);
      f.backward();
      same_as_differences("dx", f.x, f.dx, [&] { return f.loss(); });
      same_as_differences("dgain", f.gain, f.dgain, [&] { return f.loss(); });
    }
  });
  check::test("rmsnorm: apply makes the output again, backward works in place, unit rms", [] {
    const int64_t N = 10, C = 33;
    const Vec<float> x = random<float>(N * C, 1, 3), gain = random<float>(C, 2, 0.3, 1), dy = random<float>(N * C, 3);
    Vec<float> y(N * C), rstd(N), again(N * C), dx(N * C), dgain(C), place = dy, dgain2(C);
    plain::rmsnorm_forward(y.data(), rstd.data(), x.data(), gain.data(), N, C, 1e-12);
    plain::rmsnorm_apply(again.data(), x.data(), rstd.data(), gain.data(), N, C);
    same("out", again, y);
    plain::rmsnorm_backward(dx.data(), dgain.data(), dy.data(), x.data(), rstd.data(), gain.data(), 2, 5, C, {});
    plain::rmsnorm_backward(place.data(), dgain2.data(), place.data(), x.data(), rstd.data(), gain.data(), 2, 5, C, {});
    same("dinp in place", place, dx);
    same("dgain in place", dgain2, dgain);
    for (int64_t n = 0; n < N; n++) {
      double square = 0;
      for (int64_t c = 0; c < C; c++) square += std::pow(y[n * C + c] / gain[c], 2) / C;
      that(std::fabs(square - 1) < 1e-5, "row %d has a mean square of %g", (int)n, square);
    }
  });
}

// ---- matmul

struct Linear {
  int64_t B, T, C, OC, ld;
  Vec<double> inp, weight, dout, out, dinp, dweight;  // out and dout: rows ld apart, NaN behind OC
  double loss() {
    out.assign(B * T * ld, NAN);
    plain::matmul_forward(out.data(), ld, inp.data(), weight.data(), B * T, C, OC);
    double sum = 0;
    for (int64_t n = 0; n < B * T; n++)
      for (int64_t o = 0; o < OC; o++) sum += out[n * ld + o] * dout[n * ld + o];
    return sum;
  }
  void backward() {
    loss();
    dinp.resize(B * T * C);
    dweight.resize(OC * C);
    plain::matmul_backward_dinp(dinp.data(), dout.data(), ld, weight.data(), B * T, C, OC);
    plain::matmul_backward_dweight(dweight.data(), dout.data(), ld, inp.data(), B, T, C, OC, {});
  }
};
static void matmul(const Golden &golden) {
  check::test("matmul: goldens", [&] {
    const auto s = golden.shape("matmul.inp"), w = golden.shape("matmul.weight");
    Linear f{s[0], s[1], s[2], w[0], w[0], golden("matmul.inp"), golden("matmul.weight"), {}, {}, {}, {}};
    f.dout = golden("matmul.dout");
    f.backward();
    close("out", f.out, golden("matmul.out"));
    close("dinp", f.dinp, golden("matmul.dinp"));
    close("dweight", f.dweight, golden("matmul.dweight"));
  });
  check::test("matmul: finite differences; padding of rows is neither read nor written", [] {
    for (int64_t C : {1, 7})
      for (int64_t OC : {1, 5, 16}) {
        const int64_t B = 2, T = 5, ld = round_up(OC + 1, 16);
        Linear f{B, T, C, OC, ld, random<double>(B * T * C, 1), random<double>(OC * C, 2), {}, {}, {}, {}};
        f.dout = random<double>(B * T * ld, 3);
        for (int64_t i = 0; i < B * T * ld; i++)
          if (i % ld >= OC) f.dout[i] = NAN;
        f.backward();
        for (int64_t i = 0; i < B * T * ld; i++)
          that((f.out[i] == f.out[i]) == (i % ld < OC), "out[%d] with ld %d", (int)i, (int)ld);
        same_as_differences("dinp", f.inp, f.dinp, [&] { return f.loss(); });
        same_as_differences("dweight", f.weight, f.dweight, [&] { return f.loss(); });
      }
  });
  check::test("matmul: every output is one ascending chain of fma from +0, in float", [] {
    const int64_t B = 3, T = 11, C = 37, OC = 6, N = B * T;
    const Vec<float> x = uneven<float>(N * C, 1), w = uneven<float>(OC * C, 2), dy = uneven<float>(N * OC, 3);
    Vec<float> y(N * OC), dx(N * C), dw(OC * C), want_y(N * OC), want_dx(N * C), want_dw(OC * C);
    plain::matmul_forward(y.data(), OC, x.data(), w.data(), N, C, OC);
    plain::matmul_backward_dinp(dx.data(), dy.data(), OC, w.data(), N, C, OC);
    plain::matmul_backward_dweight(dw.data(), dy.data(), OC, x.data(), 1, N, C, OC, {});  // one sequence: no counter
    for (int64_t k = 0; k < C; k++)
      for (int64_t i = 0; i < N * OC; i++) want_y[i] = fmaf(x[i / OC * C + k], w[i % OC * C + k], want_y[i]);
    for (int64_t k = 0; k < OC; k++)
      for (int64_t i = 0; i < N * C; i++) want_dx[i] = fmaf(dy[i / C * OC + k], w[k * C + i % C], want_dx[i]);
    for (int64_t k = 0; k < N; k++)
      for (int64_t i = 0; i < OC * C; i++) want_dw[i] = fmaf(dy[k * OC + i / C], x[k * C + i % C], want_dw[i]);
    same("out", y, want_y);
    same("dinp", dx, want_dx);
    same("dweight", dw, want_dw);
  });
}

// ---- rope

static void rope(const Golden &golden) {
  check::test("rope: goldens", [&] {
    const auto s = golden.shape("rope.x");
    const int64_t B = s[0], T = s[1], NH = (int64_t)golden.number("rope.NH"), HS = s[2] / 3 / NH;
    Vec<double> table(T * HS), x = golden("rope.x"), dx = golden("rope.dy");
    plain::rope_table(table.data(), T, HS);
    plain::rope_forward(x.data(), table.data(), B, T, NH, HS);
    plain::rope_backward(dx.data(), table.data(), B, T, NH, HS);
    close("y", x, golden("rope.y"));
    close("dx", dx, golden("rope.dx"));
  });
  const int64_t B = 2, T = 5, NH = 3, HS = 4, n = B * T * 3 * NH * HS;
  check::test("rope: finite differences", [=] {
    Vec<double> table(T * HS), x = random<double>(n, 1);
    const Vec<double> dy = random<double>(n, 2);
    Vec<double> dx = dy;
    plain::rope_table(table.data(), T, HS);
    plain::rope_backward(dx.data(), table.data(), B, T, NH, HS);
    same_as_differences("dx", x, dx, [&] {
      Vec<double> y = x;
      plain::rope_forward(y.data(), table.data(), B, T, NH, HS);
      return dot(y, dy);
    });
  });
  check::test("rope: backward is the inverse rotation; v and position 0 stay; the table against libm", [=] {
    Vec<double> table(T * HS), x = random<double>(n, 1), y = x;
    plain::rope_table(table.data(), T, HS);
    plain::rope_forward(y.data(), table.data(), B, T, NH, HS);
    for (int64_t i = 0; i < n; i++) {
      const bool stays = i % (3 * NH * HS) >= 2 * NH * HS || i / (3 * NH * HS) % T == 0;
      const bool stayed = check::pattern(x[i]) == check::pattern(y[i]);
      that(stayed == stays, "element %d should %s", (int)i, stays ? "stay" : "turn");
    }
    plain::rope_backward(y.data(), table.data(), B, T, NH, HS);
    close("there and back", y, x, 1e-15);
    Vec<float> rounded(1000 * 64);
    plain::rope_table(rounded.data(), 1000, 64);
    for (int64_t i = 0; i < 1000 * 64; i += 2) {
      const double angle = (double)(i / 64) * std::pow(10000., -(double)(i % 64) / 64);
      const double dcos = rounded[i] - std::cos(angle), dsin = rounded[i + 1] - std::sin(angle);
      that(std::fabs(dcos) < 1e-7 && std::fabs(dsin) < 1e-7, "angle %g", angle);
    }
  });
  check::test("rope: q.k depends on the distance of the positions alone", [] {
    const int64_t T = 40, HS = 8;
    Vec<double> table(T * HS), qkv(T * 3 * HS), q = random<double>(HS, 1), k = random<double>(HS, 2);
    for (int64_t t = 0; t < T; t++)
      for (int64_t d = 0; d < HS; d++) {
        qkv[t * 3 * HS + d] = q[d];
        qkv[t * 3 * HS + HS + d] = k[d];
      }
    plain::rope_table(table.data(), T, HS);
    plain::rope_forward(qkv.data(), table.data(), 1, T, 1, HS);
    const auto score = [&](int64_t i, int64_t j) {
      return std::inner_product(&qkv[i * 3 * HS], &qkv[i * 3 * HS] + HS, &qkv[j * 3 * HS + HS], 0.);
    };
    for (int64_t i = 3; i < T; i++) that(std::fabs(score(i, i - 3) - score(3, 0)) < 1e-13, "position %d", (int)i);
    that(std::fabs(score(3, 0) - score(0, 3)) > 0.01, "the direction matters");
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  try {
    const Golden golden("layers");
    embedding(golden);
    rmsnorm(golden);
    matmul(golden);
    rope(golden);
    attention(golden);
    attention_masks();
    swiglu(golden);
    residual(golden);
    crossentropy(golden);
    adamw(golden);
    passes<float>("gradients of parameters: counter over sequences and passes, in float");
    passes<double>("gradients of parameters: counter over sequences and passes, in double");
  } catch (const std::exception &e) {
    check::test("goldens can be read", [&] { that(false, "%s", e.what()); });
  }
  return check::report();
}
