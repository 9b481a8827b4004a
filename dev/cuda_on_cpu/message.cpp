// message.cpp: messages of the emulator, and the names they need, from the program's own symbol table and line table.
#include "emulator.h"
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace emu {

const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}
static int shift_of(char unit) {
  switch (unit) {
    case 'K':
      return 10;
    case 'M':
      return 20;
    case 'G':
      return 30;
    default:
      return 0;
  }
}
int64_t bytes_of(const char *setting) {
  char *unit = nullptr;
  const double n = strtod(setting, &unit);
  const int shift = shift_of(*unit);
  if (n < 0 || (shift ? unit[1] : *unit)) fail("a size should look like 512K, 64M or 16G, not '%s'", setting);
  return (int64_t)(n * (double)((int64_t)1 << shift));
}

// ---- the program

static int add_segments(dl_phdr_info *info, size_t, void *to) {  // of the first object, the program
  Image &p = *(Image *)to;
  p.bias = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto &segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t start = p.bias + segment.p_vaddr, end = start + segment.p_memsz;
    if (!p.start || start < p.start) p.start = start;
    if (end > p.end) p.end = end;
  }
  return 1;
}
static void add_symbols(Image &p, const char *file) {
  const auto &header = *(const Elf64_Ehdr *)file;
  const auto *sections = (const Elf64_Shdr *)(file + header.e_shoff);
  for (int i = 0; i < header.e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
    const char *names = file + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
      const Elf64_Sym &s = symbols[k];
      const Symbol named{p.bias + s.st_value, s.st_size, names + s.st_name};
      const int type = ELF64_ST_TYPE(s.st_info);
      if (type == STT_FUNC) p.functions.push_back(named);
      if (type != STT_OBJECT) continue;
      const bool shared = named.name.find("B10emu_shared") != std::string::npos && named.name.compare(0, 4, "_ZGV");
      (shared ? p.shared : p.objects).push_back(named);
    }
  }
}
static Image *read_image() {
  auto *p = new Image;
  dl_iterate_phdr(add_segments, p);
  const int fd = open("/proc/self/exe", O_RDONLY);
  struct stat file {};
  if (fd < 0 || fstat(fd, &file)) fail("/proc/self/exe cannot be read: __shared__ variables are found there");
  void *bytes = mmap(nullptr, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (bytes == MAP_FAILED) fail("/proc/self/exe cannot be mapped: __shared__ variables are found there");
  add_symbols(*p, (const char *)bytes);
  munmap(bytes, (size_t)file.st_size);
  if (p->functions.empty()) fail("the program is stripped: __shared__ variables cannot be found");
  return p;
}
const Image &image() {
  static const Image &p = *read_image();
  return p;
}

// ---- names

// "void gpu::fill<float>(float*, long, float)" -> "gpu::fill<float>"
std::string function_name(const void *p) {
  std::string name = "a kernel without a name";
  for (const Symbol &f : image().functions)
    if (f.start == (uintptr_t)p) {
      char *plain = abi::__cxa_demangle(f.name.c_str(), nullptr, nullptr, nullptr);
      name = plain ? plain : f.name;
      free(plain);
      break;
    }
  if (!name.compare(0, 5, "void ")) name.erase(0, 5);
  if (name.empty() || name.back() != ')') return name;
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    depth += (name[i] == ')') - (name[i] == '(');
    if (depth == 0) return name.substr(0, i);
  }
  return name;
}

// Asks addr2line. Lines of inlined functions come first; then, in brackets, where they were inlined. At most three.
std::string place(uintptr_t code) {
  char command[100], line[1000], here[1000] = "";
  snprintf(command, sizeof command, "addr2line -i -e /proc/%d/exe 0x%zx 2>/dev/null", (int)getpid(),
           (size_t)(code - image().bias));
  if (!getcwd(here, sizeof here - 2)) here[0] = 0;
  strcat(here, "/");
  static const char *const before[] = {"", " [inlined at ", ", "};  // a line
  std::string found;
  int lines = 0;
  if (FILE *answer = popen(command, "r")) {
    while (fgets(line, sizeof line, answer)) {
      line[strcspn(line, " \n")] = 0;  // " (discriminator 3)"
      if (line[0] == '?' || strstr(line, "/cuda_runtime.h:") || lines == 3) continue;
      const char *name = strncmp(line, here, strlen(here)) ? line : line + strlen(here);
      found += before[lines++] + std::string(name);
    }
    pclose(answer);
  }
  if (lines > 1) found += "]";
  if (lines) return found;
  snprintf(line, sizeof line, "code at 0x%zx", (size_t)(code - image().bias));
  return line;
}

// ---- the end

void fail(const char *text, ...) {
  fflush(stdout);
  fprintf(stderr, "cuda_on_cpu: ");
  va_list args;
  va_start(args, text);
  vfprintf(stderr, text, args);
  va_end(args);
  if (current) {
    const uint3 b = blockIdx, t = current->thread;
    fprintf(stderr, "\n  in %s, block (%u,%u,%u) thread (%u,%u,%u), EMU_ORDER=%s EMU_SEED=%s",
            function_name(running.kernel).c_str(), b.x, b.y, b.z, t.x, t.y, t.z, setting("EMU_ORDER", "random"),
            setting("EMU_SEED", "1"));
  }
  fprintf(stderr, "\n");
  abort();
}

static void on_fault(int number, siginfo_t *info, void *context) {
  const std::string where = place((uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
  const auto p = (const char *)info->si_addr;
  signal(number, SIG_DFL);
  if (number == SIGFPE) fail("%s: integer division by zero", where.c_str());
  if (current && p < current->stack && p >= current->stack - PAGE)
    fail("%s: a kernel needs more than %zu KB of stack", where.c_str(), STACK >> 10);
  fail("%s: memory fault at %p: out of bounds, freed, misaligned or not device memory", where.c_str(), (const void *)p);
}
void catch_faults() {
  if (has_asan()) return;  // which reports them itself
  static char stack[256 << 10];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  action.sa_sigaction = on_fault;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(number, &action, nullptr);
}

}  // namespace emu
