// bytes.cuh: the bytes of a file, mapped and never copied, or of a string in memory; their hash and their census.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <memory>
#include "stories.cuh"    // mix
#include "tokenizer.cuh"  // little_u32

namespace data {

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

}  // namespace data
