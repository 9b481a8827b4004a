// folder.cuh: the folder of a run belongs to one process at a time.
//
// FolderLock holds a lock on the folder itself (flock: no file is left behind, and the lock ends with the process, however
// that ends). Where the file system has no such locks a note says so. Taking it removes what a killed run left unfinished.
#pragma once
#include <dirent.h>
#include <sys/file.h>

#include "files.cuh"

namespace runtime {

// "runs/x/" and "runs/x" are one; "/" stays
inline std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}
// Is it the same folder, by whatever name? One that does not exist is the same as none
inline bool same_folder(const std::string &a, const std::string &b) {
  struct stat x, y;
  return stat(a.c_str(), &x) == 0 && stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Error where a folder could not be made, or written into
inline void refuse_unwritable(const std::string &directory) {
  std::string there = directory;  // the nearest that exists
  while (!file_exists(there) && there != "." && there != "/") there = parent_directory(there);
  struct stat info;
  if (stat(there.c_str(), &info) || !S_ISDIR(info.st_mode))
    throw Error(format("cannot make directory %s: %s is not a directory; name another --out", directory.c_str(),
                       there.c_str()));
  if (access(there.c_str(), W_OK | X_OK)) throw system_error("write into", there, errno);
}

struct FolderLock {
  FolderLock() = default;
  FolderLock(const FolderLock &) = delete;
  FolderLock &operator=(const FolderLock &) = delete;
  ~FolderLock() {
    if (fd >= 0) close(fd);
  }
  bool held() const { return fd >= 0; }
  // Error where another run has it
  void take(const std::string &directory) {
    if (held()) return;
    fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) throw system_error("open the folder", directory, errno);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
      if (errno == EWOULDBLOCK)
        throw Error(directory + ": another run is writing into this folder; wait for it, or name another --out");
      fprintf(stderr, "note: %s cannot be locked (%s); start no second run there\n", directory.c_str(),
              strerror(errno));
    }
    remove_unfinished(directory);
  }

 private:
  int fd = -1;

  // Temporaries of AtomicFile, of the files that a run writes
  static void remove_unfinished(const std::string &directory) {
    DIR *d = opendir(directory.c_str());
    if (!d) return;
    while (const dirent *entry = readdir(d)) {
      const std::string name = entry->d_name;
      long long step;
      int end = 0;
      sscanf(name.c_str(), "step_%lld.safetensors.tmp%n", &step, &end);
      if ((end && !name[(size_t)end]) || name == "run.json.tmp" || name == "log.jsonl.tmp")
        unlink((directory + "/" + name).c_str());
    }
    closedir(d);
  }
};

}  // namespace runtime
