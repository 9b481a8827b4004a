// files.cuh: whole files. Read one, make a directory with its parents, and write one so that a reader, a full disk or a
// power cut never meets half of it: a temporary name in the same directory (path + ".tmp"), fsync, rename, fsync of the
// directory. A failure removes the temporary, leaves the old file as it was and throws Error.
#pragma once
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../layers/device.cuh"

namespace runtime {

inline Error system_error(const char *what, const std::string &path, int code) {
  return Error(format("cannot %s %s: %s", what, path.c_str(), strerror(code)));
}

inline std::string parent_directory(const std::string &path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

inline bool file_exists(const std::string &path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// mkdir -p
inline void make_directories(const std::string &path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    struct stat info;
    if (mkdir(part.c_str(), 0777) && errno != EEXIST) throw system_error("make directory", part, errno);
    if (stat(part.c_str(), &info) || !S_ISDIR(info.st_mode))
      throw Error(format("cannot make directory %s: %s is not a directory", path.c_str(), part.c_str()));
    if (slash == std::string::npos) return;
  }
}

inline std::string read_file(const std::string &path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw system_error("open", path, errno);
  std::string text;
  char chunk[64 << 10];
  for (;;) {
    const ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int code = errno;
      close(fd);
      throw system_error("read", path, code);
    }
    if (n == 0) break;
    text.append(chunk, (size_t)n);
  }
  close(fd);
  return text;
}

// write(...) as often as needed, then commit(). Without commit the old file stays.
struct AtomicFile {
  std::string path, temporary;
  int fd = -1;

  explicit AtomicFile(const std::string &path)
      : path(path),
        temporary(path + ".tmp") {
    fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) throw system_error("create", temporary, errno);
  }
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;
  ~AtomicFile() { discard(); }

  void write(const void *data, size_t bytes) {
    const char *at = (const char *)data;
    while (bytes > 0) {
      const ssize_t n = ::write(fd, at, bytes < (1u << 30) ? bytes : 1u << 30);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write", n < 0 ? errno : ENOSPC);
      at += n;
      bytes -= (size_t)n;
    }
  }
  void commit() {
    if (fsync(fd)) fail("write", errno);
    const int closing = fd;
    fd = -1;
    if (close(closing)) unlink_and_throw("write", errno);
    if (rename(temporary.c_str(), path.c_str())) unlink_and_throw("rename the temporary of", errno);
    const std::string parent = parent_directory(path);
    const int directory = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) throw system_error("open directory", parent, errno);
    const int failed = fsync(directory) ? errno : 0;
    close(directory);
    // some file systems have no fsync for directories and say so with EINVAL: nothing more can be done there
    if (failed && failed != EINVAL) throw system_error("sync directory", parent, failed);
  }

 private:
  void discard() {
    if (fd < 0) return;
    close(fd);
    fd = -1;
    unlink(temporary.c_str());
  }
  [[noreturn]] void fail(const char *what, int code) {
    discard();
    throw system_error(what, path, code);
  }
  [[noreturn]] void unlink_and_throw(const char *what, int code) {
    unlink(temporary.c_str());
    throw system_error(what, path, code);
  }
};

inline void write_file(const std::string &path, const std::string &text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace runtime
