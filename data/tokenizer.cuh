// tokenizer.cuh: token <-> bytes. Two kinds:
//
//   bytes    one token per byte; the vocabulary is the bytes that occur in the training text, in ascending order
//   tokens   llm.c's tokenizer.bin (GPT-2): token -> bytes; text is encoded by the longest piece that matches
//
// tokenizer.bin: 256 int32 (little endian): magic 20240328, version 1 or 2, V, [end of text]; then V times one uint8
//   length >= 1 and that many bytes; nothing after.
// to_text / from_text: an exact ASCII form for the metadata of checkpoints:
//   bytes:0a20616263            the sorted bytes in hex, two digits each
//   tokens:50257                V; the pieces are not known
//   tokens:3:61,6263,0a         V and its pieces in hex
//
// Errors (Error): an unknown byte with its offset; a token outside 0..V-1; a damaged file or text with the place.
#pragma once
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>
#include "layers/device.cuh"

namespace data {

constexpr int32_t TOKENIZER_MAGIC = 20240328;  // llm.c's
constexpr int64_t HEADER_BYTES = 1024;         // 256 int32 before the payload of each llm.c file

inline uint32_t little_u32(const unsigned char *p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

// 'a' or \x0d: a byte as an error message shows it
inline std::string show_byte(int byte) {
  return byte > 32 && byte < 127 ? format("'%c' (0x%02x)", byte, byte) : format("0x%02x", byte);
}

inline std::string to_hex(const std::string &bytes) {
  std::string s;
  for (const char c : bytes) {
    s += "0123456789abcdef"[(unsigned char)c >> 4];
    s += "0123456789abcdef"[(unsigned char)c & 15];
  }
  return s;
}

// Throws Error at an odd length or a character that is not a lower-case hex digit
inline std::string from_hex(const std::string &hex) {
  const auto digit = [&](size_t i) {
    const char c = hex[i];
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    throw Error(format("tokenizer text: character %zu of a hex string is %s, need 0-9 a-f; the checkpoint is damaged",
                       i, show_byte((unsigned char)c).c_str()));
  };
  if (hex.size() % 2) throw Error(format("tokenizer text: %zu hex digits, need an even number", hex.size()));
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += (char)(digit(i) << 4 | digit(i + 1));
  return bytes;
}

struct Tokenizer {
  int vocabulary = 0;
  bool bytes = true;
  std::array<int, 256> byte_to_token{};  // bytes kind only; -1: not in the vocabulary
  std::vector<std::string> piece;        // token -> bytes; empty for token data without a tokenizer.bin
  int end_of_text = -1;                  // tokens kind, version 2 of the file; -1: not known; not part of to_text

  Tokenizer() { byte_to_token.fill(-1); }

  bool can_decode() const { return !piece.empty(); }
  const std::string &decode(int token) const;
  std::vector<int32_t> encode(const std::string &text) const;
  std::string to_text() const;
  static Tokenizer from_text(const std::string &text);
};

// The bytes kind with exactly these bytes (used[b] != 0)
inline Tokenizer byte_tokenizer(const std::array<bool, 256> &used) {
  Tokenizer t;
  for (int b = 0; b < 256; b++) {
    if (!used[(size_t)b]) continue;
    t.byte_to_token[(size_t)b] = t.vocabulary++;
    t.piece.push_back(std::string(1, (char)b));
  }
  return t;
}
inline Tokenizer byte_tokenizer(const unsigned char *p, int64_t n) {
  std::array<bool, 256> used{};
  for (int64_t i = 0; i < n; i++) used[p[i]] = true;
  return byte_tokenizer(used);
}

// The tokens kind of which only the size is known
inline Tokenizer token_tokenizer(int vocabulary) {
  Tokenizer t;
  t.bytes = false;
  t.vocabulary = vocabulary;
  return t;
}

inline const std::string &Tokenizer::decode(int token) const {
  if (token < 0 || token >= vocabulary)
    throw Error(format("token %d cannot be decoded: the vocabulary is 0..%d", token, vocabulary - 1));
  if (piece.empty())
    throw Error(
        format("token %d cannot be decoded: the data came without a tokenizer.bin; put llm.c's tokenizer.bin "
               "beside the shards",
               token));
  return piece[(size_t)token];
}

// Greedy: at each place the longest piece that matches; of equal pieces the lowest token
inline std::vector<int32_t> encode_pieces(const Tokenizer &tokenizer, const std::string &text) {
  std::unordered_map<std::string, int32_t> token_of;
  size_t longest = 0;
  for (size_t i = 0; i < tokenizer.piece.size(); i++) {
    token_of.emplace(tokenizer.piece[i], (int32_t)i);
    longest = std::max(longest, tokenizer.piece[i].size());
  }
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t n = std::min(longest, text.size() - at);
    auto found = token_of.end();
    for (; n > 0 && (found = token_of.find(text.substr(at, n))) == token_of.end(); n--) {}
    if (!n)
      throw Error(format("byte %s at offset %zu of the text is in no token of the vocabulary (%d tokens)",
                         show_byte((unsigned char)text[at]).c_str(), at, tokenizer.vocabulary));
    tokens.push_back(found->second);
    at += n;
  }
  return tokens;
}

inline std::vector<int32_t> Tokenizer::encode(const std::string &text) const {
  if (!bytes && piece.empty() && !text.empty())
    throw Error(
        "text cannot be encoded: the data came without a tokenizer.bin; put llm.c's tokenizer.bin beside the "
        "shards");
  if (!bytes) return encode_pieces(*this, text);
  std::vector<int32_t> tokens(text.size());
  for (size_t i = 0; i < text.size(); i++)
    if ((tokens[i] = byte_to_token[(unsigned char)text[i]]) < 0)
      throw Error(format("byte %s at offset %zu of the text is not in the vocabulary (%d bytes of the training text)",
                         show_byte((unsigned char)text[i]).c_str(), i, vocabulary));
  return tokens;
}

inline std::string Tokenizer::to_text() const {
  std::string s = bytes ? "bytes:" : format("tokens:%d", vocabulary);
  const auto before = [&](size_t i) {  // a piece
    if (bytes) return "";
    return i ? "," : ":";
  };
  for (size_t i = 0; i < piece.size(); i++) s += before(i) + to_hex(piece[i]);
  return s;
}

inline Tokenizer bytes_from_text(const std::string &hex) {
  const std::string sorted = from_hex(hex);
  const Tokenizer t = byte_tokenizer((const unsigned char *)sorted.data(), (int64_t)sorted.size());
  if (sorted.empty() || t.to_text() != "bytes:" + hex)
    throw Error("tokenizer text: the bytes are not in ascending order or there are none; the checkpoint is damaged");
  return t;
}

inline Tokenizer tokens_from_text(const std::string &text) {
  size_t at = text.find(':');
  const std::string number = text.substr(0, at);
  if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos)
    throw Error(format("tokenizer text: vocabulary '%.20s', need a number; the checkpoint is damaged", number.c_str()));
  Tokenizer t = token_tokenizer(std::stoi(number));
  while (at != std::string::npos) {
    const size_t next = text.find(',', at + 1);
    t.piece.push_back(from_hex(text.substr(at + 1, next == std::string::npos ? next : next - at - 1)));
    at = next;
  }
  if (t.vocabulary < 1 || (!t.piece.empty() && (int64_t)t.piece.size() != t.vocabulary))
    throw Error(format("tokenizer text: %zu pieces for a vocabulary of %d; the checkpoint is damaged", t.piece.size(),
                       t.vocabulary));
  return t;
}

inline Tokenizer Tokenizer::from_text(const std::string &text) {
  if (text.compare(0, 6, "bytes:") == 0) return bytes_from_text(text.substr(6));
  if (text.compare(0, 7, "tokens:") == 0) return tokens_from_text(text.substr(7));
  throw Error(format("tokenizer text '%.20s': need bytes:... or tokens:...; the checkpoint is damaged", text.c_str()));
}

// The payload of a tokenizer.bin that is in memory; `path` is for messages
inline Tokenizer parse_tokenizer_bin(const std::string &file, const std::string &path) {
  const char *name = path.c_str();
  const unsigned char *p = (const unsigned char *)file.data();
  const int64_t size = (int64_t)file.size();
  if (size < HEADER_BYTES)
    throw Error(format("%s: %lld bytes, a tokenizer.bin starts with %lld bytes of header", name, (long long)size,
                       (long long)HEADER_BYTES));
  const uint32_t magic = little_u32(p), version = little_u32(p + 4), vocabulary = little_u32(p + 8);
  if (magic != (uint32_t)TOKENIZER_MAGIC)
    throw Error(format("%s: magic %u at offset 0, need %d (llm.c's tokenizer.bin)", name, magic, TOKENIZER_MAGIC));
  if (version != 1 && version != 2) throw Error(format("%s: version %u at offset 4, need 1 or 2", name, version));
  if (vocabulary < 1 || vocabulary > 1 << 24)
    throw Error(format("%s: vocabulary %u at offset 8, need 1 to %d", name, vocabulary, 1 << 24));
  Tokenizer t = token_tokenizer((int)vocabulary);
  if (version == 2) t.end_of_text = (int)little_u32(p + 12);
  int64_t at = HEADER_BYTES;
  for (uint32_t i = 0; i < vocabulary; i++) {
    const int64_t n = at < size ? p[at] : 1;
    if (!n) throw Error(format("%s: token %u at offset %lld is empty, need 1 to 255 bytes", name, i, (long long)at));
    if (at + 1 + n > size)
      throw Error(format("%s: the file ends at %lld bytes inside token %u of %u; fetch it again", name, (long long)size,
                         i, vocabulary));
    t.piece.push_back(file.substr((size_t)at + 1, (size_t)n));
    at += 1 + n;
  }
  if (at != size)
    throw Error(format("%s: %lld bytes, need %lld for %u tokens; fetch it again", name, (long long)size, (long long)at,
                       vocabulary));
  return t;
}

inline Tokenizer read_tokenizer_bin(const std::string &path) {
  FILE *f = fopen(path.c_str(), "rb");
  if (!f) throw Error(format("%s: cannot be opened: %s", path.c_str(), strerror(errno)));
  std::string file;
  for (int c; (c = getc(f)) != EOF;) file += (char)c;  // under a megabyte, once
  const bool failed = ferror(f);
  fclose(f);
  if (failed) throw Error(format("%s: cannot be read", path.c_str()));
  return parse_tokenizer_bin(file, path);
}

}  // namespace data
