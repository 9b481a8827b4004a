// test_mixer_bits.cu: the depth mixer and the blocks of device:: (cpu or gpu, by the include path) against plain<float>,
// 0 differing bits: a group of reads goes forward and backward, function by function; each starts from what plain:: left.
// All arrays of a case lie in one memory between guards, and all of it is compared: what a function must not touch, it
// must not touch. The lists of arrays are the host's; where the device is a GPU it has a copy of the memory, and the host
// reads none of it. Lanes of the group that are no reads (of z, mx, l, D, o) hold finite numbers and may be overwritten.
// 1, 2 and 3 threads. Argument: emulated, quick, essential (default) or all, which is the same.
#include "backend.cuh"

#include "../wav_router.cuh"
#include "bits_check.h"

using bits::Kind;
using bits::Mode;

// Both builds under one name
struct Plain {
  template <class... A> static void scale(A... a) { plain::source_scale(a...); }
  template <class... A> static void query(A... a) { plain::query_forward(a...); }
  template <class... A> static void query_backward(A... a) { plain::query_backward(a...); }
  template <class... A> static void phase1(const A &...a) { plain::mix_phase1(a...); }
  template <class... A> static void phase1_backward(const A &...a) { plain::mix_phase1_backward(a...); }
  template <class... A> static void phase2(const A &...a) { plain::mix_phase2(a...); }
  template <class... A> static void phase2_backward(const A &...a) { plain::mix_phase2_backward(a...); }
  template <class... A> static void close(const A &...a) { plain::close_block(a...); }
  template <class... A> static void close_backward(const A &...a) { plain::close_block_backward(a...); }
  template <class... A> static void update_backward(const A &...a) { plain::block_update_backward(a...); }
  template <class... A> static void read_backward(const A &...a) { plain::block_read_backward(a...); }
};
struct Fast {
  template <class... A> static void scale(A... a) { device::source_scale(a...); }
  template <class... A> static void query(A... a) { device::query_forward(a...); }
  template <class... A> static void query_backward(A... a) { device::query_backward(a...); }
  template <class... A> static void phase1(const A &...a) { device::mix_phase1(a...); }
  template <class... A> static void phase1_backward(const A &...a) { device::mix_phase1_backward(a...); }
  template <class... A> static void phase2(const A &...a) { device::mix_phase2(a...); }
  template <class... A> static void phase2_backward(const A &...a) { device::mix_phase2_backward(a...); }
  template <class... A> static void close(const A &...a) { device::close_block(a...); }
  template <class... A> static void close_backward(const A &...a) { device::close_block_backward(a...); }
  template <class... A> static void update_backward(const A &...a) { device::block_update_backward(a...); }
  template <class... A> static void read_backward(const A &...a) { device::block_read_backward(a...); }
};

// (N,GROUP) of a group
constexpr float *MixGroup<float>::*SCALARS[] = {&MixGroup<float>::mx1, &MixGroup<float>::l1, &MixGroup<float>::mx,
                                                &MixGroup<float>::inv, &MixGroup<float>::D};
constexpr int MAX_BASES = 6;  // a sum and five kinds of details

struct Case {
  int64_t C, B, T, n;  // n finished sources
  int K;
  FirstLane first;
  bool blocks;  // partials: the sums of a block, or the updates of the group
  int bases, position, m, learned;
  Kind kind;
  uint64_t seed;
  int64_t N() const { return B * T; }
  int details() const { return blocks ? bases - 1 : 0; }
  std::string name() const {
    return format("C=%d B=%d T=%d, %d sources, %d reads, lane 0 %d, %s %d of %d, %d bases, learned %d, %s, seed %d",
                  (int)C, (int)B, (int)T, (int)n, K, (int)first, blocks ? "block" : "updates", position, m, bases,
                  learned, bits::name_of(kind), (int)seed);
  }
};

// The arrays of one memory, of the host or of the device, between guards: lists of addresses
struct Arrays {
  MixGroup<float> g;
  std::vector<Source<float>> updates;  // GROUP
  std::vector<const float *> u;        // m
  float *r, *w, *q, *gain, *h, *saved, *dw, *dbias, *coef, *dq, *dgain, *du, *dcoef;
  float *rows[MAX_BASES], *row_r[MAX_BASES], *row_c[MAX_BASES], *G[MAX_BASES], *closing[MAX_BASES];
  int64_t used = 0;

  Arrays(const Case &c, float *base) {
    const auto take = [&](int64_t n) {
      float *p = base ? base + used + bits::GUARD : nullptr;
      used += n + bits::GUARD;
      return p;
    };
    const int64_t N = c.N(), C = c.C, D = c.details();
    bits::Random random{c.seed};
    r = take(c.n * N);
    for (int64_t i = 0; i < c.n; i++) {
      const int detail = i && D ? (int)(random.next() % (uint64_t)(D + 1)) : 0;
      g.sources.push_back({take(N * C), r + i * N, take(N * C), detail, random.next() % 3 == 0});
    }
    for (int i = 0; i < GROUP; i++) updates.push_back({take(N * C), take(N), take(N * C), 0});
    for (int k = 0; k < c.m; k++) u.push_back(take(N * C));
    g.reads = c.K;
    g.first = c.first;
    g.details = (int)D;
    g.stride = N * C + (int64_t)(c.seed % 3) * 8;
    g.w = w = take(GROUP * C);
    g.bias = take(GROUP * (1 + D));
    g.o = take(GROUP * g.stride);
    g.z = take(N * c.n * GROUP);
    g.mx1 = take(N * GROUP);
    g.l1 = take(N * GROUP);
    g.mx = take(N * GROUP);
    g.inv = take(N * GROUP);
    g.dh = take(GROUP * g.stride);
    g.D = take(N * GROUP);
    q = take(C);
    gain = take(C);
    dq = take(C);
    dgain = take(C);
    h = take(GROUP * N * C);
    saved = take(GROUP * N * MAX_PARTIALS * 3);
    dw = take(GROUP * c.B * C);
    dbias = take(GROUP * c.B * D);
    coef = take(c.bases * c.m);
    du = take(N * C);
    dcoef = take(c.B);
    for (int d = 0; d < MAX_BASES; d++) {
      rows[d] = take(N * C);
      row_r[d] = take(N);
      row_c[d] = take(N);
      G[d] = take(N * C);
      closing[d] = take(N * C);
    }
    used += bits::GUARD;
  }
  MixRead<float> read(const Case &c, int k) {
    return {g, k, h + k * c.N() * c.C, saved + k * c.N() * MAX_PARTIALS * 3};
  }
  ReadGradients<float> gradients(const Case &c, int k, float *const *to) {
    return {to, dw + k * c.B * c.C, dbias + k * c.B * c.details()};
  }
  UpdateGradient<float> update(const Case &c) { return {du, dcoef, c.learned}; }
  BlockPartials<float> open(const Case &c, int updates) const {
    return {updates, u.data(), c.bases, coef, c.m, 1.5, 1e-6, 1e-12};
  }
};

struct World {
  Case c;
  std::vector<float> memory;
  explicit World(const Case &c)
      : c(c),
        memory(Arrays(c, nullptr).used, bits::poison()) {  // a guard, until an array is laid over it
    Arrays a(c, memory.data());
    fill(a);
  }
  void fill(Arrays &a) const {
    const int64_t N = c.N(), C = c.C, D = c.details();
    uint64_t seed = c.seed * 1000;
    const auto put = [&](const float *p, int64_t n, Kind kind) {
      const std::vector<float> x = bits::values(n, kind, ++seed);
      std::copy_n(x.data(), n, const_cast<float *>(p));
    };
    put(a.r, c.n * N, Kind::normal);
    for (const auto &s : a.g.sources) {
      put(s.s, N * C, c.kind);
      put(s.ds, N * C, c.kind);
      if (s.fresh) std::fill_n(s.ds, N * C, bits::poison());  // must not be read
    }
    for (const auto &s : a.updates) {
      put(s.s, N * C, c.kind);
      put(s.r, N, Kind::normal);
      put(s.ds, N * C, c.kind);
    }
    for (const float *u : a.u) put(u, N * C, c.kind);
    put(a.w, GROUP * C, seed % 3 ? Kind::normal : c.kind);
    put(a.g.bias, GROUP * (1 + D), Kind::normal);
    for (int k = 0; k < GROUP; k++) const_cast<float *>(a.g.bias)[k * (1 + D)] = 0;
    put(a.g.o, GROUP * a.g.stride, Kind::normal);
    put(a.g.z, N * c.n * GROUP, Kind::normal);
    for (float *p : {a.g.mx1, a.g.l1, a.g.mx, a.g.inv, a.g.D}) put(p, N * GROUP, Kind::normal);
    put(a.g.dh, GROUP * a.g.stride, c.kind);
    put(a.q, C, c.kind);
    put(a.gain, C, c.kind);
    put(a.dq, C, c.kind);
    put(a.dgain, C, Kind::normal);
    put(a.h, GROUP * N * C, Kind::normal);
    put(a.saved, GROUP * N * MAX_PARTIALS * 3, Kind::normal);
    put(a.dw, GROUP * c.B * C, c.kind);
    put(a.dbias, GROUP * c.B * D, c.kind);
    put(a.coef, c.bases * c.m, Kind::normal);
    put(a.du, N * C, Kind::normal);
    for (int k = 0; k < c.bases * c.m; k++)
      if (k < c.m || k % 3) a.coef[k] = k < c.m || a.coef[k] > 0 ? 1.f : -1.f;
    put(a.dcoef, c.B, c.kind);
    for (int d = 0; d < MAX_BASES; d++) {
      for (float *p : {a.rows[d], a.closing[d]}) put(p, N * C, Kind::normal);
      put(a.G[d], N * C, c.kind);
      put(a.row_r[d], N, Kind::normal);
      put(a.row_c[d], N, Kind::normal);
    }
  }

  // f(build, arrays) with both builds, from here; goes on with what plain:: left
  template <class F> void both(const char *what, F f) {
    std::vector<float> want = memory;
    Arrays a(c, want.data());
    f(Plain(), a);
    for (float x : want)
      if (!(x - x == 0) && exact::bit_cast<uint32_t>(x) != exact::bit_cast<uint32_t>(bits::poison())) {
        check::that(false, "%s: plain:: gives %g; %s", what, (double)x, c.name().c_str());
        break;
      }
    for (int threads = 1; threads <= 3; threads++) {
      if (device::set_threads(threads) != threads) break;  // no more than that
      const bits::Memory<float> on_device(memory.data(), (int64_t)memory.size());
      Arrays b(c, on_device.data);
      f(Fast(), b);
      std::vector<float> got = on_device.on_host();
      leave_dead_lanes(Arrays(c, got.data()), a);
      const bool same = !memcmp(got.data(), want.data(), got.size() * sizeof(float));
      if (!same) {
        check::that(false, "%s, %d threads; %s:", what, threads, c.name().c_str());
        name_difference(got, want);
      }
    }
    memory = want;
  }
  void leave_dead_lanes(const Arrays &got, const Arrays &want) const {
    const int64_t N = c.N();
    for (int k = 0; k < GROUP; k++) {
      if (k >= want.g.begin() && k < c.K) continue;
      for (int64_t i = k; i < N * c.n * GROUP; i += GROUP) got.g.z[i] = want.g.z[i];
      for (int64_t i = k; i < N * GROUP; i += GROUP) {
        for (const auto scalar : SCALARS) (got.g.*scalar)[i] = (want.g.*scalar)[i];
      }
      std::copy_n(want.g.o + k * want.g.stride, N * c.C, got.g.o + k * want.g.stride);
    }
  }
  void name_difference(std::vector<float> &got, std::vector<float> &want) const {
    Arrays a(c, want.data());
    size_t i = 0;
    while (!memcmp(&got[i], &want[i], sizeof(float))) i++;
    const std::vector<std::pair<const char *, const float *>> starts = {{"r", a.r},
                                                                        {"sources s, ds", a.g.sources[0].s},
                                                                        {"updates s, r, ds", a.updates[0].s},
                                                                        {"u", a.u[0]},
                                                                        {"w", a.w},
                                                                        {"bias", a.g.bias},
                                                                        {"o", a.g.o},
                                                                        {"z", a.g.z},
                                                                        {"mx1", a.g.mx1},
                                                                        {"l1", a.g.l1},
                                                                        {"mx", a.g.mx},
                                                                        {"inv", a.g.inv},
                                                                        {"dh", a.g.dh},
                                                                        {"D", a.g.D},
                                                                        {"q", a.q},
                                                                        {"gain", a.gain},
                                                                        {"dq", a.dq},
                                                                        {"dgain", a.dgain},
                                                                        {"h", a.h},
                                                                        {"saved", a.saved},
                                                                        {"dw", a.dw},
                                                                        {"dbias", a.dbias},
                                                                        {"coef", a.coef},
                                                                        {"du", a.du},
                                                                        {"dcoef", a.dcoef},
                                                                        {"rows and G", a.rows[0]}};
    const char *name = "a guard";
    int64_t at = 0;
    for (const auto &[what, p] : starts)
      if (p <= &want[i]) {
        name = what;
        at = &want[i] - p;
      }
    check::that(false, "  %s[%lld]: got %.9g (%08x) want %.9g (%08x)", name, (long long)at, (double)got[i],
                exact::bit_cast<uint32_t>(got[i]), (double)want[i], exact::bit_cast<uint32_t>(want[i]));
  }
};

static void run(const Case &c) {
  World world(c);
  const int64_t N = c.N(), C = c.C, B = c.B, T = c.T;
  const auto reads = [&](Arrays &a, auto body) {  // body(k, partials), for every read of the group
    for (int k = a.g.begin(); k < c.K; k++) {
      if (c.blocks)
        body(k, a.open(c, std::min(c.position + k, c.m)));
      else
        body(k, UpdatePartials<float>{c.position ? std::min(k, MAX_PARTIALS) : 0, a.updates.data()});
    }
  };
  world.both("source_scale", [&](auto f, Arrays &a) {
    for (const auto &s : a.g.sources) f.scale(const_cast<float *>(s.r), s.s, N, C, 1e-12);
    for (const auto &s : a.updates) f.scale(const_cast<float *>(s.r), s.s, N, C, 1e-5);
  });
  world.both("query_forward", [&](auto f, Arrays &a) { f.query(a.w, a.q, a.gain, C); });
  world.both("mix_phase1", [&](auto f, Arrays &a) { f.phase1(a.g, N, C); });
  world.both("mix_phase2", [&](auto f, Arrays &a) {
    reads(a, [&](int k, const auto &partials) { f.phase2(a.read(c, k), partials, N, C); });
  });
  world.both("mix_phase2_backward", [&](auto f, Arrays &a) {
    std::vector<float *> ds;
    for (const auto &s : a.updates) ds.push_back(s.ds);
    reads(a, [&](int k, const auto &partials) {
      f.phase2_backward(a.gradients(c, k, c.blocks ? a.G : ds.data()), a.read(c, k), partials, B, T, C);
    });
  });
  if (c.blocks)
    world.both("block_read_backward", [&](auto f, Arrays &a) {
      reads(a, [&](int k, const auto &partials) {
        if constexpr (std::is_same<decltype(partials), const BlockPartials<float> &>::value)
          if (partials.updates) f.read_backward(a.update(c), a.gradients(c, k, a.G), a.read(c, k), partials, B, T, C);
      });
    });
  world.both("mix_phase1_backward", [&](auto f, Arrays &a) { f.phase1_backward(a.dw, a.dbias, a.g, B, T, C); });
  world.both("query_backward", [&](auto f, Arrays &a) { f.query_backward(a.dq, a.dgain, a.q, a.gain, C); });
  if (!c.blocks) return;
  world.both("close_block", [&](auto f, Arrays &a) {
    f.close(StoredBlock<float>{a.rows, a.row_r, a.row_c}, a.open(c, c.m), N, C);
  });
  world.both("close_block_backward", [&](auto f, Arrays &a) { f.close_backward(a.G, a.row_c, c.bases, N, C); });
  world.both("block_update_backward", [&](auto f, Arrays &a) {
    for (int k = c.m - 1; k >= 0; k--) f.update_backward(a.update(c), a.G, a.open(c, c.m), k, B, T, C);
  });
}

static Case draw(int64_t C, Kind kind, bool blocks, uint64_t seed) {
  bits::Random r{seed * 0x9e3779b97f4a7c15ull};
  const auto of = [&](std::initializer_list<int> list) { return list.begin()[r.next() % list.size()]; };
  Case c;
  c.C = C;
  c.kind = kind;
  c.blocks = blocks;
  c.seed = seed;
  c.B = of({1, 2, 3, 5});
  c.T = of({1, 3, 9});
  c.n = of({1, 2, 3, 7, 8, 9, 33, 100});
  c.K = 1 + (int)(r.next() % 8);
  c.first = (FirstLane)(r.next() % 3);
  c.bases = blocks ? 1 + (int)(r.next() % MAX_BASES) : 1;
  c.m = blocks ? of({1, 2, 3, 8, 12, 20}) : 1;
  c.position = blocks ? (int)(r.next() % (uint64_t)c.m) : of({0, 1, 1, 1});
  c.learned = c.bases > 1 && r.next() % 2 ? 1 + (int)(r.next() % (uint64_t)(c.bases - 1)) : 0;
  while (c.n > 1 && c.n * c.N() * C > 60000) c.n = c.n / 2;
  return c;
}

int main(int argc, char **argv) {
  const bits::Mode mode = bits::mode_of(argc, argv);
  check::arguments(argc, argv);
  set_float_mode();
  uint64_t seed = 0;
  for (int64_t C : {1, 7, 20, 32, 36, 96, 128, 384, 1056}) {
    const int most = C < 300 ? 24 : 10, cases = bits::pick(mode, 2, 4, most, most);
    check::test(format("the mixer, C = %d: device:: has the bits of plain::", (int)C).c_str(), [&] {
      uint64_t next = seed;
      for (Kind kind : {Kind::normal, Kind::tiny, Kind::zeros, Kind::large, Kind::underflow})
        for (int i = 0; i < cases; i++) run(draw(C, kind, i % 2, ++next));
    });
    seed += 5 * (uint64_t)cases;  // the same cases whether the tests before ran or not
  }
  check::test("the mixer, 1 to 100 sources, 1 to 8 reads; many sequences, sources, updates", [&] {
    for (int64_t n = 1; n <= 100; n += bits::pick(mode, 23, 11, 1, 1))
      for (bool blocks : {false, true}) {
        Case c = draw(40, Kind::normal, blocks, ++seed);
        c.n = n;
        c.B = 2;
        c.T = 2;
        c.K = 1 + (int)(n % 8);
        run(c);
      }
    for (int bases = 1; bases <= MAX_BASES; bases++) {
      Case c = draw(36, Kind::normal, true, ++seed);
      c.n = 3;
      c.B = 3;
      c.T = 9;
      c.K = 8;
      c.bases = bases;
      c.learned = bases - 1;
      run(c);
    }
    Case sequences = draw(7, Kind::normal, true, ++seed);
    sequences.B = 19;
    sequences.T = 2;
    sequences.n = 3;
    sequences.bases = 4;
    sequences.learned = 2;
    Case sources = draw(5, Kind::normal, false, ++seed);
    sources.n = 401;
    sources.B = 2;
    sources.T = 2;
    Case updates = draw(5, Kind::normal, true, ++seed);
    updates.m = 400;
    updates.position = 395;
    updates.n = 2;
    updates.B = 2;
    updates.T = 3;
    run(sequences);
    run(sources);
    run(updates);
  });
  return check::report();
}
