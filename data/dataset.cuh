// dataset.cuh: from a file (or the built-in stories) to batches of tokens.
//
//   open_corpus(options) -> Corpus: tokenizer and three Tokens (train, val, test)
//   Windows      training: sequence number -> window; a pure function of (seed, number), no state
//   EvalWindows  evaluation: N tokens give N-1 predictions, in windows of T that do not overlap, the last one shorter
//
// Sources of tokens, all read-only and mapped, none prepared:
//   text       a file; byte -> token through a table of 256. One pass at the start counts the bytes and hashes them.
//              LF, CR, NUL and bytes above 127 are bytes like any other.
//   shards     llm.c .bin files, PATH may be a glob pattern, sorted by name, tokenizer.bin among them left out: 256
//              int32 (little endian): magic 20240520, version 1, number of tokens; then uint16 tokens, nothing after.
//              Never read as a whole: the token range is checked where tokens are read.
//   stories    stories[:MB] of stories.cuh, in memory
//
// Splits: with `val`, train = data and test is empty. Else a/b/c percent of the stream in this order: the first part
// ends at floor(N a / 100), the second at floor(N (a+b) / 100), in exact arithmetic.
//
// fingerprint: 64 bits that identify the data. Text and stories: hash of every byte of each part. Shards: hash of size
// and 64 evenly spaced blocks of 4 KiB of each file (the header among them), and of the split.
//
// Errors (Error): whatever cannot be read or does not fit together; the message names path, offset, have and need.
#pragma once
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <memory>
#include "layers/random.cuh"
#include "stories.cuh"
#include "tokenizer.cuh"

namespace data {

constexpr int32_t SHARD_MAGIC = 20240520;  // llm.c's, GPT-2 tokens in uint16
constexpr int GPT2_VOCABULARY = 50257;     // what that magic means when no tokenizer.bin says otherwise
constexpr double DEFAULT_STORIES_MB = 8;   // 1 MB = 1,000,000 bytes
constexpr uint64_t STORIES_SEED = 1, STORIES_VAL_SEED = 2;

// ---- bytes: the whole of a file, mapped, or of a string

struct Bytes {
  std::string path;  // for messages
  const unsigned char *p = nullptr;
  int64_t n = 0;
  std::string memory;  // what p points to if nothing is mapped
  bool mapped = false;
  dev_t device = 0;  // which file it is, under whatever name
  ino_t inode = 0;
  Bytes() = default;
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  ~Bytes() {
    if (mapped) munmap((void *)p, (size_t)n);
  }
};
using SharedBytes = std::shared_ptr<const Bytes>;

inline SharedBytes bytes_of_string(std::string text, const std::string &path) {
  auto b = std::make_shared<Bytes>();
  b->memory = std::move(text);
  b->path = path;
  b->p = (const unsigned char *)b->memory.data();
  b->n = (int64_t)b->memory.size();
  return b;
}

inline SharedBytes map_file(const std::string &path) {
  const char *name = path.c_str();
  const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(format("%s: cannot be opened: %s", name, strerror(errno)));
  struct stat s;
  void *p = MAP_FAILED;
  const bool known = fstat(fd, &s) == 0, regular = known && S_ISREG(s.st_mode), filled = regular && s.st_size > 0;
  if (filled) p = mmap(nullptr, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (known && !regular) throw Error(format("%s: not a regular file; give a text file or llm.c .bin shards", name));
  if (regular && !filled) throw Error(format("%s: the file is empty", name));
  if (p == MAP_FAILED) throw Error(format("%s: cannot be mapped: %s", name, strerror(error)));
  auto b = std::make_shared<Bytes>();
  b->path = path;
  b->p = (const unsigned char *)p;
  b->n = (int64_t)s.st_size;
  b->mapped = true;
  b->device = s.st_dev;
  b->inode = s.st_ino;
  return b;
}

// ---- a 64-bit hash of our own, the same on every machine
// Words are 8 bytes, little endian, the last block of 4 words filled up with zeros; lane j takes words j, j+4, ...:
// lane = (rotate_left(lane, 29) ^ word) * K. digest: the number of bytes, then each lane, through splitmix64's mixer.

inline uint64_t combine(uint64_t h, uint64_t x) { return mix(mix(h + 0x9E3779B97F4A7C15ull) ^ x); }

struct Hash {
  uint64_t lane[4] = {0x243F6A8885A308D3ull, 0x13198A2E03707344ull,  // the digits of pi
                      0xA4093822299F31D0ull, 0x082EFA98EC4E6C89ull};
  uint64_t bytes = 0;

  void block(const unsigned char *p) {  // 32 bytes
    for (int j = 0; j < 4; j++) {
      const uint64_t word = (uint64_t)little_u32(p + 8 * j + 4) << 32 | little_u32(p + 8 * j);
      lane[j] = ((lane[j] << 29 | lane[j] >> 35) ^ word) * 0x9E3779B97F4A7C15ull;
    }
  }
  void add(const unsigned char *p, int64_t n) {  // n is a multiple of 32 in every call but the last
    bytes += (uint64_t)n;
    for (; n >= 32; n -= 32, p += 32) block(p);
    if (!n) return;
    unsigned char last[32] = {};
    memcpy(last, p, (size_t)n);
    block(last);
  }
  uint64_t digest() const {
    uint64_t h = bytes;
    for (const uint64_t x : lane) h = combine(h, x);
    return h;
  }
};

// How often each byte occurs, and the hash, in one pass. Four tables, so that equal neighbours do not wait
struct Census {
  std::array<int64_t, 256> count{};
  uint64_t hash = 0;
};
inline Census take_census(const unsigned char *p, int64_t n) {
  Census c;
  Hash hash;
  for (int64_t at = 0; at < n; at += 1 << 16) {
    const int64_t size = std::min<int64_t>(1 << 16, n - at);
    const unsigned char *q = p + at;
    uint32_t table[4][256] = {};
    hash.add(q, size);
    int64_t i = 0;
    for (; i + 4 <= size; i += 4)
      for (int j = 0; j < 4; j++) table[j][q[i + j]]++;
    for (; i < size; i++) table[0][q[i]]++;
    for (size_t b = 0; b < 256; b++) c.count[b] += (int64_t)table[0][b] + table[1][b] + table[2][b] + table[3][b];
  }
  c.hash = hash.digest();
  return c;
}

// ---- Tokens: a stream of tokens over pieces of files; copies are cheap and share the files

struct Tokens {
  struct Segment {            // a run of tokens that lie next to each other in a file
    int64_t first, n;         // its place in the stream
    const unsigned char *at;  // one byte a token (text) or two (shards)
    int file;
  };
  std::vector<SharedBytes> files;
  std::vector<Segment> segments;  // ascending, without gaps
  std::array<int32_t, 256> table{};
  bool bytes = true;
  int vocabulary = 0;

  int64_t size() const { return segments.empty() ? 0 : segments.back().first + segments.back().n; }
  int width() const { return bytes ? 1 : 2; }
  // to[0..n-1] = tokens from .. from+n-1 of the stream. Error: outside the stream, or a token outside the vocabulary
  void read(int32_t *to, int64_t from, int64_t n) const;
  Tokens part(int64_t from, int64_t to) const;  // the tokens from .. to-1 as a stream of their own

  void append(int file, const unsigned char *at, int64_t n) {
    if (n) segments.push_back({size(), n, at, file});
  }
  std::vector<Segment>::const_iterator segment_of(int64_t i) const {  // i in [0, size)
    return std::upper_bound(segments.begin(), segments.end(), i,
                            [](int64_t i, const Segment &s) { return i < s.first; }) -
           1;
  }
  [[noreturn]] void refuse(const Segment &s, int64_t i, int token) const {  // token i of a segment
    const Bytes &f = *files[(size_t)s.file];
    const long long offset = (long long)(s.at - f.p + i * width());
    if (bytes)
      throw Error(format("%s: the byte at offset %lld is not in the vocabulary; the file changed while it was in use",
                         f.path.c_str(), offset));
    throw Error(format("%s: token %d at offset %lld, need 0 to %d (the vocabulary); use the tokenizer of these shards",
                       f.path.c_str(), token, offset, vocabulary - 1));
  }
};

inline void Tokens::read(int32_t *to, int64_t from, int64_t n) const {
  if (from < 0 || n < 0 || from > size() - n)
    throw Error(
        format("tokens %lld to %lld of a stream of %lld", (long long)from, (long long)(from + n), (long long)size()));
  if (!n) return;
  for (auto s = segment_of(from); n > 0; s++) {
    const int64_t skip = from - s->first, k = std::min(n, s->n - skip);
    int32_t bad = 0;  // its sign says that a token is negative or >= vocabulary
    if (bytes) {
      const unsigned char *p = s->at + skip;
      for (int64_t i = 0; i < k; i++) bad |= to[i] = table[p[i]];
    } else {
      const unsigned char *p = s->at + 2 * skip;
      for (int64_t i = 0; i < k; i++) {
        to[i] = p[2 * i] | p[2 * i + 1] << 8;
        bad |= vocabulary - 1 - to[i];
      }
    }
    if (bad < 0) {
      const auto wrong = [&](int32_t token) { return token < 0 || token >= vocabulary; };
      const int64_t i = std::find_if(to, to + k, wrong) - to;
      refuse(*s, skip + i, to[i]);
    }
    to += k;
    from += k;
    n -= k;
  }
}

inline Tokens Tokens::part(int64_t from, int64_t to) const {
  Tokens t = *this;
  t.segments.clear();
  for (const Segment &s : segments) {
    const int64_t a = std::max(from, s.first), b = std::min(to, s.first + s.n);
    if (a < b) t.append(s.file, s.at + (a - s.first) * width(), b - a);
  }
  return t;
}

// ---- finding and checking files

inline bool is_stories(const std::string &name) { return name == "stories" || name.compare(0, 8, "stories:") == 0; }

inline SharedBytes make_stories(const std::string &name, uint64_t seed) {
  double mb = DEFAULT_STORIES_MB;
  if (name.size() > 7) {
    char *end = nullptr;
    mb = strtod(name.c_str() + 8, &end);
    if (end == name.c_str() + 8 || *end || !(mb >= 0.001 && mb <= 4096))
      throw Error(format("%s: need stories:MB with MB from 0.001 to 4096", name.c_str()));
  }
  return bytes_of_string(generate_stories((int64_t)std::llround(mb * 1e6), seed), name);
}

// The file of this very name if there is one, else what the pattern matches, in the order of the names' bytes
inline std::vector<std::string> files_of(const std::string &pattern) {
  struct stat s;
  if (stat(pattern.c_str(), &s) == 0) return {pattern};
  std::vector<std::string> found;
  glob_t g;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &g) == 0) {
    for (size_t i = 0; i < g.gl_pathc; i++) {
      const std::string path = g.gl_pathv[i];
      if (path.substr(path.rfind('/') + 1) != "tokenizer.bin") found.push_back(path);
    }
    globfree(&g);
  }
  std::sort(found.begin(), found.end());
  if (found.empty())
    throw Error(
        format("%s: no such file, and as a pattern it matches none; give a text file, .bin shards or "
               "stories[:MB]",
               pattern.c_str()));
  return found;
}

inline bool is_shard(const Bytes &f) {
  const std::string &path = f.path;
  const bool named = path.size() > 4 && path.compare(path.size() - 4, 4, ".bin") == 0;
  return named || (f.n >= 4 && little_u32(f.p) == (uint32_t)SHARD_MAGIC);
}

inline int64_t shard_tokens(const Bytes &f) {  // checks the header
  const char *name = f.path.c_str();
  if (f.n < HEADER_BYTES)
    throw Error(format("%s: %lld bytes, a shard starts with %lld bytes of header", name, (long long)f.n,
                       (long long)HEADER_BYTES));
  const uint32_t magic = little_u32(f.p), version = little_u32(f.p + 4);
  const int64_t n = little_u32(f.p + 8), need = HEADER_BYTES + 2 * n;
  if (magic != (uint32_t)SHARD_MAGIC)
    throw Error(format("%s: magic %u at offset 0, need %d (llm.c shards of uint16 tokens)", name, magic, SHARD_MAGIC));
  if (version != 1) throw Error(format("%s: version %u at offset 4, need 1", name, version));
  if (f.n != need)
    throw Error(format("%s: %lld bytes, need %lld for the %lld tokens of its header; fetch or make it again", name,
                       (long long)f.n, (long long)need, (long long)n));
  return n;
}

inline uint64_t shard_fingerprint(const Bytes &f) {
  constexpr int64_t BLOCKS = 64, SIZE = 4096;
  Hash hash;
  if (f.n <= BLOCKS * SIZE)
    hash.add(f.p, f.n);
  else
    for (int64_t i = 0; i < BLOCKS; i++) hash.add(f.p + (f.n - SIZE) / (BLOCKS - 1) * i, SIZE);
  return combine(hash.digest(), (uint64_t)f.n);
}

struct Source {  // what one --data or --val names
  std::vector<SharedBytes> files;
  bool bytes = true;
};
inline Source open_source(const std::string &name, uint64_t stories_seed) {
  Source s;
  if (is_stories(name)) {
    s.files.push_back(make_stories(name, stories_seed));
    return s;
  }
  for (const std::string &path : files_of(name)) s.files.push_back(map_file(path));
  s.bytes = !is_shard(*s.files[0]);
  for (const auto &f : s.files) {
    if (is_shard(*f) == s.bytes)
      throw Error(format("%s and %s: one is text and one is a shard", s.files[0]->path.c_str(), f->path.c_str()));
    if (!s.bytes) shard_tokens(*f);
  }
  if (s.bytes && s.files.size() > 1)
    throw Error(
        format("%s: matches %zu text files, need one (only .bin shards are joined)", name.c_str(), s.files.size()));
  return s;
}

// ---- split

struct Split {
  int64_t train, val, test;
};  // millionths of a percent, 100,000,000 together

// "90/5/5", "99.5/0.5": two or three decimal numbers, at most six places, that add up to 100 exactly
inline Split parse_split(const std::string &text) {
  const auto bad = [&] {
    return Error(format("split '%s': need two or three percentages like 90/5/5 that add up to 100", text.c_str()));
  };
  int64_t part[3] = {0, 0, 0};
  size_t at = 0;
  int parts = 0;
  for (bool more = true; more; parts++) {
    if (parts == 3) throw bad();
    int64_t value = 0;
    int digits = 0, places = -1;
    for (; at < text.size() && text[at] != '/'; at++) {
      if (text[at] == '.' && places < 0)
        places = 0;
      else if (text[at] < '0' || text[at] > '9' || digits > 9 || places == 6)
        throw bad();
      else {
        value = value * 10 + text[at] - '0';
        digits++;
        places += places >= 0;
      }
    }
    if (!digits) throw bad();
    for (int i = std::max(places, 0); i < 6; i++) value *= 10;
    part[parts] = value;
    more = at < text.size();
    at++;
  }
  if (parts < 2 || part[0] + part[1] + part[2] != 100000000) throw bad();
  return {part[0], part[1], part[2]};
}

// floor(n * share / 100,000,000) without overflow
inline int64_t share_of(int64_t n, int64_t share) {
  constexpr int64_t WHOLE = 100000000;
  return n / WHOLE * share + n % WHOLE * share / WHOLE;
}

// ---- Corpus

struct CorpusOptions {
  std::string data = "stories", val, split = "90/5/5";
  bool skip_unknown = false;
  std::string tokenizer_path;        // "": tokenizer.bin beside the shards if there is one
  const Tokenizer *fixed = nullptr;  // the vocabulary of a checkpoint: use it instead of deriving one
};

struct Corpus {
  Tokenizer tokenizer;
  Tokens train, val, test;
  uint64_t fingerprint = 0;
  std::string description;      // one line
  int64_t unknown_skipped = 0;  // bytes left out under skip_unknown

  // Bytes of the decoded text of n tokens; 0 if token data came without a tokenizer.bin
  double bytes_of(const int32_t *tokens, int64_t n) const {
    if (tokenizer.bytes) return (double)n;
    int64_t sum = 0;
    if (tokenizer.can_decode())
      for (int64_t i = 0; i < n; i++) sum += (int64_t)tokenizer.decode(tokens[i]).size();
    return (double)sum;
  }
};

struct TextPart {  // bytes from .. to-1 of a text, and where they go
  const char *name;
  SharedBytes file;
  int64_t from, to;
  Tokens *stream;
  Census census;
};

// The stream of a part; unknown bytes are refused, or left out and counted
inline int64_t text_stream(TextPart &part, const Tokenizer &tokenizer, bool skip_unknown) {
  Tokens &t = *part.stream;
  t.files = {part.file};
  t.vocabulary = tokenizer.vocabulary;
  for (size_t b = 0; b < 256; b++) t.table[b] = tokenizer.byte_to_token[b];
  int64_t unknown = 0;
  for (size_t b = 0; b < 256; b++) unknown += t.table[b] < 0 ? part.census.count[b] : 0;
  const unsigned char *p = part.file->p;
  if (!unknown) {
    t.append(0, p + part.from, part.to - part.from);
    return 0;
  }
  int64_t begin = part.from;
  for (int64_t i = part.from; i < part.to; i++) {
    if (t.table[p[i]] >= 0) continue;
    if (!skip_unknown)
      throw Error(
          format("%s: %lld bytes of the %s part are not in the vocabulary (%d bytes of the training text), the "
                 "first %s at offset %lld; --skip-unknown leaves them out",
                 part.file->path.c_str(), (long long)unknown, part.name, tokenizer.vocabulary, show_byte(p[i]).c_str(),
                 (long long)i));
    t.append(0, p + begin, i - begin);
    begin = i + 1;
  }
  t.append(0, p + begin, part.to - begin);
  return unknown;
}

inline void open_text(Corpus &c, const CorpusOptions &o, const Source &data, const Source &val) {
  const SharedBytes &file = data.files[0];
  std::vector<TextPart> parts;
  if (o.val.empty()) {
    const Split split = parse_split(o.split);
    const int64_t a = share_of(file->n, split.train), b = share_of(file->n, split.train + split.val);
    parts = {{"training", file, 0, a, &c.train, {}},
             {"validation", file, a, b, &c.val, {}},
             {"test", file, b, file->n, &c.test, {}}};
  } else {
    const SharedBytes &other = val.files[0];
    parts = {{"training", file, 0, file->n, &c.train, {}}, {"validation", other, 0, other->n, &c.val, {}}};
  }
  for (TextPart &part : parts) {
    part.census = take_census(part.file->p + part.from, part.to - part.from);
    c.fingerprint = combine(c.fingerprint, part.census.hash);
  }
  if (o.fixed) {
    c.tokenizer = *o.fixed;
  } else {
    std::array<bool, 256> used{};
    for (size_t b = 0; b < 256; b++) used[b] = parts[0].census.count[b] > 0;
    c.tokenizer = byte_tokenizer(used);
    if (!c.tokenizer.vocabulary) return;  // no training part: open_corpus says so
  }
  for (TextPart &part : parts) c.unknown_skipped += text_stream(part, c.tokenizer, o.skip_unknown);
}

inline Tokens shard_stream(const Source &source, int vocabulary) {
  Tokens t;
  t.files = source.files;
  t.bytes = false;
  t.vocabulary = vocabulary;
  for (size_t i = 0; i < t.files.size(); i++) t.append((int)i, t.files[i]->p + HEADER_BYTES, shard_tokens(*t.files[i]));
  return t;
}

inline Tokenizer shard_tokenizer(const CorpusOptions &o, const Source &data) {
  if (o.fixed) return *o.fixed;
  if (!o.tokenizer_path.empty()) return read_tokenizer_bin(o.tokenizer_path);
  const std::string &first = data.files[0]->path;
  const size_t slash = first.rfind('/');
  const std::string beside = (slash == std::string::npos ? "" : first.substr(0, slash + 1)) + "tokenizer.bin";
  if (access(beside.c_str(), F_OK) == 0) return read_tokenizer_bin(beside);
  return token_tokenizer(GPT2_VOCABULARY);
}

inline void open_shards(Corpus &c, const CorpusOptions &o, const Source &data, const Source &val) {
  c.tokenizer = shard_tokenizer(o, data);
  const Tokens all = shard_stream(data, c.tokenizer.vocabulary);
  for (const auto &f : data.files) c.fingerprint = combine(c.fingerprint, shard_fingerprint(*f));
  if (!o.val.empty()) {
    c.train = all;
    c.val = shard_stream(val, c.tokenizer.vocabulary);
    for (const auto &f : val.files) c.fingerprint = combine(c.fingerprint, shard_fingerprint(*f));
    c.fingerprint = combine(c.fingerprint, (uint64_t)all.size());
  } else {
    const Split split = parse_split(o.split);
    const int64_t a = share_of(all.size(), split.train), b = share_of(all.size(), split.train + split.val);
    c.train = all.part(0, a);
    c.val = all.part(a, b);
    c.test = all.part(b, all.size());
    c.fingerprint = combine(combine(c.fingerprint, (uint64_t)a), (uint64_t)b);
  }
}

inline void check_sources(const CorpusOptions &o, const Source &data, const Source &val) {
  if (o.fixed && o.fixed->bytes != data.bytes)
    throw Error(format("%s: %s, but the checkpoint was trained on %s", o.data.c_str(),
                       data.bytes ? "text" : "token shards", data.bytes ? "tokens" : "bytes of text"));
  if (o.val.empty()) return;
  if (val.bytes != data.bytes)
    throw Error(format("%s and %s: one is text and one is .bin shards; give training and validation data of one kind",
                       o.data.c_str(), o.val.c_str()));
  for (const auto &a : data.files)
    for (const auto &b : val.files)
      if (a->mapped && b->mapped && a->device == b->device && a->inode == b->inode)
        throw Error(
            format("%s is in the training data and in the validation data; give different files, or only "
                   "--data and --split",
                   b->path.c_str()));
}

inline Corpus open_corpus(const CorpusOptions &o) {
  const Source data = open_source(o.data, STORIES_SEED);
  const Source val = o.val.empty() ? Source{} : open_source(o.val, STORIES_VAL_SEED);
  check_sources(o, data, val);
  Corpus c;
  data.bytes ? open_text(c, o, data, val) : open_shards(c, o, data, val);
  if (!c.train.size())
    throw Error(format("%s: the training part is empty; use more data or another split than %s", o.data.c_str(),
                       o.split.c_str()));
  c.description = format("%s: %lld training, %lld validation, %lld test %s, vocabulary %d%s", o.data.c_str(),
                         (long long)c.train.size(), (long long)c.val.size(), (long long)c.test.size(),
                         data.bytes ? "bytes" : "tokens", c.tokenizer.vocabulary,
                         c.tokenizer.can_decode() ? "" : " (GPT-2; no tokenizer.bin, so no decoding)");
  if (c.unknown_skipped) c.description += format(", %lld unknown bytes left out", (long long)c.unknown_skipped);
  return c;
}

// ---- training windows

enum class Order { shuffle, random, sequential };

// The window of sequence number s = 0, 1, 2, ... over the whole run is T+1 tokens from start(s): inputs are the first
// T, targets the last T. W = (size-1)/T windows that share no prediction: window i starts at iT.
//   shuffle      start = T * permute(key of epoch s / W, s mod W, W)
//   random       start = uniform in [0, size-T-1]
//   sequential   start = T * (s mod W)
// with key = rng::key_of(seed, "order"), and the key of an epoch the low 64 bits of philox(key, epoch).
struct Windows {
  Tokens tokens;
  int64_t T, windows;  // windows = W
  Order order;
  uint64_t key;

  // `what` names the data in the message. Error: fewer than T+1 tokens
  Windows(const Tokens &tokens, int64_t T, Order order, uint64_t seed, const char *what = "training data")
      : tokens(tokens),
        T(T),
        windows(T > 0 ? (tokens.size() - 1) / T : 0),
        order(order),
        key(rng::key_of(seed, "order")) {
    if (T < 1 || tokens.size() < T + 1)
      throw Error(format("%s: %lld tokens, need %lld for one window of %lld; use more data or a smaller --context",
                         what, (long long)tokens.size(), (long long)T + 1, (long long)T));
  }

  int64_t start(uint64_t s) const {
    if (order == Order::random) return (int64_t)rng::below(key, s, (uint64_t)(tokens.size() - T));
    const uint64_t W = (uint64_t)windows, i = s % W;
    if (order == Order::sequential) return (int64_t)i * T;
    const rng::Words w = rng::philox(key, s / W);
    return (int64_t)rng::permute((uint64_t)w.x[1] << 32 | w.x[0], i, W) * T;
  }

  // inputs, targets: (count, T): the sequences first .. first+count-1
  void batch(int32_t *inputs, int32_t *targets, uint64_t first, int64_t count) const {
    for (int64_t b = 0; b < count; b++) {
      const int64_t at = start(first + (uint64_t)b);
      tokens.read(inputs + b * T, at, T);
      tokens.read(targets + b * T, at + 1, T);
    }
  }
};

// ---- evaluation windows

struct EvalWindows {
  Tokens tokens;
  int64_t T, predictions, windows;

  // limit: 0 = all, else the predictions wanted, rounded down to whole windows, at least one. Error: under 2 tokens
  EvalWindows(const Tokens &tokens, int64_t T, int64_t limit = 0, const char *what = "validation data")
      : tokens(tokens),
        T(T),
        predictions(tokens.size() - 1) {
    if (tokens.size() < 2 || T < 1)
      throw Error(format("%s: %lld tokens, need at least 2 to predict one; use more data or another split", what,
                         (long long)tokens.size()));
    if (limit > 0 && limit < predictions) predictions = std::min(predictions, std::max(limit / T, (int64_t)1) * T);
    windows = divide_up(predictions, T);
  }

  int64_t length(int64_t w) const { return std::min(T, predictions - w * T); }
  void read(int32_t *inputs, int32_t *targets, int64_t w) const {  // length(w) tokens each
    tokens.read(inputs, w * T, length(w));
    tokens.read(targets, w * T + 1, length(w));
  }
  // Windows first, first+1, ... of one length, at most `most` and before `end`: how many were read
  int64_t batch(std::vector<int32_t> &inputs, std::vector<int32_t> &targets, int64_t first, int64_t most,
                int64_t end) const {
    const int64_t size = length(first);
    int64_t n = 0;
    inputs.resize((size_t)(most * size));
    targets.resize((size_t)(most * size));
    for (; n < most && first + n < end && length(first + n) == size; n++)
      read(&inputs[(size_t)(n * size)], &targets[(size_t)(n * size)], first + n);
    return n;
  }

  // Bytes of the decoded text of all targets; for byte data the number of predictions; 0 if it cannot be decoded
  int64_t decoded_bytes(const Tokenizer &tokenizer) const {
    if (tokenizer.bytes) return predictions;
    if (!tokenizer.can_decode()) return 0;
    std::vector<int32_t> targets((size_t)std::min(T, predictions));
    int64_t sum = 0;
    for (int64_t w = 0; w < windows; w++) {
      tokens.read(targets.data(), w * T + 1, length(w));
      for (int64_t i = 0; i < length(w); i++) sum += (int64_t)tokenizer.decode(targets[(size_t)i]).size();
    }
    return sum;
  }
};

}  // namespace data
