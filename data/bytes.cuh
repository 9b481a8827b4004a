// bytes.cuh: the bytes of a file, read where they are needed, or of a string in memory; their hash and their census.
//
// Data are what they were: every read looks whether the file still has the size and time of change that it had when it
// was opened. One that is truncated, grows or is written to under a run is an Error, not other data and no SIGBUS; one that
// is renamed or removed stays readable.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <memory>
#include <vector>
#include "stories.cuh"    // mix
#include "tokenizer.cuh"  // little_u32

namespace data {

struct Bytes {
  std::string path;  // for messages
  int64_t n = 0;
  std::string memory;  // if there is no file
  int fd = -1;
  struct stat opened = {};
  Bytes() = default;
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  ~Bytes() {
    if (fd >= 0) close(fd);
  }
  bool is_file() const { return fd >= 0; }
  bool same_file(const Bytes &o) const {  // under whatever name
    return is_file() && o.is_file() && opened.st_dev == o.opened.st_dev && opened.st_ino == o.opened.st_ino;
  }
  // The bytes from .. from+size-1, where they lie or in `room`, until the next call with it. Error: the file changed
  const unsigned char *view(int64_t from, int64_t size, std::vector<unsigned char> &room) const {
    if (!is_file()) return (const unsigned char *)memory.data() + from;
    refuse_changed();
    room.resize((size_t)size);
    for (int64_t at = 0; at < size;) {
      const ssize_t got = pread(fd, &room[(size_t)at], (size_t)(size - at), (off_t)(from + at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error(format("%s: cannot be read: %s", path.c_str(), strerror(errno)));
      if (got == 0) refuse_changed();
      if (got == 0) throw Error(format("%s: ends at offset %lld", path.c_str(), (long long)(from + at)));
      at += got;
    }
    return room.data();
  }
  void refuse_changed() const {
    struct stat now;
    if (fstat(fd, &now)) throw Error(format("%s: cannot be looked at: %s", path.c_str(), strerror(errno)));
    if (now.st_size != opened.st_size)
      throw Error(format("%s: the file changed while it was in use: %lld bytes, it had %lld; restore it and --resume",
                         path.c_str(), (long long)now.st_size, (long long)opened.st_size));
    if (now.st_mtim.tv_sec != opened.st_mtim.tv_sec || now.st_mtim.tv_nsec != opened.st_mtim.tv_nsec)
      throw Error(format("%s: the file was written to while it was in use; restore it and --resume", path.c_str()));
  }
};
using SharedBytes = std::shared_ptr<const Bytes>;

inline SharedBytes bytes_of_string(std::string text, const std::string &path) {
  auto b = std::make_shared<Bytes>();
  b->memory = std::move(text);
  b->path = path;
  b->n = (int64_t)b->memory.size();
  return b;
}

inline int open_to_read(const char *name) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, fd = open(name, flags);
  struct rlimit limit;
  if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit)) return fd;
  limit.rlim_cur = limit.rlim_max;  // data of more than a thousand shards
  if (setrlimit(RLIMIT_NOFILE, &limit)) errno = EMFILE;
  return open(name, flags);
}
inline SharedBytes open_file(const std::string &path) {
  const char *name = path.c_str();
  auto b = std::make_shared<Bytes>();
  b->path = path;
  b->fd = open_to_read(name);
  if (b->fd < 0) throw Error(format("%s: cannot be opened: %s", name, strerror(errno)));
  if (fstat(b->fd, &b->opened)) throw Error(format("%s: cannot be looked at: %s", name, strerror(errno)));
  if (!S_ISREG(b->opened.st_mode))
    throw Error(format("%s: not a regular file; give a text file or llm.c .bin shards", name));
  b->n = (int64_t)b->opened.st_size;
  if (!b->n) throw Error(format("%s: the file is empty", name));
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
constexpr int64_t CHUNK = 1 << 16;  // bytes that are read at once; a multiple of the hash's blocks

// bytes_at(at, size): where the bytes at .. at+size-1 lie
template <class F> Census census_of(int64_t n, F bytes_at) {
  Census c;
  Hash hash;
  for (int64_t at = 0; at < n; at += CHUNK) {
    const int64_t size = std::min(CHUNK, n - at);
    const unsigned char *q = bytes_at(at, size);
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
inline Census take_census(const unsigned char *p, int64_t n) {
  return census_of(n, [=](int64_t at, int64_t) { return p + at; });
}
inline Census take_census(const Bytes &file, int64_t from, int64_t to) {
  std::vector<unsigned char> room;
  return census_of(to - from, [&](int64_t at, int64_t size) { return file.view(from + at, size, room); });
}

}  // namespace data
