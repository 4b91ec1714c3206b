#include "common/base/remove_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/fd.h"

namespace lockstep {
namespace {

// Each level holds a descriptor. Deeper directories are moved to the top first.
constexpr size_t kMostLevels = 64;
// Passes over a directory that other processes fill meanwhile.
constexpr int kMostRounds = 100;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

struct Level {
  std::unique_ptr<DIR, CloseDir> dir;
  std::string name;  // Relative to the level above.
  int rounds = 0;
};

class Remover {
 public:
  explicit Remover(const std::string& path) : path_(path) {}

  Status Run() {
    // A directory may have become a link, or a link a directory.
    for (int attempt = 0; attempt < kMostRounds; ++attempt) {
      if (::unlink(path_.c_str()) == 0 || errno == ENOENT) return OkStatus();
      // POSIX specifies EPERM for a directory.
      if (errno != EISDIR && errno != EPERM) break;
      const int error = errno;
      if (const Status opened = Push(AT_FDCWD, path_); opened.ok()) {
        while (!levels_.empty()) LOCKSTEP_RETURN_IF_ERROR(Step());
        if (!changed_) return OkStatus();
        changed_ = false;
      } else if (errno == ENOTDIR || errno == ELOOP) {
        errno = error;
      } else {
        return errno == ENOENT ? OkStatus() : opened;
      }
    }
    return Error("removing");
  }

 private:
  Status Error(const char* what) const {
    return ErrnoStatus(errno, fmt::format("{} {}", what, path_));
  }

  // Sets errno on failure.
  Status Push(int parent, const std::string& name) {
    Fd fd(::openat(parent, name.c_str(),
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    DIR* const dir = fd ? ::fdopendir(fd.get()) : nullptr;
    if (dir == nullptr) {
      const int error = errno;
      const Status status =
          ErrnoStatus(error, fmt::format("removing {}: {}", path_, name));
      fd.Reset();
      errno = error;
      return status;
    }
    (void)fd.Release();  // The DIR owns it.
    levels_.push_back({std::unique_ptr<DIR, CloseDir>(dir), name});
    return OkStatus();
  }

  // Handles one entry of the innermost directory, or its end.
  Status Step() {
    errno = 0;
    const dirent* const entry = ::readdir(levels_.back().dir.get());
    if (entry == nullptr) return errno == 0 ? Leave() : Error("listing");
    const std::string name = entry->d_name;
    if (name == "." || name == "..") return OkStatus();
    return Take(name);
  }

  Status Take(const std::string& name) {
    const int here = ::dirfd(levels_.back().dir.get());
    for (int attempt = 0; attempt < kMostRounds; ++attempt) {
      if (::unlinkat(here, name.c_str(), 0) == 0) return OkStatus();
      if (errno == ENOENT) return OkStatus();
      if (errno != EISDIR && errno != EPERM) break;
      if (levels_.size() >= kMostLevels) return MoveUp(here, name);
      const int error = errno;
      const Status opened = Push(here, name);
      if (opened.ok()) return OkStatus();
      if (errno == ENOENT) return OkStatus();
      if (errno != ENOTDIR && errno != ELOOP) return opened;
      errno = error;
    }
    return ErrnoStatus(errno, fmt::format("removing {} in {}", name, path_));
  }

  Status MoveUp(int here, const std::string& name) {
    const int top = ::dirfd(levels_.front().dir.get());
    for (int attempt = 0; attempt < kMostRounds; ++attempt) {
      const std::string to = fmt::format(".deep-{}", moved_++);
      if (::renameat(here, name.c_str(), top, to.c_str()) == 0) {
        moved_up_ = true;
        return OkStatus();
      }
      if (errno == ENOENT) return OkStatus();
      if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) break;
    }
    return ErrnoStatus(errno, fmt::format("moving {} in {}", name, path_));
  }

  Status Leave() {
    Level& last = levels_.back();
    const bool top = levels_.size() == 1;
    const int parent =
        top ? AT_FDCWD : ::dirfd(levels_[levels_.size() - 2].dir.get());
    errno = 0;
    if (::unlinkat(parent, last.name.c_str(), AT_REMOVEDIR) == 0 ||
        errno == ENOENT || errno == ENOTDIR) {
      // If it is a link now, another pass over its parent removes it.
      changed_ = top && errno == ENOTDIR;
      levels_.pop_back();
      return OkStatus();
    }
    if (errno != ENOTEMPTY && errno != EEXIST) return Error("removing");
    if (top && std::exchange(moved_up_, false)) last.rounds = 0;
    if (++last.rounds > kMostRounds) return Error("removing");
    ::rewinddir(last.dir.get());
    return OkStatus();
  }

  const std::string path_;
  std::vector<Level> levels_;
  uint64_t moved_ = 0;
  bool moved_up_ = false;
  bool changed_ = false;  // The top is no longer a directory.
};

}  // namespace

Status RemoveTree(const std::string& path) {
  // "link/" would mean the link's target.
  std::string bare = path;
  while (bare.size() > 1 && bare.back() == '/') bare.pop_back();
  return Remover(bare).Run();
}

}  // namespace lockstep
