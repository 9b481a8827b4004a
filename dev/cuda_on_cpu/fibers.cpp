// fibers.cpp: runs a block of CUDA threads, one fiber each, in an order that may be chosen: EMU_ORDER=random
// (EMU_SEED=n), up (the thread that has waited longest goes first), down (one warp runs as far as it can, the last one
// first). A fiber gives way only at a barrier or an operation of its warp.
#include "emulator.h"
#include <pthread.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// AddressSanitizer must know which stack is in use; the functions are there in programs linked with it.
extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *saved, const void **bottom, size_t *size);
}

namespace emu {

__thread Fiber *current;
Launch running;
int threads;
bool has_asan() { return __asan_init != nullptr; }

static Fiber outside;  // the host's own stack
static Fiber *fibers[MAX_THREADS];
static int made, at_barrier, exited;
static int64_t barrier_sum;
// Lanes that wait for each other. A warp may have several groups: parts of it can synchronise among themselves.
struct Group {
  unsigned mask, here;
  Fiber *first;
};
struct Warp {
  unsigned gone = 0;  // lanes that have exited
  int groups = 0;
  Group group[WARP];
};
static Warp warps[MAX_THREADS / WARP];

// ---- order

char order() {
  static const char o = [] {
    const char *name = setting("EMU_ORDER", "random");
    for (const char *known : {"random", "up", "down"})
      if (!strcmp(name, known)) return *known;
    fail("EMU_ORDER is random, up or down, not '%s'", name);
  }();
  return o;
}
uint64_t draw(uint64_t n) {  // xorshift
  static uint64_t state = strtoull(setting("EMU_SEED", "1"), nullptr, 0) * 0x9E3779B97F4A7C15u + 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 20) % n;
}

// Fibers that can run, oldest first
static struct {
  Fiber *at[MAX_THREADS];
  unsigned first = 0, count = 0;
  Fiber *&operator[](unsigned i) { return at[(first + i) % MAX_THREADS]; }
  void add(Fiber *f) {
    f->state = State::runnable;
    (*this)[count++] = f;
  }
  Fiber *take() {
    if (order() == 'r') std::swap((*this)[(unsigned)draw(count)], (*this)[count - 1]);
    count--;
    return order() == 'u' ? at[first++ % MAX_THREADS] : (*this)[count];
  }
} runnable;

// ---- switching

extern "C" void emu_switch(void **save, void *load);
asm(R"(.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size emu_switch,.-emu_switch
)");

static void announce(Fiber *from, const Fiber *to) {
  static const void *bottom;
  static size_t size;
  if (!size) {
    pthread_attr_t attributes;
    void *start;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &size);
    pthread_attr_destroy(&attributes);
    bottom = start;
  }
  const bool host = to == &outside;
  __sanitizer_start_switch_fiber(&from->fake_stack, host ? bottom : to->stack, host ? size : STACK);
}
static void switch_to(Fiber *to) {
  Fiber *from = current ? current : &outside;
  if (from == to) return;
  current = to == &outside ? nullptr : to;
  threadIdx = to->thread;
  if (has_asan()) announce(from, to);
  emu_switch(&from->sp, to->sp);
  if (has_asan()) __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
}

static void exit_thread();
static void fiber_main() {
  if (has_asan()) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  for (;;) {  // one turn a block
    running.body(running.args);
    exit_thread();
  }
}
static Fiber *new_fiber(int index) {
  auto *f = new Fiber;
  f->index = index;
  void *p = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("no memory for the stack of thread %d", index);
  mprotect(p, PAGE, PROT_NONE);
  f->stack = (char *)p + PAGE;
  auto **top = (void **)(f->stack + STACK - index % 61 * 64);  // staggered: not all in one set of the cache
  *--top = nullptr;                                            // fiber_main is entered at 16n+8, as by a call
  *--top = (void *)fiber_main;
  f->sp = top - 6;  // the registers that emu_switch takes back
  return f;
}
void set_threads(int n) {
  threads = n;
  for (; made < n; made++) fibers[made] = new_fiber(made);
}

// ---- deadlock

// Where a fiber waits, with the places it was inlined at where the line table knows them
static std::string where(const Fiber &f) {
  const std::string line = std::string(f.file) + ":" + std::to_string(f.line);
  const std::string known = f.code ? place(f.code) : "";
  return known.find(":" + std::to_string(f.line)) != std::string::npos ? known : line;
}

static const char *doing(State state) {
  switch (state) {
    case State::exited:
      return "has exited; last seen at";
    case State::at_warp:
      return "waits for its warp at";
    default:
      return "waits for the block at";
  }
}
[[noreturn]] static void explain_deadlock() {
  std::string s;
  int lines = 0, first = 0;
  while (fibers[first]->state == State::exited) first++;
  for (int i = 0; i < threads && lines < 6; i++) {
    const Fiber &f = *fibers[i];
    if (i && f.state == fibers[i - 1]->state && f.line == fibers[i - 1]->line) continue;
    s += "\n    from thread " + std::to_string(i) + ": " + doing(f.state) + " " + where(f);
    lines++;
  }
  fail("%s: %s%s", where(*fibers[first]).c_str(),
       exited ? "divergent barrier: some threads have left the kernel, others wait here"
              : "deadlock: threads wait for each other at different places",
       s.c_str());
}
static void release_barrier() {
  const Fiber &first = *fibers[0];
  for (int i = 0; i < threads; i++) {
    Fiber *f = fibers[i];
    if (f->line != first.line || strcmp(f->file, first.file))
      fail("%s: divergent barrier: thread %d waits here, thread 0 at %s", where(*f).c_str(), i, where(first).c_str());
    f->value = (uint64_t)barrier_sum;
    runnable.add(f);
  }
  at_barrier = 0;
  barrier_sum = 0;
  barrier_passed();
}
static void give_way() {  // of a fiber that has just put itself aside
  if (!runnable.count) {
    if (exited == threads) return switch_to(&outside);
    if (at_barrier != threads) explain_deadlock();
    release_barrier();
  }
  switch_to(runnable.take());
}

// ---- barriers and warps

int64_t block_barrier(int64_t value, const char *file, int line) {
  if (!current) fail("%s:%d: a barrier in host code", file, line);
  Fiber &me = *current;
  me.state = State::at_barrier;
  me.file = file;
  me.line = line;
  me.code = CALLER;
  at_barrier++;
  barrier_sum += value;
  give_way();
  return (int64_t)me.value;
}

int lane() { return current->index % WARP; }

static unsigned lanes_of(int warp) {
  const int n = threads - warp * WARP;
  return n >= WARP ? ~0u : (1u << n) - 1;
}
static void check_mask(const Fiber &me, int warp) {
  const unsigned mask = me.mask, gone = warps[warp].gone;
  if (!(mask >> me.index % WARP & 1)) fail("%s: mask 0x%x does not name the lane that calls", where(me).c_str(), mask);
  if (mask & ~lanes_of(warp)) fail("%s: mask 0x%x names lanes that the block does not have", where(me).c_str(), mask);
  if (mask & gone) fail("%s: mask 0x%x names lanes that have exited (0x%x)", where(me).c_str(), mask, gone);
}
static Group &join(Fiber &me, Warp &w) {
  Group *mine = nullptr;
  for (Group *g = w.group; g < w.group + w.groups; g++) {
    const Fiber &f = *g->first;
    if (f.op == me.op && f.mask == me.mask && f.line == me.line && !strcmp(f.file, me.file))
      mine = g;
    else if (g->mask >> me.index % WARP & 1 && g->here & me.mask)  // each waits for the other
      fail("%s: lane %d of the warp waits elsewhere, at %s; its mask is 0x%x, this one 0x%x", where(me).c_str(),
           f.index % WARP, where(f).c_str(), f.mask, me.mask);
  }
  if (!mine) {
    mine = &w.group[w.groups++];
    *mine = {me.mask, 0, &me};
  }
  mine->here |= 1u << me.index % WARP;
  return *mine;
}
static void complete(Op op, unsigned mask, int warp) {
  uint64_t value[WARP] = {}, ballot = 0;
  for (unsigned m = mask; m; m &= m - 1) {
    const int l = __builtin_ctz(m);
    value[l] = fibers[warp * WARP + l]->value;
    ballot |= (value[l] & 1) << l;
  }
  for (unsigned m = mask; m; m &= m - 1) {
    Fiber &f = *fibers[warp * WARP + __builtin_ctz(m)];
    const int from = f.source & (WARP - 1);
    const uint64_t given = mask >> from & 1 ? value[from] : ~(uint64_t)0;  // a lane left out gives NaN
    f.value = op == Op::ballot ? ballot : given;
    runnable.add(&f);
  }
  if (op == Op::sync) warp_synchronized(warp, mask, mask == lanes_of(warp));  // shuffles order no memory
}
uint64_t warp_operation(Op op, unsigned mask, uint64_t value, int source, const char *file, int line) {
  if (!current) fail("%s:%d: an operation of a warp in host code", file, line);
  Fiber &me = *current;
  const int warp = me.index / WARP;
  Warp &w = warps[warp];
  me.op = op;
  me.mask = mask;
  me.value = value;
  me.source = source;
  me.file = file;
  me.line = line;
  me.code = CALLER;
  check_mask(me, warp);
  me.state = State::at_warp;
  Group &g = join(me, w);
  if (g.here == mask) {
    g = w.group[--w.groups];
    complete(op, mask, warp);
  }
  give_way();
  return me.value;
}
static void exit_thread() {
  Fiber &me = *current;
  const int warp = me.index / WARP, l = me.index % WARP;
  me.state = State::exited;
  exited++;
  Warp &w = warps[warp];
  w.gone |= 1u << l;
  for (const Group *g = w.group; g < w.group + w.groups; g++)
    if (g->mask >> l & 1)
      fail("%s: lane %d waits here for lane %d, which exits; mask 0x%x", where(*g->first).c_str(),
           g->first->index % WARP, l, g->mask);
  give_way();
}

void run_block(unsigned x, unsigned y, unsigned z) {
  const dim3 d = running.block;
  blockIdx = {x, y, z};
  at_barrier = exited = 0;
  barrier_sum = 0;
  for (Warp &w : warps) {
    w.gone = 0;
    w.groups = 0;
  }
  for (unsigned t = 0; t < (unsigned)threads; t++) {
    Fiber *f = fibers[t];
    f->thread = {t % d.x, t / d.x % d.y, t / (d.x * d.y)};
    f->file = "the start";
    f->line = 0;
    f->code = 0;
    f->wrote = false;
    runnable.add(f);
  }
  switch_to(runnable.take());
}
int writers() {
  int n = 0;
  for (int i = 0; i < threads; i++) n += fibers[i]->wrote;
  return n;
}

}  // namespace emu
