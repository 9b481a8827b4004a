// checker.cpp: `checked`. g++ -fsanitize=thread puts a call before every access to memory; here these calls are
// answered, instead of by ThreadSanitizer. Every access of a kernel is looked at: is it memory that a kernel may touch,
// inside of one allocation, written before it is read, and ordered against the last accesses of other threads?
//
// Time is a counter that every launch, block, __syncthreads and __syncwarp advances. A Record says who touched memory
// last, when and from where, in 8 bytes. Two accesses of one launch are ordered if they are of one thread, or of one
// block with a __syncthreads between them, or of one warp with a __syncwarp between them that names both. Launches are
// ordered; EMU_STREAMS finds what is missing between streams.
//
// Memory has one Cell (a write, two reads: 24 bytes) for 4 bytes; a page in which anything smaller is accessed gets a
// Cell for every byte. Cells exist for pages that kernels have touched. One bit a byte says whether it was written.
#include "emulator.h"
#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>

namespace emu {

bool checking = false;  // set by the first object compiled with -fsanitize=thread

struct Record {
  uint64_t when : 30, atomic : 1, thread : 10, code : 23;  // code: byte / 4, inside of the call instruction
};
struct Cell {
  Record write, read[2];
};
static_assert(sizeof(Cell) == 24, "a cell is three words");
struct Page {
  Cell *cells;
  uint32_t owner;  // allocation()
  bool bytes;      // a cell for every byte
};
struct Memory {
  uintptr_t start = 0, size = 0;
  Page *pages = nullptr;
  uint8_t *written = nullptr;  // bits
  bool holds(uintptr_t a) const { return a - start < size; }
};
static Memory memories[3];  // by Space
static Memory &global = memories[0], &dynamic = memories[1], &statics = memories[2];

constexpr uint64_t LATEST = (1 << 30) - 1;
static uint64_t now = 1, launch_time = 1, block_time = 1, barrier_time = 1;
static uint64_t warp_time[MAX_THREADS / WARP];
// of warps that synchronise in part: what lane a did before heard[a][b] is known to lane b
static uint32_t heard[MAX_THREADS / WARP][WARP][WARP];
static bool in_parts[MAX_THREADS / WARP];

// ---- time

static void tick() {
  if (now++ == LATEST) fail("more than %llu synchronisations in one launch", (unsigned long long)LATEST);
}
void barrier_passed() {
  tick();
  barrier_time = now;
}
void warp_synchronized(int warp, unsigned mask, bool whole) {
  if (!checking) return;
  tick();
  if (whole) {
    warp_time[warp] = now;
    return;
  }
  auto &h = heard[warp];
  if (!in_parts[warp]) memset(h, 0, sizeof h);
  in_parts[warp] = true;
  for (int a = 0; a < WARP; a++) {  // every lane of the mask now knows what any of them knew
    uint32_t latest = mask >> a & 1 ? (uint32_t)now : 0;
    for (int b = 0; b < WARP; b++)
      if (mask >> b & 1) latest = std::max(latest, h[a][b]);
    for (int b = 0; b < WARP; b++)
      if (mask >> b & 1) h[a][b] = latest;
  }
}
void block_begins() {
  tick();
  block_time = barrier_time = now;
  std::fill_n(warp_time, MAX_THREADS / WARP, now);
  std::fill_n(in_parts, MAX_THREADS / WARP, false);
}

// ---- cells

struct Pool {  // of cells for a page each
  size_t cells;
  std::vector<Cell *> free, chunks;
  static constexpr size_t PAGES = 64;
  size_t bytes() const { return PAGES * cells * sizeof(Cell); }
  Cell *take() {
    if (free.empty()) {
      void *p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) fail("no memory for the cells of the checker");
      chunks.push_back((Cell *)p);
      for (size_t i = PAGES; i-- > 0;) free.push_back((Cell *)p + i * cells);
    }
    Cell *c = free.back();
    free.pop_back();
    return c;
  }
  void clear() {
    for (Cell *c : chunks) madvise(c, bytes(), MADV_DONTNEED);
  }
};
static auto &words = *new Pool{PAGE / 4, {}, {}};
static auto &single = *new Pool{PAGE, {}, {}};

void launch_begins() {
  if (now > LATEST / 2) {  // records may have no future times
    words.clear();
    single.clear();
    now = 1;
  }
  tick();
  launch_time = now;
}
// Records of an earlier owner need not be cleared: they are of an earlier launch.
void forget_cells(const void *start, size_t bytes) {
  if (!checking) return;
  const size_t first = ((uintptr_t)start - global.start) / PAGE;
  for (size_t i = first; i < first + bytes / PAGE; i++) {
    Page &p = global.pages[i];
    if (p.cells) (p.bytes ? single : words).free.push_back(p.cells);
    p.cells = nullptr;
    p.bytes = false;
  }
  const size_t bit_page = first / 8 + 1, bit_end = (first + bytes / PAGE) / 8;  // whole pages of bits
  if (bit_end > bit_page) madvise(global.written + bit_page * PAGE, (bit_end - bit_page) * PAGE, MADV_DONTNEED);
}
static void give_bytes(Page &p) {
  Cell *cells = single.take();
  for (size_t i = 0; i < PAGE; i++) cells[i] = p.cells ? p.cells[i / 4] : Cell{};
  if (p.cells) {
    memset((void *)p.cells, 0, words.cells * sizeof(Cell));  // they may serve another page in this launch
    words.free.push_back(p.cells);
  }
  p.cells = cells;
  p.bytes = true;
}

template <class T> static T *reserve(size_t n) {
  void *p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("cannot reserve %zu bytes of addresses for the checker", n * sizeof(T));
  return (T *)p;
}
extern "C" char etext;  // the end of the program's code
void set_space(Space space, void *start, size_t bytes) {
  if (!checking) return;
  if ((uintptr_t)&etext - image().start >= (uintptr_t)4 << 23) fail("more than 32 MB of code: a Record cannot name it");
  memories[(int)space] = {(uintptr_t)start, bytes, reserve<Page>(bytes / PAGE + 1), reserve<uint8_t>(bytes / 8 + 8)};
}
void set_owner(const void *start, size_t bytes, uint32_t owner) {
  if (!checking) return;
  const size_t first = ((uintptr_t)start - global.start) / PAGE;
  for (size_t i = first; i < first + bytes / PAGE; i++) global.pages[i].owner = owner;
}

// ---- what was written

static Memory *memory_of(const void *p) {
  for (Memory &m : memories)
    if (m.holds((uintptr_t)p)) return &m;
  return nullptr;
}
static void set_bits(uint8_t *bits, size_t from, size_t n, bool value) {
  for (; n && from % 8; from++, n--)
    bits[from / 8] = (uint8_t)((bits[from / 8] & ~(1 << from % 8)) | value << from % 8);
  memset(bits + from / 8, value ? 0xff : 0, n / 8);
  for (from += n / 8 * 8, n %= 8; n; from++, n--)
    bits[from / 8] = (uint8_t)((bits[from / 8] & ~(1 << from % 8)) | value << from % 8);
}
static bool bit(const Memory &m, size_t i) { return m.written[i / 8] >> i % 8 & 1; }
void set_written(const void *start, size_t bytes, bool written) {
  Memory *m = checking ? memory_of(start) : nullptr;
  if (m) set_bits(m->written, (uintptr_t)start - m->start, bytes, written);
}
void copy_written(const void *to, const void *from, size_t bytes) {
  if (!checking) return;
  const size_t t = (uintptr_t)to - global.start, f = (uintptr_t)from - global.start;
  if (t % 8 == 0 && f % 8 == 0 && bytes % 8 == 0) {
    memmove(global.written + t / 8, global.written + f / 8, bytes / 8);
    return;
  }
  std::vector<bool> bits(bytes);
  for (size_t i = 0; i < bytes; i++) bits[i] = bit(global, f + i);
  for (size_t i = 0; i < bytes; i++) set_bits(global.written, t + i, 1, bits[i]);
}
const char *first_unwritten(const void *start, size_t bytes) {
  if (!checking) return nullptr;
  const size_t at = (uintptr_t)start - global.start;
  for (size_t i = 0; i < bytes; i++) {
    if ((at + i) % 8 == 0 && i + 8 <= bytes && global.written[(at + i) / 8] == 0xff)
      i += 7;
    else if (!bit(global, at + i))
      return (const char *)start + i;
  }
  return nullptr;
}

// ---- static shared memory: which bytes of the program's data are whose

enum Byte : uint8_t { gap, variable, mine, other_kernels };
static auto &kinds = *new std::vector<uint8_t>;  // of the bytes between the first and the last __shared__ variable

static void set_kind(const Symbol &s, Byte kind) {
  const uintptr_t from = std::max(s.start, statics.start),
                  to = std::min(s.start + s.size, statics.start + kinds.size());
  if (from < to)
    std::fill(kinds.begin() + (ptrdiff_t)(from - statics.start), kinds.begin() + (ptrdiff_t)(to - statics.start), kind);
}
void set_static_shared(const std::vector<const Symbol *> &of_kernel) {
  static std::vector<const Symbol *> last;
  if (!checking || image().shared.empty()) return;
  if (!statics.size) {
    uintptr_t start = ~(uintptr_t)0, end = 0;
    for (const Symbol &s : image().shared) {
      start = std::min(start, s.start);
      end = std::max(end, s.start + s.size);
    }
    start = start / PAGE * PAGE;
    set_space(Space::static_shared, (void *)start, end - start);
    kinds.assign(end - start, gap);
    for (const Symbol &s : image().objects) set_kind(s, variable);
    for (const Symbol &s : image().shared) set_kind(s, other_kernels);
  }
  if (last == of_kernel) return;
  for (const Symbol *s : last) set_kind(*s, other_kernels);
  for (const Symbol *s : of_kernel) set_kind(*s, mine);
  last = of_kernel;
}

// ---- an access

struct Access {
  uintptr_t a;
  size_t n;
  bool write, atomic;
  uintptr_t code;  // inside of the call instruction
  const char *what() const {
    if (atomic) return "atomic access";
    return write ? "write" : "read";
  }
  std::string where() const { return place(code); }
};

static bool ordered(Record r, uint64_t horizon) {  // before what the current thread does now
  if (r.when < horizon) return true;
  if (r.when < block_time) return false;
  if (r.thread == (unsigned)current->index || r.when < barrier_time) return true;
  const int warp = current->index / WARP;
  return r.thread / WARP == (unsigned)warp &&
         (r.when < warp_time[warp] || (in_parts[warp] && r.when < heard[warp][r.thread % WARP][current->index % WARP]));
}
[[noreturn]] static void race(const Access &x, Record r, const char *what, bool global_memory) {
  const bool other = r.when < block_time;
  fail("%s: race: %s of %s memory at %p, and nothing orders it against thread %u of %s block at %s", x.where().c_str(),
       what, global_memory ? "global" : "shared", (void *)x.a, (unsigned)r.thread, other ? "another" : "this",
       place(image().start + r.code * 4).c_str());
}
static void touch(Cell &c, const Access &x, Record me, uint64_t horizon) {
  const bool global_memory = horizon == launch_time;
  if (!(x.atomic && c.write.atomic) && !ordered(c.write, horizon))
    race(x, c.write, x.write ? "write after write" : "read after write", global_memory);
  if (x.write) {
    for (Record r : c.read)
      if (!ordered(r, horizon)) race(x, r, "write after read", global_memory);
    c.write = me;
    return;
  }
  // Two reads are enough to find any later race if they are, where possible, of two warps
  const Record last = c.read[0], before = c.read[1];
  const bool same_warp = last.when >= block_time && last.thread / WARP == me.thread / WARP;
  const bool keep =
      before.when >= horizon &&
      (before.when < block_time || (before.when >= barrier_time && before.thread / WARP != me.thread / WARP));
  if (!(same_warp && (keep || last.thread == me.thread))) c.read[1] = last;
  c.read[0] = me;
}
static void touch_all(Memory &m, const Access &x, uint64_t horizon) {
  uintptr_t at = x.a - m.start;
  const uintptr_t end = at + x.n;
  for (uintptr_t i = at; i < end; i += 16) {
    uint32_t bits;
    memcpy(&bits, m.written + i / 8, 4);
    const uint32_t wanted = (end - i >= 16 ? 0xffff : (1u << (end - i)) - 1) << i % 8;
    if ((!x.write || x.atomic) && (bits & wanted) != wanted)
      fail("%s: %s of %s memory at %p that was never written", x.where().c_str(), x.what(),
           &m == &global ? "global" : "shared", (void *)x.a);
    if (!x.write) continue;
    bits |= wanted;
    memcpy(m.written + i / 8, &bits, 4);
  }
  Record me;
  me.when = now;
  me.atomic = x.atomic;
  me.thread = (unsigned)current->index;
  me.code = (x.code - image().start) / 4;
  const bool small = (x.a | x.n) % 4;
  while (at < end) {
    Page &p = m.pages[at / PAGE];
    if (small && !p.bytes) give_bytes(p);
    if (!p.cells) p.cells = words.take();
    touch(p.cells[p.bytes ? at % PAGE : at % PAGE / 4], x, me, horizon);
    at += p.bytes ? 1 : 4;
  }
}

static void out_of_bounds(const Access &x, const Allocation &a) {
  if (!a.start)
    fail("%s: %s of %zu bytes at %p, which was never allocated", x.where().c_str(), x.what(), x.n, (void *)x.a);
  if (!a.alive)
    fail("%s: %s of %zu bytes at %p: use after free, %td bytes into an allocation of %zu bytes that was freed",
         x.where().c_str(), x.what(), x.n, (void *)x.a, (char *)x.a - a.start, a.size);
  fail("%s: %s of %zu bytes at %p: out of bounds, %td bytes from the start of an allocation of %zu bytes",
       x.where().c_str(), x.what(), x.n, (void *)x.a, (char *)x.a - a.start, a.size);
}
static void check_static(const Access &x) {
  const uint8_t *kind = kinds.data() + (x.a - statics.start);
  for (size_t i = 0; i < x.n; i++) {
    if (*kind == variable && kind[i] == variable && !x.write) continue;
    if (kind[i] == mine) continue;
    fail("%s: %s of %zu bytes at %p: %s", x.where().c_str(), x.what(), x.n, (void *)x.a,
         kind[i] == variable ? "a kernel writes a variable of the host"
                             : "out of bounds of every __shared__ variable of this kernel");
  }
  if (*kind == mine) touch_all(statics, x, block_time);
}
static void check_kernel(const Access &x) {
  if (global.holds(x.a)) {
    const Allocation &a = allocation(global.pages[(x.a - global.start) / PAGE].owner);
    if (!a.alive || x.a < (uintptr_t)a.start || x.a + x.n > (uintptr_t)a.start + a.size) out_of_bounds(x, a);
    current->wrote |= x.write;
    return touch_all(global, x, launch_time);
  }
  if (dynamic.holds(x.a)) {
    const Range &r = dynamic_range();
    if (x.a < (uintptr_t)r.start || x.a + x.n > (uintptr_t)r.start + r.size)
      fail("%s: %s of %zu bytes: out of bounds, %td bytes from the start of %zu bytes of dynamic shared memory",
           x.where().c_str(), x.what(), x.n, (char *)x.a - r.start, r.size);
    return touch_all(dynamic, x, block_time);
  }
  if (statics.holds(x.a) && x.a - statics.start + x.n <= kinds.size()) return check_static(x);
  if (x.a - (uintptr_t)running.args < running.args_size) return;
  if (x.a >= image().start && x.a < image().end) {
    if (!x.write) return;
    fail("%s: a kernel writes a variable of the host at %p", x.where().c_str(), (void *)x.a);
  }
  fail("%s: %s of %zu bytes at %p: host memory in a kernel", x.where().c_str(), x.what(), x.n, (void *)x.a);
}

__attribute__((always_inline)) static inline void check(const volatile void *p, size_t n, bool write, bool atomic,
                                                        uintptr_t code, size_t align = 1) {
  const auto a = (uintptr_t)p;
  if (!current) {
    if (!global.holds(a)) return;
  } else if (a - (uintptr_t)current->stack < STACK) {
    return;
  }
  const Access x{a, n, write, atomic, code};
  if (!current) fail("%s: %s of device memory at %p by the host", x.where().c_str(), x.what(), (void *)a);
  if (a % align) fail("%s: misaligned %s of %zu bytes at %p", x.where().c_str(), x.what(), n, (void *)a);
  check_kernel(x);
}
void atomic_access(const void *p, size_t n, const void *where) {
  if (checking) check(p, n, true, true, (uintptr_t)where - 1, n);
}

}  // namespace emu

// ---- what g++ -fsanitize=thread calls

using emu::check;
extern "C" {
void __tsan_init() { emu::checking = true; }
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_read_range(void *p, size_t n) { check(p, n, false, false, CALLER); }
void __tsan_write_range(void *p, size_t n) { check(p, n, true, false, CALLER); }
#define ALIGNED(n)                                                       \
  void __tsan_read##n(void *p) { check(p, n, false, false, CALLER, n); } \
  void __tsan_write##n(void *p) { check(p, n, true, false, CALLER, n); }
#define UNALIGNED(n)                                                            \
  void __tsan_unaligned_read##n(void *p) { check(p, n, false, false, CALLER); } \
  void __tsan_unaligned_write##n(void *p) { check(p, n, true, false, CALLER); }
// clang-format off
ALIGNED(1) ALIGNED(2) ALIGNED(4) ALIGNED(8) ALIGNED(16)
UNALIGNED(2) UNALIGNED(4) UNALIGNED(8) UNALIGNED(16)

// Atomics of C++ are the host's: device code uses CUDA's.
#define ATOMIC(bits, T)                                                                                             \
  T __tsan_atomic##bits##_load(const volatile T *p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##bits##_store(volatile T *p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##bits##_exchange(volatile T *p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T *p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_and(volatile T *p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_or(volatile T *p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *c, T v, int, int) {                           \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *c, T v, int, int) {                             \
    return __atomic_compare_exchange_n(p, c, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }
ATOMIC(8, uint8_t) ATOMIC(16, uint16_t) ATOMIC(32, uint32_t) ATOMIC(64, uint64_t)
// clang-format on
}
