// output.cuh: the three standard descriptors, and text that goes to the standard output as the product of a command.
#pragma once
#include "files.cuh"

namespace runtime {

// Descriptors 0 to 2 that were closed at the start are opened on /dev/null, so that no file of the run becomes one of them;
// for reading only, so that writing to a closed output still fails
inline void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);  // takes the lowest that is free
}

// Error where something of the standard output could not be written: a full disk, a reader that went away
inline void finish_output() {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout)) return;
  throw Error(std::string("cannot write to the standard output: ") + strerror(errno ? errno : EIO));
}

// For a terminal: control characters but newline and tab (or the `kept`) as \xNN, also those that UTF-8 writes in two bytes
inline std::string without_controls(const std::string &text, const char *kept = "\n\t") {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const unsigned char c = (unsigned char)text[i], next = i + 1 < text.size() ? (unsigned char)text[i + 1] : 0;
    const bool two = c == 0xC2 && next >= 0x80 && next < 0xA0;
    if ((c < 0x20 && !(c && strchr(kept, c))) || c == 0x7f || two)
      out += format("\\x%02x", c);
    else
      out += (char)c;
    if (two) out += format("\\x%02x", (unsigned char)text[++i]);
  }
  return out;
}

// A refusal is one line, whatever it quotes
inline void print_error(const std::string &text) {
  fprintf(stderr, "train_gpt: %s\n", without_controls(text, "").c_str());
}

}  // namespace runtime
