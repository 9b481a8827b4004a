// source.cuh: what one --data or --val names: the built-in stories, a text file or the shards that match a pattern,
// found, opened and checked as far as their headers go.
#pragma once
#include <glob.h>
#include <cmath>
#include "bytes.cuh"

namespace data {

constexpr int32_t SHARD_MAGIC = 20240520;  // llm.c's, GPT-2 tokens in uint16
constexpr double DEFAULT_STORIES_MB = 8;   // 1 MB = 1,000,000 bytes

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
  std::vector<unsigned char> room;
  return named || (f.n >= 4 && little_u32(f.view(0, 4, room)) == (uint32_t)SHARD_MAGIC);
}

inline int64_t shard_tokens(const Bytes &f) {  // checks the header
  const char *name = f.path.c_str();
  if (f.n < HEADER_BYTES)
    throw Error(format("%s: %lld bytes, a shard starts with %lld bytes of header", name, (long long)f.n,
                       (long long)HEADER_BYTES));
  std::vector<unsigned char> room;
  const unsigned char *p = f.view(0, HEADER_BYTES, room);
  const uint32_t magic = little_u32(p), version = little_u32(p + 4);
  const int64_t n = little_u32(p + 8), need = HEADER_BYTES + 2 * n;
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
  std::vector<unsigned char> room;
  if (f.n <= BLOCKS * SIZE)
    hash.add(f.view(0, f.n, room), f.n);
  else
    for (int64_t i = 0; i < BLOCKS; i++) hash.add(f.view((f.n - SIZE) / (BLOCKS - 1) * i, SIZE, room), SIZE);
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
  for (const std::string &path : files_of(name)) s.files.push_back(open_file(path));
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

}  // namespace data
