// dataset.cuh: from a file (or the built-in stories) to training, validation and test streams of tokens.
//
//   open_corpus(options) -> Corpus: tokenizer and three Tokens (train, val, test); windows.cuh makes batches of them
//
// Sources of tokens, all read where they are needed, none prepared:
//   text       a file; byte -> token through a table of 256. One pass at the start counts the bytes and hashes them.
//              LF, CR, NUL and bytes above 127 are bytes like any other.
//   shards     llm.c .bin files, PATH may be a glob pattern, sorted by name, tokenizer.bin among them left out: 256
//              int32 (little endian): magic 20240520, version 1, number of tokens; then uint16 tokens, nothing after.
//              Never read as a whole: the token range is checked where tokens are read.
//   stories    stories[:MB] of stories.cuh, in memory
//
// Splits: with `val`, train = data and test is empty. Else a/b/c percent of the stream in this order (split.cuh).
//
// fingerprint: 64 bits that identify the data. Text and stories: hash of every byte of each part. Shards: hash of size
// and 64 evenly spaced blocks of 4 KiB of each file (the header among them), and of the split.
//
// Errors (Error): whatever cannot be read or does not fit together; the message names path, offset, have and need.
#pragma once
#include <functional>
#include "source.cuh"
#include "split.cuh"
#include "windows.cuh"

namespace data {

constexpr int GPT2_VOCABULARY = 50257;  // what a shard's magic means when no tokenizer.bin says otherwise
constexpr uint64_t STORIES_SEED = 1, STORIES_VAL_SEED = 2;

struct CorpusOptions {
  std::string data = "stories", val, split = "90/5/5";
  bool skip_unknown = false;
  const Tokenizer *fixed = nullptr;  // the vocabulary of a checkpoint: use it instead of deriving one
};

struct Corpus {
  Tokenizer tokenizer;
  Tokens train, val, test;
  uint64_t fingerprint = 0;
  std::string description;                    // one line
  int64_t unknown_skipped = 0;                // bytes left out under skip_unknown
  std::function<uint64_t()> fingerprint_now;  // that of the files as they are now
};

struct TextPart {  // bytes from .. to-1 of a text, and where they go
  const char *name;
  SharedBytes file;
  int64_t from, to;
  Tokens *stream;
  Census census;
};

[[noreturn]] inline void refuse_unknown(const TextPart &part, const Tokenizer &tokenizer, int64_t unknown,
                                        unsigned char first, int64_t offset) {
  throw Error(
      format("%s: %lld bytes of the %s part are not in the vocabulary (%d bytes of the training text), the first %s at "
             "offset %lld; --skip-unknown leaves them out",
             part.file->path.c_str(), (long long)unknown, part.name, tokenizer.vocabulary, show_byte(first).c_str(),
             (long long)offset));
}
// The stream of a part; unknown bytes are refused, or left out and counted
inline int64_t text_stream(TextPart &part, const Tokenizer &tokenizer, bool skip_unknown) {
  Tokens &t = *part.stream;
  t.files = {part.file};
  t.vocabulary = tokenizer.vocabulary;
  for (size_t b = 0; b < 256; b++) t.table[b] = tokenizer.byte_to_token[b];
  int64_t unknown = 0;
  for (size_t b = 0; b < 256; b++) unknown += t.table[b] < 0 ? part.census.count[b] : 0;
  if (!unknown) {
    t.append(0, part.from, part.to - part.from);
    return 0;
  }
  std::vector<unsigned char> room;
  int64_t begin = part.from;
  for (int64_t at = part.from; at < part.to; at += CHUNK) {
    const int64_t size = std::min(CHUNK, part.to - at);
    const unsigned char *p = part.file->view(at, size, room);
    for (int64_t i = 0; i < size; i++) {
      if (t.table[p[i]] >= 0) continue;
      if (!skip_unknown) refuse_unknown(part, tokenizer, unknown, p[i], at + i);
      t.append(0, begin, at + i - begin);
      begin = at + i + 1;
    }
  }
  t.append(0, begin, part.to - begin);
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
    part.census = take_census(*part.file, part.from, part.to);
    c.fingerprint = combine(c.fingerprint, part.census.hash);
  }
  c.fingerprint_now = [parts] {
    uint64_t f = 0;
    for (const TextPart &part : parts) f = combine(f, take_census(*part.file, part.from, part.to).hash);
    return f;
  };
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
  for (size_t i = 0; i < t.files.size(); i++) t.append((int)i, HEADER_BYTES, shard_tokens(*t.files[i]));
  return t;
}

inline Tokenizer shard_tokenizer(const CorpusOptions &o, const Source &data) {
  if (o.fixed) return *o.fixed;
  const std::string &first = data.files[0]->path;
  const size_t slash = first.rfind('/');
  const std::string beside = (slash == std::string::npos ? "" : first.substr(0, slash + 1)) + "tokenizer.bin";
  if (access(beside.c_str(), F_OK) == 0) return read_tokenizer_bin(beside);
  return token_tokenizer(GPT2_VOCABULARY);
}

inline void open_shards(Corpus &c, const CorpusOptions &o, const Source &data, const Source &val) {
  c.tokenizer = shard_tokenizer(o, data);
  const Tokens all = shard_stream(data, c.tokenizer.vocabulary);
  std::vector<uint64_t> after;  // what is mixed in behind the files
  if (!o.val.empty()) {
    c.train = all;
    c.val = shard_stream(val, c.tokenizer.vocabulary);
    after = {(uint64_t)all.size()};
  } else {
    const Split split = parse_split(o.split);
    const int64_t a = share_of(all.size(), split.train), b = share_of(all.size(), split.train + split.val);
    c.train = all.part(0, a);
    c.val = all.part(a, b);
    c.test = all.part(b, all.size());
    after = {(uint64_t)a, (uint64_t)b};
  }
  std::vector<SharedBytes> files = data.files;
  files.insert(files.end(), val.files.begin(), val.files.end());
  c.fingerprint_now = [files, after] {
    uint64_t f = 0;
    for (const SharedBytes &file : files) f = combine(f, shard_fingerprint(*file));
    for (const uint64_t x : after) f = combine(f, x);
    return f;
  };
  c.fingerprint = c.fingerprint_now();
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
      if (a->same_file(*b))
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

}  // namespace data
