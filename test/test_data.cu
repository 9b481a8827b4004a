// test_data.cu: data/: tokenizers, text and shard streams, splits, the three orders, the evaluation rule, the stories.
#include <functional>
#include <numeric>
#include <set>
#include "data/dataset.cuh"
#include "test/check.h"

using namespace data;
using check::that;
using Ints = std::vector<int32_t>;

// A fresh folder, removed at the end with the files that put() made in it
struct Folder {
  std::string path;
  std::set<std::string> files;
  Folder() {
    const char *base = getenv("TMPDIR");
    path = std::string(base && *base ? base : "/tmp") + "/test_data.XXXXXX";
    if (!mkdtemp(&path[0])) throw Error(format("%s: cannot be made: %s", path.c_str(), strerror(errno)));
  }
  ~Folder() {
    for (const std::string &f : files) unlink(f.c_str());
    rmdir(path.c_str());
  }
  std::string put(const std::string &name, const std::string &content) {
    const std::string file = path + "/" + name;
    FILE *f = fopen(file.c_str(), "wb");
    if (!f || fwrite(content.data(), 1, content.size(), f) != content.size())
      throw Error(format("%s: cannot be written", file.c_str()));
    fclose(f);
    files.insert(file);
    return file;
  }
};

std::string little(std::initializer_list<uint32_t> words) {
  std::string s;
  for (const uint32_t w : words)
    for (int b = 0; b < 4; b++) s += (char)(w >> 8 * b & 255);
  return s;
}
std::string header(uint32_t magic, uint32_t version, uint32_t n, uint32_t fourth = 0) {
  std::string s = little({magic, version, n, fourth});
  s.resize(1024);
  return s;
}
std::string shard(const Ints &tokens) {
  std::string s = header(20240520, 1, (uint32_t)tokens.size());
  for (const int32_t t : tokens) {
    s += (char)(t & 255);
    s += (char)(t >> 8);
  }
  return s;
}
std::string tokenizer_file(const std::vector<std::string> &pieces, uint32_t version = 2) {
  std::string s = header(20240328, version, (uint32_t)pieces.size(), (uint32_t)pieces.size() - 1);
  for (const std::string &p : pieces) s += (char)p.size() + p;
  return s;
}

// An Error whose message holds all the words
void refused(const char *what, std::function<void()> f, std::initializer_list<const char *> words) {
  try {
    f();
  } catch (const Error &e) {
    for (const char *w : words)
      that(strstr(e.what(), w) != nullptr, "%s: the message '%s' does not say '%s'", what, e.what(), w);
    that(!strchr(e.what(), '\n'), "%s: the message has several lines", what);
    return;
  }
  that(false, "%s: accepted", what);
}

CorpusOptions options(const std::string &data, const std::string &val = "", const std::string &split = "90/5/5") {
  CorpusOptions o;
  o.data = data;
  o.val = val;
  o.split = split;
  return o;
}
Ints all_of(const Tokens &t) {
  Ints v((size_t)t.size());
  t.read(v.data(), 0, t.size());
  return v;
}
std::string text_of(const Corpus &c, const Tokens &t) {
  std::string s;
  for (const int32_t token : all_of(t)) s += c.tokenizer.decode(token);
  return s;
}
Ints ramp(int32_t from, int32_t n) {
  Ints v((size_t)n);
  std::iota(v.begin(), v.end(), from);
  return v;
}

void test_byte_tokenizer() {
  const std::string text = std::string("ba\r\n\0\xc3\xa9", 7);
  const Tokenizer t = byte_tokenizer((const unsigned char *)text.data(), (int64_t)text.size());
  that(t.vocabulary == 7 && t.bytes && t.byte_to_token[0] == 0 && t.byte_to_token['\n'] == 1, "sorted bytes");
  that(t.byte_to_token['a'] == 3 && t.byte_to_token[0xa9] == 5 && t.byte_to_token[0xc3] == 6, "bytes above 127 last");
  that(t.byte_to_token['z'] == -1, "an absent byte");
  that(t.encode(text) == Ints({4, 3, 2, 1, 0, 6, 5}), "encode");
  that(t.to_text() == "bytes:000a0d6162a9c3", "to_text");
  const Tokenizer back = Tokenizer::from_text(t.to_text());
  that(back.to_text() == t.to_text() && back.byte_to_token == t.byte_to_token && back.piece == t.piece, "from_text");
  refused("unknown byte", [&] { t.encode("ab?"); }, {"'?'", "offset 2"});
  refused("token -1", [&] { t.decode(-1); }, {"-1", "0..6"});
  refused("token V", [&] { t.decode(7); }, {"7", "0..6"});
  for (const char *bad : {"", "bytes:", "bytes:6", "bytes:6g", "bytes:6261", "bytes:6161", "bytes:6A", "other:61"})
    refused(bad, [&] { Tokenizer::from_text(bad); }, {"tokenizer text"});
}

void test_token_tokenizer() {
  Folder f;
  const std::vector<std::string> pieces = {"a", "b", "ab", "abc", std::string("\0", 1), " the", "<|end|>"};
  for (const uint32_t version : {1u, 2u}) {
    const Tokenizer t = read_tokenizer_bin(f.put("tokenizer.bin", tokenizer_file(pieces, version)));
    that(!t.bytes && t.vocabulary == 7 && t.piece == pieces, "version %u", version);
    that(t.end_of_text == (version == 2 ? 6 : -1), "end of text of version %u", version);
    that(t.encode(std::string("abcabab the\0b", 13)) == Ints({3, 2, 2, 5, 4, 1}), "longest match");
    that(t.to_text() == "tokens:7:61,62,6162,616263,00,20746865,3c7c656e647c3e", "to_text");
    const Tokenizer back = Tokenizer::from_text(t.to_text());
    that(back.piece == pieces && !back.bytes && back.vocabulary == 7, "from_text");
    refused("no piece", [&] { t.encode("abx"); }, {"'x'", "offset 2"});
  }
  const Tokenizer bare = Tokenizer::from_text("tokens:50257");
  that(bare.vocabulary == 50257 && !bare.can_decode() && bare.to_text() == "tokens:50257", "without pieces");
  refused("decode without pieces", [&] { bare.decode(1); }, {"tokenizer.bin"});
  refused("encode without pieces", [&] { bare.encode("a"); }, {"tokenizer.bin"});
  for (const char *bad : {"tokens:", "tokens:0", "tokens:x", "tokens:2:61", "tokens:1:61,62", "tokens:1:6"})
    refused(bad, [&] { Tokenizer::from_text(bad); }, {"tokenizer text"});
  const std::string good = tokenizer_file(pieces);
  const auto bad = [&](const char *what, const std::string &content, std::initializer_list<const char *> words) {
    const std::string path = f.put("bad.bin", content);
    refused(
        what, [&] { read_tokenizer_bin(path); }, words);
  };
  bad("empty", "", {"bad.bin", "0 bytes"});
  bad("magic", header(1, 1, 0), {"magic 1 ", "20240328"});
  bad("version", header(20240328, 3, 1), {"version 3", "1 or 2"});
  bad("size", header(20240328, 1, 0), {"vocabulary 0"});
  bad("cut", good.substr(0, good.size() - 1), {"ends", "token 6 of 7"});
  bad("long", good + "x", {"1051 bytes", "need 1050"});
  bad("empty piece", header(20240328, 1, 1) + std::string(1, '\0'), {"token 0", "empty"});
  refused("missing", [&] { read_tokenizer_bin(f.path + "/none"); }, {"none", "No such file"});
}

void test_text_bytes() {
  Folder f;
  const std::string text = std::string("a\r\nb\n\0\xc3\xa9\n\nno newline at the end", 31);
  const Corpus c = open_corpus(options(f.put("t.txt", text), "", "100/0/0"));
  that(text_of(c, c.train) == text, "every byte as it is");
  that(c.val.size() == 0 && c.test.size() == 0, "empty parts");
  that(c.tokenizer.bytes && c.tokenizer.vocabulary == (int)std::set<char>(text.begin(), text.end()).size(), "V");
  const Corpus one = open_corpus(options(f.put("one.txt", std::string(50, 'x'))));
  that(one.tokenizer.vocabulary == 1 && all_of(one.train) == Ints(45, 0), "a file of one symbol");
  int32_t in[4], out[4];
  Windows(one.train, 4, Order::shuffle, 1).batch(in, out, 3, 1);
  that(in[0] == 0 && out[3] == 0, "a window of one symbol");
  refused("empty file", [&] { open_corpus(options(f.put("e.txt", ""))); }, {"e.txt", "empty"});
  refused("folder", [&] { open_corpus(options(f.path)); }, {"not a regular file"});
  refused("missing", [&] { open_corpus(options(f.path + "/no.txt")); }, {"no.txt", "no such file"});
  refused("two texts", [&] { open_corpus(options(f.path + "/[ot]*.txt")); }, {"2 text files"});
  const Corpus small = open_corpus(options(f.put("s.txt", "abcdefgh"), "", "100/0/0"));
  refused("short file", [&] { Windows(small.train, 8, Order::shuffle, 1); }, {"8 tokens", "need 9"});
  that(Windows(small.train, 7, Order::shuffle, 1).windows == 1, "just long enough");
  refused("outside", [&] { small.train.read(in, 6, 3); }, {"stream of 8"});
}

void test_split() {
  const Split s = parse_split("90/5/5");
  that(share_of(100000000, s.train) == 90000000 && share_of(100000000, s.train + s.val) == 95000000, "text8");
  const Split t = parse_split("33.3/33.3/33.4");
  that(share_of(1000, t.train) == 333 && share_of(1000, t.train + t.val) == 666, "fractions");
  that(share_of(7, s.train) == 6 && share_of(19, s.train + s.val) == 18, "rounded down");
  that(share_of(9000000000000000001, 99999999) == 8999999910000000000, "64 bits");
  that(parse_split("99.999999/0.000001/0").test == 0 && parse_split("99.999999/0.000001/0").val == 1, "six places");
  for (const char *bad :
       {"", "100", "90/5", "90/5/6", "90/5/5/0", "90//10", "90/10/", "-10/100/10", "90/5/5 ", "a/b/c", "90/10",
        "0/50/50", "33.3333333/33.3333333/33.3333334", "1e1/80/10", "9.0.0/91/0", ".", "./100/0"})
    refused(bad, [&] { parse_split(bad); }, {"90/5/5"});
  Folder f;
  std::string text;
  for (int i = 0; i < 1000; i++) text += "abcdefghij"[i % 10];
  const std::string path = f.put("t.txt", text);
  const Corpus c = open_corpus(options(path, "", "70.5/19.5/10"));
  that(text_of(c, c.train) == text.substr(0, 705) && text_of(c, c.val) == text.substr(705, 195), "train, val");
  that(text_of(c, c.test) == text.substr(900), "test");
  const Corpus a = open_corpus(options(f.put("a.txt", "aaaaa"), "", "33.3/33.3/33.4"));
  that(a.train.size() == 1 && a.val.size() == 2 && a.test.size() == 2, "the end of a part is rounded, not its length");
  const Corpus v = open_corpus(options(path, f.put("v.txt", "jihg")));
  that(v.train.size() == 1000 && text_of(v, v.val) == "jihg" && v.test.size() == 0, "a validation file");
  refused("same file", [&] { open_corpus(options(path, path)); }, {"t.txt", "training data and in the validation"});
  refused("no training part", [&] { open_corpus(options(path, "", "0.000001/49.999999/50")); },
          {"training part is empty"});
}

void test_unknown_bytes() {
  Folder f;
  CorpusOptions o = options(f.put("t.txt", "abcabcabcabcabcabca#cZZa"), "", "75/15/10");
  // 24 bytes: train 0..17, val 18..20 (b? no: "a#c" from 18), test 21..23
  refused("unknown", [&] { open_corpus(o); }, {"1 bytes", "validation part", "'#'", "offset 19", "--skip-unknown"});
  o.skip_unknown = true;
  const Corpus c = open_corpus(o);
  that(c.tokenizer.to_text() == "bytes:616263", "the vocabulary is that of the training part");
  that(text_of(c, c.val) == "ac" && text_of(c, c.test) == "a" && c.unknown_skipped == 3, "left out and counted");
  Ints two(2);
  c.val.read(two.data(), 0, 2);
  that(two == Ints({0, 2}), "a read across the gap");
  const Tokenizer fixed = Tokenizer::from_text("bytes:235a616263");
  o.skip_unknown = false;
  o.fixed = &fixed;
  const Corpus d = open_corpus(o);
  that(d.tokenizer.vocabulary == 5 && text_of(d, d.val) == "a#c" && d.unknown_skipped == 0, "a fixed vocabulary");
  that(d.fingerprint == c.fingerprint, "the fingerprint is that of the data");
  const Tokenizer tokens = token_tokenizer(300);
  o.fixed = &tokens;
  refused("kind", [&] { open_corpus(o); }, {"trained on tokens"});
}

void test_shards() {
  Folder f;
  f.put("d_002.bin", shard(ramp(10, 1)));
  f.put("d_001.bin", shard(ramp(0, 10)));
  f.put("d_003.bin", shard(ramp(11, 20)));
  const Corpus c = open_corpus(options(f.path + "/d_*.bin", "", "100/0/0"));
  that(c.tokenizer.vocabulary == 50257 && !c.tokenizer.can_decode(), "GPT-2 without tokenizer.bin");
  that(all_of(c.train) == ramp(0, 31), "three shards in the order of their names");
  for (int32_t from = 0; from < 31; from++)
    for (int32_t n = 0; from + n <= 31; n++) {
      Ints v((size_t)n);
      c.train.read(v.data(), from, n);
      if (!that(v == ramp(from, n), "a window from %d of %d tokens", from, n)) return;
    }
  const Corpus s = open_corpus(options(f.path + "/d_*.bin", "", "40/40/20"));
  that(all_of(s.train) == ramp(0, 12) && all_of(s.val) == ramp(12, 12) && all_of(s.test) == ramp(24, 7), "split");
  that(s.fingerprint != c.fingerprint, "another split is other data");
  f.put("tokenizer.bin", tokenizer_file({"x", "yy", "zzz", "t"}));
  refused("token", [&] { all_of(open_corpus(options(f.path + "/*.bin", "", "100/0/0")).train); },
          {"d_001.bin", "token 4", "offset 1032", "0 to 3"});
  const Corpus v = open_corpus(options(f.path + "/d_001.bin", f.put("v.bin", shard({0, 1, 2, 2, 3}))));
  that(v.val.size() == 5 && v.train.size() == 10 && v.tokenizer.vocabulary == 4, "a validation shard");
  int32_t five[5];
  v.train.read(five, 0, 4);
  refused("token = vocabulary", [&] { v.train.read(five, 0, 5); }, {"token 4", "0 to 3"});
  that(EvalWindows(v.val, 3).decoded_bytes(v.tokenizer) == 2 + 3 + 3 + 1, "bytes of the decoded targets");
  refused("same", [&] { open_corpus(options(f.path + "/d_*.bin", f.path + "/d_002.bin")); }, {"d_002.bin"});
  refused("mixed", [&] { open_corpus(options(f.path + "/v.bin", f.put("v.txt", "abc"))); }, {"one kind"});
  const Tokenizer bytes = Tokenizer::from_text("bytes:61");
  CorpusOptions o = options(f.path + "/v.bin");
  o.fixed = &bytes;
  refused("kind", [&] { open_corpus(o); }, {"trained on bytes"});
}

void test_shard_headers() {
  Folder f;
  const std::string good = shard(ramp(0, 5));
  const auto bad = [&](const char *what, const std::string &content, std::initializer_list<const char *> words) {
    const std::string path = f.put("b.bin", content);
    refused(
        what, [&] { open_corpus(options(path)); }, words);
  };
  bad("short", good.substr(0, 100), {"b.bin", "100 bytes", "1024"});
  bad("magic", header(20240801, 7, 0), {"magic 20240801", "20240520"});
  bad("version", header(20240520, 2, 0), {"version 2", "need 1"});
  bad("cut", good.substr(0, good.size() - 1), {"1033 bytes", "need 1034", "5 tokens"});
  bad("long", good + "x", {"1035 bytes", "need 1034"});
  bad("no tokens", header(20240520, 1, 0), {"training part is empty"});
}

// More than 2 GiB, of which only a few pages exist
void test_large_shard() {
  Folder f;
  const uint32_t n = 1200000000;
  const std::string path = f.put("large.bin", header(20240520, 1, n));
  const int64_t size = 1024 + 2 * (int64_t)n;
  const auto write_at = [&](int64_t token, const std::string &two) {
    FILE *file = fopen(path.c_str(), "r+b");
    that(file && fseeko(file, 1024 + 2 * token, SEEK_SET) == 0 && fwrite(two.data(), 1, 2, file) == 2, "write");
    if (file) fclose(file);
  };
  if (truncate(path.c_str(), size)) {
    check::skip("a shard of more than 2 GiB", "a file system with sparse files");
    return;
  }
  write_at(n - 1, std::string("\x39\x30", 2));
  write_at(1150000000, std::string("\xff\xff", 2));
  const Corpus c = open_corpus(options(path, "", "100/0/0"));
  that(c.train.size() == n, "size");
  int32_t v[3];
  c.train.read(v, n - 3, 3);
  that(v[0] == 0 && v[1] == 0 && v[2] == 12345, "the last token");
  const int64_t T = 1024;
  const Windows w(c.train, T, Order::shuffle, 5);
  that(w.windows == 1171874, "windows");
  bool beyond = false;
  for (uint64_t s = 0; s < 100; s++) beyond |= w.start(s) > (int64_t)1 << 30;
  that(beyond, "windows beyond 2 GiB");
  refused("token", [&] { c.train.read(v, 1149999999, 3); }, {"token 65535", "offset 2300001024"});
}

// Tokens 0, 1, 2, ... so that a window shows where it starts
Corpus counting(Folder &f, int32_t n) { return open_corpus(options(f.put("n.bin", shard(ramp(0, n))), "", "100/0/0")); }

void test_orders() {
  Folder f;
  const Corpus c = counting(f, 1000);
  const int64_t T = 7, W = 142;  // (1000 - 1) / 7
  Ints in((size_t)T), out((size_t)T);
  const Windows shuffled(c.train, T, Order::shuffle, 3), sequential(c.train, T, Order::sequential, 3);
  that(shuffled.windows == W, "windows");
  std::vector<int64_t> epoch[2];
  for (uint64_t s = 0; s < 2 * (uint64_t)W; s++) {
    shuffled.batch(in.data(), out.data(), s, 1);
    that(in[0] % T == 0 && in == ramp(in[0], (int32_t)T) && out == ramp(in[0] + 1, (int32_t)T), "window %d", in[0]);
    epoch[s / (uint64_t)W].push_back(in[0] / T);
    sequential.batch(in.data(), out.data(), s, 1);
    that(in[0] == (int64_t)(s % (uint64_t)W) * T && out[6] == in[0] + 7, "sequential window %d", in[0]);
  }
  for (const auto &e : epoch) that((int64_t)std::set<int64_t>(e.begin(), e.end()).size() == W, "not a permutation");
  that(epoch[0] != epoch[1], "two epochs are the same");
  that(!std::is_sorted(epoch[0].begin(), epoch[0].end()), "not shuffled");
  const uint64_t key = rng::key_of(3, "order");  // the definition, spelled out
  for (uint64_t e = 0; e < 2; e++) {
    const rng::Words w = rng::philox(key, e);
    const uint64_t k = (uint64_t)w.x[1] << 32 | w.x[0];
    for (uint64_t i = 0; i < (uint64_t)W; i++)
      that(epoch[e][i] == (int64_t)rng::permute(k, i, (uint64_t)W), "window %d of epoch %d", (int)i, (int)e);
  }
  that(epoch[0][0] == 40 && epoch[0][1] == 106 && epoch[1][0] == 0, "pinned: %d %d %d", (int)epoch[0][0],
       (int)epoch[0][1], (int)epoch[1][0]);
  const Windows other(c.train, T, Order::shuffle, 4);
  int same = 0;
  for (uint64_t s = 0; s < (uint64_t)W; s++) same += other.start(s) == shuffled.start(s);
  that(same < 20, "another seed gives the same order");
}

void test_random_order() {
  Folder f;
  const Corpus c = counting(f, 20);
  const Windows w(c.train, 7, Order::random, 3);
  std::vector<int> hits(13);
  for (uint64_t s = 0; s < 13000; s++) {
    const int64_t at = w.start(s);
    if (!that(at >= 0 && at <= 12, "offset %d", (int)at)) return;
    that(at == (int64_t)rng::below(rng::key_of(3, "order"), s, 13), "the definition");
    hits[(size_t)at]++;
  }
  for (const int h : hits) that(h > 800 && h < 1200, "an offset drawn %d times of 1000", h);
  Ints in(7), out(7);
  w.batch(in.data(), out.data(), 5, 1);
  that(in == ramp((int32_t)w.start(5), 7) && out == ramp((int32_t)w.start(5) + 1, 7), "inputs and targets");
  that(Windows(c.train, 19, Order::random, 1).start(9) == 0, "one offset only");
}

void test_batches() {
  Folder f;
  const Corpus c = counting(f, 500);
  for (const Order order : {Order::shuffle, Order::random, Order::sequential}) {
    const Windows w(c.train, 5, order, 9);
    Ints in(60), out(60), in2(60), out2(60);
    w.batch(in.data(), out.data(), 95, 12);  // over the end of the first epoch (99 windows)
    int64_t at = 0;
    for (const int64_t n : {1, 2, 4, 5}) {
      w.batch(in2.data() + at * 5, out2.data() + at * 5, 95 + (uint64_t)at, n);
      at += n;
    }
    that(in == in2 && out == out2, "the batch depends on its parts in order %d", (int)order);
  }
}

void test_evaluation() {
  Folder f;
  const Corpus c = counting(f, 23);
  const EvalWindows e(c.train, 5);
  that(e.predictions == 22 && e.windows == 5 && e.length(0) == 5 && e.length(4) == 2, "N-1 predictions");
  Ints seen;
  for (int64_t w = 0; w < e.windows; w++) {
    Ints in((size_t)e.length(w)), out(in);
    e.read(in.data(), out.data(), w);
    that(in == ramp((int32_t)w * 5, (int32_t)e.length(w)), "inputs of window %d", (int)w);
    seen.insert(seen.end(), out.begin(), out.end());
  }
  that(seen == ramp(1, 22), "each token but the first is predicted once");
  that(EvalWindows(c.train, 5, 13).predictions == 10 && EvalWindows(c.train, 5, 13).windows == 2, "whole windows");
  that(EvalWindows(c.train, 5, 3).predictions == 5, "at least one window");
  that(EvalWindows(c.train, 5, 22).predictions == 22 && EvalWindows(c.train, 5, 900).predictions == 22, "large limit");
  that(EvalWindows(c.train, 40, 30).predictions == 22 && EvalWindows(c.train, 40).length(0) == 22, "one short window");
  that(EvalWindows(c.train, 11).windows == 2 && EvalWindows(c.train, 11).length(1) == 11, "no empty last window");
  that(EvalWindows(c.train, 5).decoded_bytes(c.tokenizer) == 0, "no tokenizer.bin, no bytes");
  const Corpus text = open_corpus(options(f.put("t.txt", "abcab"), "", "60/40/0"));
  that(EvalWindows(text.val, 9).predictions == 1, "two characters");
  that(EvalWindows(text.train, 9).decoded_bytes(text.tokenizer) == 2, "byte data");
  const Corpus one = open_corpus(options(f.path + "/t.txt", "", "80/20/0"));
  refused("one character", [&] { EvalWindows(one.val, 9); }, {"1 tokens", "at least 2"});
}

void test_fingerprint() {
  Folder f;
  const std::string text = generate_stories(200000, 7);
  const uint64_t a = open_corpus(options(f.put("a.txt", text))).fingerprint;
  that(a == open_corpus(options(f.put("b.txt", text))).fingerprint, "the name matters");
  for (const size_t at : {(size_t)0, (size_t)31, (size_t)65536, text.size() - 1}) {
    std::string changed = text;
    changed[at] = changed[at] == 'a' ? 'e' : 'a';
    that(open_corpus(options(f.put("b.txt", changed))).fingerprint != a, "byte %zu does not matter", at);
  }
  that(open_corpus(options(f.path + "/a.txt", "", "90/10/0")).fingerprint != a, "the split does not matter");
  const std::string zeros(65, '\0');
  std::set<uint64_t> hashes;
  for (int64_t n = 0; n <= 65; n++) hashes.insert(take_census((const unsigned char *)zeros.data(), n).hash);
  that(hashes.size() == 66, "zeros of another number hash alike");
  const Census c = take_census((const unsigned char *)text.data(), (int64_t)text.size());
  that(c.count['e'] == std::count(text.begin(), text.end(), 'e'), "count of e");
  that(std::accumulate(c.count.begin(), c.count.end(), (int64_t)0) == (int64_t)text.size(), "all counts");
  unsigned char ramp[77];
  std::iota(ramp, ramp + 77, (unsigned char)0);
  const uint64_t pinned = take_census(ramp, 77).hash;
  that(pinned == 0x2e3e3367635f39abull, "pinned hash: %016llx", (unsigned long long)pinned);
}

void test_stories() {
  const std::string text = generate_stories(1000000, 1), other = generate_stories(1000000, 2);
  const Census c = take_census((const unsigned char *)text.data(), (int64_t)text.size());
  that(c.hash == 0x4c824e688543a0cdull, "pinned hash: %016llx", (unsigned long long)c.hash);
  that(text.size() == 1000000 && text != other, "length and seed");
  that(generate_stories(12345, 1) == text.substr(0, 12345), "a longer text starts with the shorter one");
  that(generate_stories(0, 1).empty(), "no bytes");
  const int symbols = (int)std::count_if(c.count.begin(), c.count.end(), [](int64_t n) { return n > 0; });
  that(symbols >= 40 && symbols <= 60, "%d symbols", symbols);
  for (const char mark : {'$', '[', ']', '|', '{', '}', '_', '\0'})
    that(text.find(mark) == std::string::npos, "'%c' of a template in the text", mark);
  for (const char *slip : {"  ", " .", " ,", "a orange", "a old", "a odd", "a ugly", "an red", "\n\n\n", "..", "zero"})
    that(text.find(slip) == std::string::npos, "'%s' in the text", slip);
  std::set<std::string> stories;
  int64_t n = 0;
  for (size_t at = 0, next; (next = text.find("\n\n", at)) != std::string::npos; at = next + 2, n++)
    stories.insert(text.substr(at, next - at));
  that(n > 1000 && (int64_t)stories.size() == n, "%d stories, %d different", (int)n, (int)stories.size());
  const Corpus small = open_corpus(options("stories:0.1"));
  that(small.train.size() == 90000 && small.val.size() == 5000 && small.test.size() == 5000, "stories:MB");
  that(text_of(small, small.train) == text.substr(0, 90000), "the first bytes of the built-in text");
  const Corpus both = open_corpus(options("stories:0.1", "stories:0.02"));
  that(both.val.size() == 20000 && text_of(both, both.val) != text.substr(0, 20000), "other stories to validate with");
  for (const char *bad : {"stories:", "stories:x", "stories:-1", "stories:0", "stories:nan", "stories:1x"})
    refused(bad, [&] { open_corpus(options(bad)); }, {bad, "stories:MB"});
}

int main(int argc, char **argv) {
  check::arguments(argc, argv);
  check::test("byte tokenizer", test_byte_tokenizer);
  check::test("tokenizer.bin", test_token_tokenizer);
  check::test("text: every byte as it is, short and one-symbol files", test_text_bytes);
  check::test("split", test_split);
  check::test("unknown bytes", test_unknown_bytes);
  check::test("shards: edges, order, split, tokenizer, token range", test_shards);
  check::test("shards: headers and sizes", test_shard_headers);
  check::test("a shard of more than 2 GiB", test_large_shard);
  check::test("orders: shuffle and sequential", test_orders);
  check::test("order: random", test_random_order);
  check::test("a batch is the same however it is split", test_batches);
  check::test("evaluation: N-1 predictions", test_evaluation);
  check::test("fingerprint", test_fingerprint);
  check::test("stories", test_stories);
  return check::report();
}
