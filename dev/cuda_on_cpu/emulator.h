// emulator.h: what the parts of the emulator know of each other. None of them may be compiled with a sanitizer: kernels
// are (README.md), the emulator finds out at run time with which.
//
//   fibers.cpp    a block of fibers, thread orders, barriers, operations of warps
//   launch.cpp    kernels: configuration, shared memory, blocks, the report of EMU_REPORT
//   checker.cpp   `checked`: every access of a kernel
//   memory.cpp    device memory, copies
//   streams.cpp   streams, events, what is asked of the device, errors
//   message.cpp   messages, names of functions and lines
#pragma once
#include <cuda_runtime.h>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace emu {

constexpr size_t PAGE = 4096, STACK = 256 << 10;
constexpr int WARP = 32, MAX_THREADS = 1024, MAX_SHARED = 227 << 10;

// ---- message.cpp

struct Symbol {
  uintptr_t start;
  size_t size;
  std::string name;  // mangled
};
struct Image {                                     // of the program itself
  uintptr_t start = 0, end = 0, bias = 0;          // bias: address minus the address in the file
  std::vector<Symbol> functions, shared, objects;  // shared: the __shared__ variables; objects: all other variables
};
const Image &image();
const char *setting(const char *name, const char *otherwise);  // of the environment
int64_t bytes_of(const char *setting);                         // 64M, 16G
std::string function_name(const void *p);                      // without arguments
std::string place(uintptr_t code);                             // file:line, from where it was inlined
#define CALLER ((uintptr_t)__builtin_return_address(0) - 1)    // inside of the call instruction
[[noreturn]] void fail(const char *text, ...) __attribute__((format(printf, 1, 2)));
void catch_faults();

// ---- fibers.cpp

enum class State : uint8_t { runnable, at_barrier, at_warp, exited };
struct Fiber {
  uint3 thread{};
  int index = 0;  // in its block
  State state = State::runnable;
  bool wrote = false;  // to global memory, as far as `checked` sees it
  void *sp = nullptr;
  char *stack = nullptr;
  void *fake_stack = nullptr;  // AddressSanitizer's
  Op op = Op::sync;            // what it waits for, and where
  unsigned mask = 0;
  uint64_t value = 0;
  int source = 0;
  const char *file = "";
  int line = 0;
  uintptr_t code = 0;
};
struct Launch {
  dim3 grid, block;
  size_t shared = 0;
  void (*body)(void *) = nullptr;
  void (*destroy)(void *) = nullptr;
  void *args = nullptr;
  size_t args_size = 0;
  const void *kernel = nullptr;
};
extern __thread Fiber *current;  // null in host code
extern Launch running;
extern int threads;  // of a block
uint64_t draw(uint64_t n);
char order();                                        // r(andom), u(p), d(own)
void run_block(unsigned x, unsigned y, unsigned z);  // of `running`
void set_threads(int n);                             // before the first block
int writers();                                       // threads of the last block that wrote global memory
bool has_asan();

// ---- launch.cpp

struct Range {
  char *start = nullptr;
  size_t size = 0;
};
const Range &dynamic_range();
size_t static_shared(const void *kernel);  // bytes

// ---- checker.cpp. Does nothing where no kernel was compiled with -fsanitize=thread.

enum class Space { global, dynamic_shared, static_shared };
extern bool checking;
void set_space(Space space, void *start, size_t bytes);
void set_owner(const void *start, size_t bytes, uint32_t owner);  // of whole pages of global memory
void set_static_shared(const std::vector<const Symbol *> &mine);  // those that the running kernel may touch
void forget_cells(const void *start, size_t bytes);               // of whole pages
void set_written(const void *start, size_t bytes, bool written);
void copy_written(const void *to, const void *from, size_t bytes);
const char *first_unwritten(const void *start, size_t bytes);  // null: none
void launch_begins();
void block_begins();
void barrier_passed();
void warp_synchronized(int warp, unsigned mask, bool whole);

// ---- memory.cpp

struct Allocation {
  char *start = nullptr;
  size_t size = 0;
  bool alive = false;
};
const Allocation &allocation(uint32_t owner);
void check_guards();  // that kernels wrote nothing just outside of an allocation
void fill_bytes(void *p, int value, size_t bytes);

// ---- streams.cpp

extern cudaError_t last_error;
void enqueue(cudaStream_t stream, std::function<bool()> work);  // false: it must wait
bool is_stream(cudaStream_t stream);
bool runs_late();             // EMU_STREAMS: work waits in queues
void drain(cudaStream_t of);  // until that stream is empty
void drain_all();

}  // namespace emu
