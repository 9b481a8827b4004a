// tokens.cuh: a stream of tokens over pieces of files. Copies are cheap and share the files.
//
// Text has one byte a token, which goes through a table of 256; shards have two. A token is checked where it is read.
// Errors (Error): a place outside the stream; a token outside the vocabulary, with path and offset.
#pragma once
#include "bytes.cuh"

namespace data {

struct Tokens {
  struct Segment {     // a run of tokens that lie next to each other in a file
    int64_t first, n;  // its place in the stream
    int64_t at;        // its offset in the file; one byte a token (text) or two (shards)
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

  void append(int file, int64_t at, int64_t n) {
    if (n) segments.push_back({size(), n, at, file});
  }
  std::vector<Segment>::const_iterator segment_of(int64_t i) const {  // i in [0, size)
    return std::upper_bound(segments.begin(), segments.end(), i,
                            [](int64_t i, const Segment &s) { return i < s.first; }) -
           1;
  }
  [[noreturn]] void refuse(const Segment &s, int64_t i, int token) const {  // token i of a segment
    const Bytes &f = *files[(size_t)s.file];
    const long long offset = (long long)(s.at + i * width());
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
  std::vector<unsigned char> room;
  for (auto s = segment_of(from); n > 0; s++) {
    const int64_t skip = from - s->first, k = std::min(n, s->n - skip);
    const unsigned char *p = files[(size_t)s->file]->view(s->at + skip * width(), k * width(), room);
    int32_t bad = 0;  // its sign says that a token is negative or >= vocabulary
    if (bytes) {
      for (int64_t i = 0; i < k; i++) bad |= to[i] = table[p[i]];
    } else {
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

}  // namespace data
