// test_safetensors.cu: JSON, checkpoints: round trip, atomic writes, malformed files, compare
#include "runtime/safetensors.cuh"

#include <csignal>
#include <sys/resource.h>

#include "layers/random.cuh"
#include "test/check.h"

using namespace runtime;

static bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

struct Folder {
  std::string path;
  Folder() {
    const char *tmp = getenv("TMPDIR");
    path = std::string(tmp && *tmp ? tmp : "/tmp") + "/test_safetensorsXXXXXX";
    if (!mkdtemp(&path[0])) throw Error("no temporary folder");
  }
  ~Folder() {
    for (const char *name : {"a", "b", "c", "a.tmp", "out"}) unlink(file(name).c_str());
    rmdir(path.c_str());
  }
  std::string file(const char *name) const { return path + "/" + name; }
};

template <class F> static std::string refusal(F body) {
  try {
    body();
  } catch (const Error &e) {
    return e.what();
  }
  return "";
}

struct Sample {
  std::vector<float> w = {1, -0.f, 0x1p-149f, 3.25f, -2, HUGE_VALF};
  std::vector<double> m = {1e-300, -2};
  std::vector<unsigned char> bytes = {1, 2, 255};
  std::vector<int32_t> ids = {-7};
  std::map<std::string, std::string> metadata = {{"config", "{\"lr\":0.001,\"layers\":2}"},
                                                 {"\"odd\"\n", "\xc3\xa9\t\\"}};
  std::vector<TensorView> tensors() const {
    return {{"bytes", {3}, "U8", bytes.data()},
            {"w", {2, 3}, "F32", w.data()},
            {"m", {2}, "F64", m.data()},
            {"ids", {}, "I32", ids.data()},
            {"none", {0, 4}, "F32", nullptr}};
  }
};

static void test_json() {
  check::test("JSON values and their text", [] {
    const json::Value v = json::parse(
        " {\"a\": [1, -2.5e-3, true, null, {}], "
        "\"\\u00e9\\ud83d\\ude00\\n\": \"x\\\"y\"} ",
        "t");
    int64_t i = 0;
    double d = 0;
    check::that(v.find("a")->items.size() == 5 && v.find("a")->items[0].to(i) && i == 1, "integer");
    check::that(v.find("a")->items[1].to(d) && d == -2.5e-3 && !v.find("a")->items[1].to(i), "real");
    check::that(v.find("\xc3\xa9\xf0\x9f\x98\x80\n") && v.find("\xc3\xa9\xf0\x9f\x98\x80\n")->text == "x\"y",
                "escapes");
    check::that(json::quote("a\"\\\n\x01\xff\xc3\xa9") == "\"a\\\"\\\\\\n\\u0001\\ufffd\xc3\xa9\"", "quote");
    check::that(json::number(0.1) == "0.1" && json::number(0.1f) == "0.1" &&
                    json::number((double)0.1f) == "0.10000000149011612",
                "shortest");
    check::that(json::number(NAN) == "\"NaN\"" && json::number(-HUGE_VAL) == "\"-Infinity\"", "no numbers");
    check::that(
        json::object({{"a", 1}, {"b", true}, {"c", "x"}, {"d", .5f}}) == "{\"a\":1,\"b\":true,\"c\":\"x\",\"d\":0.5}",
        "object");
    for (uint64_t k = 0; k < 20000; k++) {
      const uint64_t bits = (uint64_t)rng::philox(3, k).x[0] << 32 | rng::philox(3, k).x[1];
      double x, y = 0;
      memcpy(&x, &bits, 8);
      if (x - x != 0) continue;
      check::that(json::parse(json::number(x), "n").to(y) && memcmp(&x, &y, 8) == 0, "%.17g is not read back", x);
    }
  });
  check::test("JSON that is none is refused with its offset", [] {
    const std::pair<std::string, const char *> bad[] = {
        {"", "offset 0: expected a value"},
        {"{\"a\":1,}", "offset 7: expected a string"},
        {"[1 2]", "offset 3: expected ','"},
        {"01", "offset 1: something follows"},
        {"1.", "offset 2: expected a digit"},
        {"+1", "expected a value"},
        {"\"a", "does not end"},
        {"\"\x01\"", "control character"},
        {"\"\xff\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xc0\x80\"", "not UTF-8"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\ud800\"", "surrogate"},
        {"\"\\udc00\"", "surrogate"},
        {"\"\\u12g4\"", "hexadecimal"},
        {"tru", "expected a value"},
        {"NaN", "expected a value"},
        {"{\"a\":1,\"a\":2}", "stands twice"},
        {"{\"a\" 1}", "expected ':'"},
        {"{1:2}", "expected a string"},
        {std::string(100, '['), "64 levels"},
    };
    for (const auto &b : bad) {
      const std::string e = refusal([&] { json::parse(b.first, "here"); });
      check::that(contains(e, "here: not JSON at offset") && contains(e, b.second), "%s: got '%s'", b.first.c_str(),
                  e.c_str());
    }
  });
}

static void test_round_trip() {
  check::test("round trip, aligned, a pure function of the input", [] {
    const Folder folder;
    const Sample s;
    save_safetensors(folder.file("a"), s.tensors(), s.metadata);
    save_safetensors(folder.file("b"), s.tensors(), s.metadata);
    const std::string a = read_file(folder.file("a"));
    check::that(a == read_file(folder.file("b")), "equal files");
    const SafetensorsFile f(folder.file("a"));
    check::that(f.metadata == s.metadata, "metadata");
    check::that(f.tensors.size() == 5 && f.data_bytes == 3 + 24 + 16 + 4, "sizes");
    check::that((a.size() - (size_t)f.data_bytes) % 256 == 0, "data start at a multiple of 256");
    check::that(a.substr(8, 17) == "{\"__metadata__\":{", "header first");
    for (const TensorView &t : s.tensors()) {
      const TensorView &u = f.at(t.name, t.dtype, t.shape);
      int64_t n = 0;
      count_elements(t.shape, n);
      check::that(n == 0 || memcmp(u.data, t.data, (size_t)(n * dtype_bytes(t.dtype))) == 0, "%s", t.name.c_str());
      check::that((uintptr_t)u.data % (uintptr_t)dtype_bytes(t.dtype) == 0, "%s is aligned", t.name.c_str());
    }
    check::that(!f.find("v") && !file_exists(folder.file("a.tmp")), "nothing else");
    check::that(contains(refusal([&] { f.at("w", "F32", {3, 2}); }), "w is F32[2,3], need F32[3,2]"), "shape");
    check::that(contains(refusal([&] { f.at("x", "F32", {}); }), "there is no tensor x"), "missing");
    check::that(contains(refusal([&] { f.text("step"); }), "metadata have no \"step\""), "missing metadata");
  });
  check::test("what cannot be saved is refused", [] {
    const Folder folder;
    const float x = 0;
    const auto save = [&](std::vector<TensorView> t, std::map<std::string, std::string> m) {
      return refusal([&] { save_safetensors(folder.file("a"), t, m); });
    };
    check::that(contains(save({{"x", {1}, "F32", &x}, {"x", {1}, "F32", &x}}, {}), "stands twice"), "twice");
    check::that(contains(save({{"x", {1}, "F31", &x}}, {}), "unknown dtype F31"), "dtype");
    check::that(contains(save({{"x", {-1}, "F32", &x}}, {}), "impossible shape [-1]"), "shape");
    check::that(contains(save({}, {{"k", "\xff"}}), "metadata \"k\" is not UTF-8"), "metadata");
    check::that(contains(refusal([&] { save_safetensors(folder.file("no/a"), {}, {}); }), "cannot create"), "folder");
    check::that(!file_exists(folder.file("a")), "no file");
  });
  check::test("a write that fails leaves the old file and no temporary", [] {
    const Folder folder;
    Sample s;
    save_safetensors(folder.file("a"), s.tensors(), s.metadata);
    const std::string before = read_file(folder.file("a"));
    const std::vector<float> large(1 << 16);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string e = refusal([&] {
      save_safetensors(folder.file("a"), {{"w", {1 << 16}, "F32", large.data()}}, {});
    });
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    check::that(contains(e, "cannot write " + folder.file("a") + ": File too large"), "got '%s'", e.c_str());
    check::that(read_file(folder.file("a")) == before, "the old file");
    check::that(!file_exists(folder.file("a.tmp")), "the temporary is gone");
  });
}

// A file of a header and n bytes of data
static std::string file_text(const std::string &header, size_t n) {
  std::string s(8, '\0');
  for (int i = 0; i < 8; i++) s[(size_t)i] = (char)(header.size() >> (8 * i));
  return s + header + std::string(n, 'x');
}
static std::string tensor(const char *name, const char *dtype, const char *shape, const char *offsets) {
  return format("\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%s]}", name, dtype, shape, offsets);
}

static void test_malformed() {
  check::test("malformed files are refused by path and reason", [] {
    const Folder folder;
    const std::string w = tensor("w", "U8", "4", "0,4"), v = tensor("v", "U8", "4", "4,8");
    const std::pair<std::string, const char *> bad[] = {
        {"", "0 bytes, a header needs 8"},
        {"1234567", "7 bytes"},
        {std::string(8, '\xff'), "the header should have 18446744073709551615 bytes"},
        {file_text("{" + w + "}", 4).substr(0, 20), "cut short"},
        {file_text("", 0), "not JSON at offset 0"},
        {file_text("[]", 0), "not a JSON object"},
        {file_text("{} {}", 0), "something follows"},
        {file_text("{" + w + "}", 5), "the tensors end at offset 4 of the data, the file goes on to 5"},
        {file_text("{" + w + "}", 3), "data_offsets [0,4] are not inside the 3 bytes"},
        {file_text("{}", 1), "the tensors end at offset 0"},
        {file_text("{" + w + "," + w + "}", 4), "stands twice"},
        {file_text("{" + w + "," + tensor("v", "U8", "4", "5,9") + "}", 9),
         "v starts at offset 5 of the data, which leaves a gap"},
        {file_text("{" + w + "," + tensor("v", "U8", "4", "3,7") + "}", 7),
         "v starts at offset 3 of the data, which overlaps"},
        {file_text("{" + v + "}", 8), "v starts at offset 4 of the data, which leaves a gap"},
        {file_text("{" + tensor("w", "F32", "2", "0,4") + "}", 4), "F32[2] needs 8 bytes, data_offsets give 4"},
        {file_text("{" + tensor("w", "F8", "4", "0,4") + "}", 4), "unknown dtype F8"},
        {file_text("{" + tensor("w", "U8", "-4", "0,4") + "}", 4), "impossible shape"},
        {file_text("{" + tensor("w", "U8", "4.0", "0,4") + "}", 4), "impossible shape"},
        {file_text("{" + tensor("w", "U8", "4294967296,4294967296", "0,4") + "}", 4), "impossible shape"},
        {file_text("{" + tensor("w", "U8", "4", "4,0") + "}", 4), "are not inside"},
        {file_text("{" + tensor("w", "U8", "4", "-4,0") + "}", 4), "are not inside"},
        {file_text("{" + tensor("w", "U8", "4", "0") + "}", 4), "are not inside"},
        {file_text("{" + tensor("w", "U8", "4", "0,9223372036854775808") + "}", 4), "are not inside"},
        {file_text("{\"w\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4), "needs exactly dtype, shape and data_offsets"},
        {file_text("{\"w\":7}", 4), "needs exactly"},
        {file_text("{\"__metadata__\":{\"a\":1}," + w + "}", 4), "metadata \"a\" is not a string"},
        {file_text("{\"__metadata__\":[]," + w + "}", 4), "__metadata__ is not a JSON object"},
        {file_text("{" + tensor("w", "F32", "1", "0,4") + "}", 4), "not aligned"},
    };
    for (const auto &b : bad) {
      write_file(folder.file("a"), b.first);
      const std::string e = refusal([&] { SafetensorsFile f(folder.file("a")); });
      check::that(contains(e, b.second) && contains(e, folder.file("a")), "need '%s', got '%s'", b.second, e.c_str());
      check::that(!contains(e, "\n"), "one line");
    }
    write_file(folder.file("a"), file_text("{" + v + "," + w + "}  ", 8));
    check::that(refusal([&] { SafetensorsFile f(folder.file("a")); }).empty(), "any order of names is allowed");
    check::that(contains(refusal([&] { SafetensorsFile f(folder.file("none")); }), "No such file"), "missing file");
    check::that(contains(refusal([&] { SafetensorsFile f(folder.path); }), "not a file"), "a folder");
  });
}
static void test_changed_bytes() {
  check::test("a changed byte anywhere is read or refused, never a crash", [] {
    const Folder folder;
    const Sample s;
    save_safetensors(folder.file("a"), s.tensors(), s.metadata);
    const std::string good = read_file(folder.file("a"));
    const size_t header = good.find('}', good.find("bytes")) + 8;
    int refused = 0, read = 0;
    uint64_t sum = 0;
    for (uint64_t k = 0; k < 3000; k++) {
      std::string text = good;
      text[(size_t)rng::below(11, 3 * k, header)] = (char)rng::below(11, 3 * k + 1, 256);
      if (k % 5 == 0) text.resize((size_t)rng::below(11, 3 * k + 2, text.size()));
      FILE *f = fopen(folder.file("b").c_str(), "wb");
      fwrite(text.data(), 1, text.size(), f);
      fclose(f);
      try {
        const SafetensorsFile file(folder.file("b"));
        for (const TensorView &t : file.tensors) {
          int64_t n = 0;
          count_elements(t.shape, n);
          for (int64_t i = 0; i < n * dtype_bytes(t.dtype); i++) sum += ((const unsigned char *)t.data)[i];
        }
        read++;
      } catch (const Error &) {
        refused++;
      }
    }
    check::that(refused > 1500 && read > 100 && sum > 0, "%d refused, %d read", refused, read);
  });
}

static std::string compared(const Folder &folder, int want) {
  FILE *out = fopen(folder.file("out").c_str(), "w");
  const int result = compare_checkpoints(folder.file("a"), folder.file("b"), out);
  fclose(out);
  check::that(result == want, "result %d, need %d", result, want);
  return read_file(folder.file("out"));
}

static void test_compare() {
  check::test("compare names one flipped bit: tensor, index, values, patterns", [] {
    const Folder folder;
    Sample s;
    save_safetensors(folder.file("a"), s.tensors(), s.metadata);
    save_safetensors(folder.file("b"), s.tensors(), s.metadata);
    check::that(compared(folder, 0) == "identical: 5 tensors, 47 bytes\n", "identical");
    s.w[3] = exact::bit_cast<float>(exact::bit_cast<uint32_t>(s.w[3]) ^ 1);
    save_safetensors(folder.file("b"), s.tensors(), s.metadata);
    const std::string one = compared(folder, 1);
    check::that(contains(one, "first difference: w[3] = [1,0]: 3.25 (0x40500000) and 3.25000024 (0x40500001)\n"), "%s",
                one.c_str());
    check::that(contains(one,
                         "different: 1 elements in 1 of 5 tensors, 0 tensors missing or "
                         "of another shape, 0 metadata"),
                "%s", one.c_str());
    s.w[1] = 0;
    s.bytes[2] = 254;
    s.ids[0] = 5;
    save_safetensors(folder.file("b"), s.tensors(), s.metadata);
    const std::string more = compared(folder, 1);
    check::that(contains(more, "first difference: w[1] = [0,1]: -0 (0x80000000) and 0 (0x00000000)"), "%s",
                more.c_str());
    check::that(contains(more, "different: 4 elements in 3 of 5 tensors"), "%s", more.c_str());
    check::that(more.find("first") == more.rfind("first"), "one first difference: %s", more.c_str());
  });
  check::test("compare reports metadata entries, missing tensors and shapes", [] {
    const Folder folder;
    Sample s;
    save_safetensors(folder.file("a"), s.tensors(), s.metadata);
    s.metadata["config"] = "{\"lr\":0.002,\"layers\":2,\"seed\":1}";
    s.metadata["step"] = "7";
    std::vector<TensorView> tensors = s.tensors();
    tensors[1].shape = {3, 2};
    tensors[2].name = "n";
    save_safetensors(folder.file("b"), tensors, s.metadata);
    const std::string text = compared(folder, 1);
    for (const char *part :
         {"metadata config, lr: 0.001 and 0.002\n", "metadata config, seed: missing and 1\n",
          "metadata step: missing and \"7\"\n", "tensor w: F32[2,3] and F32[3,2]\n", "tensor m: F64[2] and missing\n",
          "tensor n: missing and F64[2]\n", "3 tensors missing", "2 metadata entries"})
      check::that(contains(text, part), "no '%s' in %s", part, text.c_str());
    check::that(!contains(text, "layers"), "equal entries stay out");
  });
}

static void test_finite() {
  check::test("the first value that is not finite, at every place", [] {
    for (const int64_t n : {1, 7, 4095, 4096, 4097, 9000})
      for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF})
        for (const int64_t at : {(int64_t)0, n / 2, n - 1}) {
          std::vector<float> x((size_t)n, -3.4e38f);
          check::that(first_not_finite(x.data(), n) == -1, "all finite, %d", (int)n);
          x[(size_t)n - 1] = x[(size_t)at] = bad;
          check::that(first_not_finite(x.data(), n) == at, "%g at %d of %d", (double)bad, (int)at, (int)n);
        }
    check::that(element_name("w", {2, 3}, 4) == "w[4] = [1,1]" && element_name("b", {3}, 2) == "b[2]", "names");
  });
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  test_json();
  test_round_trip();
  test_malformed();
  test_changed_bytes();
  test_compare();
  test_finite();
  return check::report();
}
