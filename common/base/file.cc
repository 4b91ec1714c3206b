#include "common/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "common/base/fd.h"
#include "common/base/remove_all.h"

namespace lockstep {
namespace {

Status PathError(const char* what, const std::string& path) {
  return ErrnoStatus(errno, fmt::format("{} {}", what, path));
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd)
      : path_(std::move(path)), fd_(fd) {}

  Status Append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t n = ::write(fd_.get(), data.data(), data.size());
      if (n < 0) {
        if (errno == EINTR) continue;
        return PathError("writing", path_);
      }
      data.remove_prefix(static_cast<size_t>(n));
    }
    return OkStatus();
  }
  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return PathError("syncing", path_);
    return OkStatus();
  }
  Status Close() override {
    const int fd = fd_.Release();
    if (fd >= 0 && ::close(fd) != 0) return PathError("closing", path_);
    return OkStatus();
  }

 private:
  const std::string path_;
  Fd fd_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, Fd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  StatusOr<size_t> ReadAt(uint64_t offset, void* buffer, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const ssize_t n =
          ::pread(fd_.get(), static_cast<char*>(buffer) + done, size - done,
                  static_cast<off_t>(offset + done));
      if (n < 0) {
        if (errno == EINTR) continue;
        return PathError("reading", path_);
      }
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

 private:
  const std::string path_;
  const Fd fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                 mode_t mode) override {
    return Open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode,
                "creating");
  }
  StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path,
                                                     mode_t mode) override {
    return Open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode,
                "opening");
  }

  StatusOr<std::string> Read(const std::string& path, uint64_t limit) override {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return PathError("opening", path);
    std::string data;
    char buffer[1 << 16];
    for (;;) {
      const ssize_t n = ::read(fd.get(), buffer, sizeof(buffer));
      if (n < 0) {
        if (errno == EINTR) continue;
        return PathError("reading", path);
      }
      if (n == 0) return data;
      if (data.size() + static_cast<size_t>(n) > limit) {
        return ResourceExhausted("reading {}: larger than {} bytes", path,
                                 limit);
      }
      data.append(buffer, static_cast<size_t>(n));
    }
  }

  StatusOr<std::unique_ptr<ReadableFile>> OpenRead(
      const std::string& path) override {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return PathError("opening", path);
    return std::make_unique<PosixReadableFile>(path, std::move(fd));
  }

  StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat st;
    if (::stat(path.c_str(), &st) != 0) return PathError("looking at", path);
    FileInfo info;
    info.is_directory = S_ISDIR(st.st_mode);
    info.size = static_cast<uint64_t>(st.st_size);
    info.mode = st.st_mode & 07777;
    info.uid = st.st_uid;
    info.mtime_unix_nanos =
        int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
    return info;
  }

  StatusOr<std::vector<std::string>> List(const std::string& path) override {
    DIR* dir = ::opendir(path.c_str());
    if (dir == nullptr) return PathError("listing", path);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    ::closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status MakeDirs(const std::string& path, mode_t mode) override {
    for (size_t slash = 1; slash != std::string::npos;) {
      slash = path.find('/', slash);
      const std::string part = path.substr(0, slash);
      if (slash != std::string::npos) ++slash;
      if (part.empty() || ::mkdir(part.c_str(), mode) == 0) continue;
      const int error = errno;
      struct stat st;
      if (::stat(part.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) continue;
      errno = error == EEXIST ? ENOTDIR : error;
      return PathError("making directory", part);
    }
    return OkStatus();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return ErrnoStatus(errno, fmt::format("renaming {} to {}", from, to));
    }
    return OkStatus();
  }

  Status Remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0) return PathError("removing", path);
    return OkStatus();
  }

  Status RemoveAll(const std::string& path) override {
    return RemoveTree(path);
  }

  Status SyncDir(const std::string& path) override {
    Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return PathError("opening directory", path);
    if (::fsync(fd.get()) != 0) return PathError("syncing directory", path);
    return OkStatus();
  }

 private:
  static StatusOr<std::unique_ptr<WritableFile>> Open(const std::string& path,
                                                      int flags, mode_t mode,
                                                      const char* what) {
    const int fd = ::open(path.c_str(), flags, mode);
    if (fd < 0) return PathError(what, path);
    return std::make_unique<PosixWritableFile>(path, fd);
  }
};

}  // namespace

StatusOr<std::unique_ptr<ReadableFile>> FileSystem::OpenRead(
    const std::string& path) {
  return Unimplemented("reading {}: this file system has no OpenRead", path);
}

Status FileSystem::WriteAtomic(const std::string& path, std::string_view data,
                               mode_t mode) {
  const std::string temporary = path + ".tmp";
  const size_t slash = path.rfind('/');
  const std::string parent = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, Create(temporary, mode));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(data));
  LOCKSTEP_RETURN_IF_ERROR(file->Sync());
  LOCKSTEP_RETURN_IF_ERROR(file->Close());
  LOCKSTEP_RETURN_IF_ERROR(Rename(temporary, path));
  return SyncDir(parent);
}

FileSystem* RealFileSystem() {
  static PosixFileSystem* const real = new PosixFileSystem;
  return real;
}

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty() || (!b.empty() && b.front() == '/')) return std::string(b);
  if (b.empty()) return std::string(a);
  std::string joined(a);
  if (joined.back() != '/') joined += '/';
  joined += b;
  return joined;
}

}  // namespace lockstep
