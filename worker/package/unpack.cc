#include "worker/package/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "common/base/fd.h"
#include "worker/package/tar_reader.h"

namespace lockstep::worker::package {
namespace {

constexpr int kOpenFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string_view Describe(TarEntry::Type type) {
  switch (type) {
    case TarEntry::Type::kCharacterDevice:
    case TarEntry::Type::kBlockDevice:
      return "a device";
    case TarEntry::Type::kFifo:
      return "a fifo";
    default:
      return "not a file, folder or link";
  }
}

// Every way to spend time passes here: also that of headers without end.
class WatchedSource final : public ByteSource {
 public:
  WatchedSource(ByteSource* bytes, Duration most, Cancellation* cancel)
      : bytes_(bytes),
        most_(most),
        deadline_(MonotonicNow() + most),
        cancel_(cancel) {}

  StatusOr<size_t> Read(char* buffer, size_t size) override {
    LOCKSTEP_RETURN_IF_ERROR(Check());
    return bytes_->Read(buffer, size);
  }
  Status Check() const {
    LOCKSTEP_RETURN_IF_ERROR(cancel_->Check());
    if (MonotonicNow() < deadline_) return OkStatus();
    return DeadlineExceeded("unpacking took longer than {}",
                            FormatDuration(most_));
  }

 private:
  ByteSource* const bytes_;
  const Duration most_;
  const MonoTime deadline_;
  Cancellation* const cancel_;
};

class Unpacker {
 public:
  Unpacker(WatchedSource* bytes, const UnpackOptions& options)
      : watch_(bytes), tar_(bytes), options_(options) {}

  Status Run(const std::string& directory) {
    top_.Reset(open(directory.c_str(), kOpenFolder));
    if (!top_) return ErrnoStatus(errno, "opening " + directory);
    for (;;) {
      LOCKSTEP_RETURN_IF_ERROR(watch_->Check());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto entry, tar_.Next());
      if (!entry) return OkStatus();
      if (++entries_ + implicit_ > options_.max_entries) return TooMany();
      const Status made = Make(*entry);
      if (made.code() == StatusCode::kInvalidArgument) {
        return InvalidArgument("rejected entry {}: {}", QuoteEntry(entry->name),
                               Message(made));
      }
      LOCKSTEP_RETURN_IF_ERROR(made);
    }
  }

 private:
  Status TooMany() const {
    return InvalidArgument("the archive has more than {} entries",
                           options_.max_entries);
  }

  Status Make(const TarEntry& entry) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                              SplitEntryName(entry.name));
    if (entry.type == TarEntry::Type::kDirectory) {
      return EnterFolder(parts, parts.size());
    }
    if (parts.empty()) {
      return InvalidArgument("it has the name of the folder itself");
    }
    const std::vector<std::string> parents(parts.begin(), parts.end() - 1);
    LOCKSTEP_RETURN_IF_ERROR(EnterFolder(parents, parts.size()));
    switch (entry.type) {
      case TarEntry::Type::kFile:
        return MakeFile(entry, parts.back());
      case TarEntry::Type::kSymlink:
        return MakeSymlink(entry, parts.back());
      case TarEntry::Type::kHardLink:
        return MakeHardLink(entry, parts.back());
      default:
        return InvalidArgument("it is {}", Describe(entry.type));
    }
  }

  // Makes `folder_` the folder of `parts`, and creates it if it is missing. The
  // entry itself is part number `own` of its name: created parents were not
  // entries and count as one.
  Status EnterFolder(const std::vector<std::string>& parts, size_t own) {
    if (folder_ && parts == folder_parts_) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(folder_, OpenFolder(parts, /*make=*/true, own));
    folder_parts_ = parts;
    return OkStatus();
  }

  StatusOr<Fd> OpenFolder(const std::vector<std::string>& parts, bool make,
                          size_t own = 0) {
    Fd at(fcntl(top_.get(), F_DUPFD_CLOEXEC, 0));
    if (!at) return ErrnoStatus(errno, "opening the folder");
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string& part = parts[i];
      if (make && mkdirat(at.get(), part.c_str(), 0755) == 0) {
        if (i + 1 != own && ++implicit_ + entries_ > options_.max_entries) {
          return TooMany();
        }
        LOCKSTEP_RETURN_IF_ERROR(Own(at.get(), part));
      } else if (make && errno != EEXIST) {
        return ErrnoStatus(errno, "creating a folder");
      }
      Fd next(openat(at.get(), part.c_str(), kOpenFolder));
      if (!next && (errno == ELOOP || errno == ENOTDIR)) {
        return InvalidArgument(
            "its parent {} is a link or a file, not a folder",
            QuoteEntry(part));
      }
      if (!next && errno == ENOENT) {
        return InvalidArgument("its parent {} does not exist",
                               QuoteEntry(part));
      }
      if (!next) return ErrnoStatus(errno, "opening a folder");
      at = std::move(next);
    }
    return at;
  }

  Status Own(int folder, const std::string& name) {
    if (!options_.user) return OkStatus();
    if (fchownat(folder, name.c_str(), options_.user->uid, options_.user->gid,
                 AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno,
                         "changing the owner of a file to the task's user");
    }
    return OkStatus();
  }

  static Status There() {
    return InvalidArgument("an earlier entry has the same name");
  }

  Status MakeFile(const TarEntry& entry, const std::string& name) {
    if (entry.size > options_.max_bytes - bytes_) {
      return InvalidArgument("the files exceed {} bytes", options_.max_bytes);
    }
    bytes_ += entry.size;
    const Fd file(openat(folder_.get(), name.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         0600));
    if (!file && errno == EEXIST) return There();
    if (!file) return ErrnoStatus(errno, "creating a file");
    char buffer[64 << 10];
    for (;;) {
      LOCKSTEP_RETURN_IF_ERROR(watch_->Check());
      LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                                tar_.Read(buffer, sizeof(buffer)));
      if (count == 0) break;
      for (size_t done = 0; done < count;) {
        const ssize_t written =
            ::write(file.get(), buffer + done, count - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return ErrnoStatus(errno, "writing a file");
        done += static_cast<size_t>(written);
      }
    }
    // The owner first: chown takes bits away.
    if (options_.user &&
        fchown(file.get(), options_.user->uid, options_.user->gid) != 0) {
      return ErrnoStatus(errno,
                         "changing the owner of a file to the task's user");
    }
    const mode_t mode = (entry.mode & 0111) != 0 ? 0755 : 0644;
    if (fchmod(file.get(), mode) != 0) {
      return ErrnoStatus(errno, "setting a file's mode");
    }
    return OkStatus();
  }

  Status MakeSymlink(const TarEntry& entry, const std::string& name) {
    LOCKSTEP_RETURN_IF_ERROR(CheckLinkTarget(entry.link, folder_parts_.size()));
    if (symlinkat(entry.link.c_str(), folder_.get(), name.c_str()) != 0) {
      return errno == EEXIST ? There() : ErrnoStatus(errno, "creating a link");
    }
    return Own(folder_.get(), name);
  }

  // To a file of before. A link to a symbolic link would give it another
  // place, from which its target may lie outside.
  Status MakeHardLink(const TarEntry& entry, const std::string& name) {
    const auto bad = [&](std::string_view what) {
      return InvalidArgument("it is a link to {}, which {}",
                             QuoteEntry(entry.link), what);
    };
    const auto target = SplitEntryName(entry.link);
    if (!target.ok() || target->empty()) return bad("is outside the folder");
    const auto parent =
        OpenFolder({target->begin(), target->end() - 1}, /*make=*/false);
    if (!parent.ok()) return bad("is not a file of an earlier entry");
    struct stat info {};
    if (fstatat(parent->get(), target->back().c_str(), &info,
                AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      return bad("is not a file of an earlier entry");
    }
    if (linkat(parent->get(), target->back().c_str(), folder_.get(),
               name.c_str(), 0) != 0) {
      return errno == EEXIST ? There() : ErrnoStatus(errno, "creating a link");
    }
    return OkStatus();
  }

  WatchedSource* const watch_;
  TarReader tar_;
  const UnpackOptions& options_;
  Fd top_;
  Fd folder_;
  std::vector<std::string> folder_parts_;
  uint64_t bytes_ = 0;
  uint64_t entries_ = 0;
  uint64_t implicit_ = 0;  // Created parents without an entry.
};

}  // namespace

Status UnpackTar(ByteSource* bytes, const std::string& directory,
                 const UnpackOptions& options, Cancellation* cancel) {
  WatchedSource watched(bytes, options.most, cancel);
  return Unpacker(&watched, options).Run(directory);
}

Status UnpackFile(const std::string& path, const std::string& directory,
                  const UnpackOptions& options, Cancellation* cancel) {
  char magic[2] = {};
  {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto peek, OpenByteSource(path));
    LOCKSTEP_RETURN_IF_ERROR(peek->Read(magic, sizeof(magic)).status());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes,
                            OpenByteSource(path));
  if (memcmp(magic, "\x1f\x8b", sizeof(magic)) == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(bytes, MakeGunzip(std::move(bytes)));
  }
  return UnpackTar(bytes.get(), directory, options, cancel);
}

}  // namespace lockstep::worker::package
