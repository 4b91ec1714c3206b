#include "client/package/list.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "client/package/ignore.h"
#include "common/base/entry_name.h"
#include "common/base/file.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr char kIgnoreFile[] = ".gcloudignore";
constexpr uint64_t kMaxIgnoreFile = 1 << 20;

// UTF-8 without control characters.
bool IsCleanName(std::string_view name) {
  return IsUtf8(name) && std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

// Makes a name safe for a sentence.
std::string Shown(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c)
                                       : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

class Lister {
 public:
  Lister(const std::string& folder, const std::string& prefix,
         const PackLimits& limits, const std::function<bool()>& stop)
      : folder_(folder), prefix_(prefix), limits_(limits), stop_(stop) {}

  StatusOr<std::vector<PackEntry>> Run() {
    LOCKSTEP_RETURN_IF_ERROR(ReadRules());
    LOCKSTEP_RETURN_IF_ERROR(Walk(""));
    std::sort(
        entries_.begin(), entries_.end(),
        [](const PackEntry& a, const PackEntry& b) { return a.path < b.path; });
    return std::move(entries_);
  }

 private:
  Status ReadRules() {
    FileSystem* const files = RealFileSystem();
    const auto text =
        files->Read(JoinPath(folder_, kIgnoreFile), kMaxIgnoreFile);
    if (text.status().code() == StatusCode::kNotFound) return OkStatus();
    if (!text.ok()) return text.status();
    for (const std::string& name : IgnoreRules::Includes(*text)) {
      if (name.find('/') != std::string::npos) {
        return InvalidArgument(
            "{}: #!include:{} is in another folder; only a file of the same "
            "folder "
            "can be included",
            JoinPath(folder_, kIgnoreFile), Shown(name));
      }
      LOCKSTEP_ASSIGN_OR_RETURN(
          const std::string more,
          files->Read(JoinPath(folder_, name), kMaxIgnoreFile));
      rules_.Add(more);
    }
    rules_.Add(*text);
    return OkStatus();
  }

  // The maximum depth of a name.
  Status Walk(const std::string& path) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              RealFileSystem()->List(Full(path)));
    for (const std::string& name : names) {
      if (stop_ && stop_()) return Cancelled("stopped while packing");
      LOCKSTEP_RETURN_IF_ERROR(Visit(path.empty() ? name : path + "/" + name));
    }
    return OkStatus();
  }

  Status Visit(const std::string& path) {
    struct stat info {};
    if (lstat(Full(path).c_str(), &info) != 0) {
      return ErrnoStatus(errno, Full(path));
    }
    const bool is_directory = S_ISDIR(info.st_mode);
    if (rules_.Ignores(path, is_directory)) return OkStatus();
    if (!IsCleanName(path)) {
      return Refuse(path,
                    "is a name that is not UTF-8 or has control "
                    "characters");
    }
    const auto parts =
        SplitEntryName(prefix_.empty() ? path : prefix_ + "/" + path);
    if (!parts.ok()) {
      return Refuse(path, "is not a valid name in a package, as " +
                              Message(parts.status()));
    }
    PackEntry entry;
    entry.path = path;
    if (is_directory) {
      entry.kind = PackEntry::Kind::kDirectory;
    } else if (S_ISLNK(info.st_mode)) {
      entry.kind = PackEntry::Kind::kLink;
      LOCKSTEP_RETURN_IF_ERROR(ReadLink(&entry));
    } else if (S_ISREG(info.st_mode)) {
      entry.bytes = info.st_size;
      entry.executable = (info.st_mode & S_IXUSR) != 0;
    } else {
      return Refuse(path, S_ISSOCK(info.st_mode)   ? "is a socket"
                          : S_ISFIFO(info.st_mode) ? "is a pipe"
                                                   : "is a device");
    }
    bytes_ += entry.bytes;
    entries_.push_back(entry);
    LOCKSTEP_RETURN_IF_ERROR(CheckLimits());
    return is_directory ? Walk(path) : OkStatus();
  }

  Status ReadLink(PackEntry* entry) const {
    char target[PATH_MAX];
    const ssize_t size =
        readlink(Full(entry->path).c_str(), target, sizeof(target));
    if (size < 0) return ErrnoStatus(errno, Full(entry->path));
    entry->target.assign(target, size);
    const std::string shown = Shown(entry->target);
    if (!IsCleanName(entry->target)) {
      return Refuse(entry->path, "is a link to a name that is not UTF-8");
    }
    // Checks the target's text, as unpacking does, and its destination, so that
    // links that work here work on the nodes.
    const auto depth = std::count(entry->path.begin(), entry->path.end(), '/');
    const Status words =
        CheckLinkTarget(entry->target, static_cast<size_t>(depth));
    char real[PATH_MAX];
    if (!realpath(Full(entry->path).c_str(), real)) {
      return Refuse(entry->path,
                    "is a link to " + shown + ", which does not exist");
    }
    const std::string top = folder_ == "/" ? "/" : folder_ + "/";
    const std::string leads_to = real;
    if (leads_to != folder_ && !leads_to.starts_with(top)) {
      return Refuse(entry->path,
                    "is a link to " + shown + ", which leaves the folder");
    }
    if (!words.ok()) {
      const std::string what = Message(words);
      return Refuse(entry->path, what.substr(what.starts_with("it ") ? 3 : 0));
    }
    return OkStatus();
  }

  Status CheckLimits() const {
    if (static_cast<int64_t>(entries_.size()) > limits_.entries) {
      return ResourceExhausted(
          "{} has more than {} files; leave out what the program does not need "
          "by a {} in it",
          folder_, limits_.entries, kIgnoreFile);
    }
    if (bytes_ > limits_.bytes) {
      return ResourceExhausted(
          "{} has more than {} MiB of files; leave out what is not code by a "
          "{} in it, and read data from a path that the nodes see",
          folder_, limits_.bytes >> 20, kIgnoreFile);
    }
    return OkStatus();
  }

  Status Refuse(const std::string& path, const std::string& what) const {
    return InvalidArgument("{} {}, and cannot be packed; leave it out by a {}",
                           Shown(Full(path)), what, kIgnoreFile);
  }

  std::string Full(const std::string& path) const {
    return path.empty() ? folder_ : JoinPath(folder_, path);
  }

  const std::string folder_;
  const std::string prefix_;
  const PackLimits limits_;
  const std::function<bool()>& stop_;
  IgnoreRules rules_ = IgnoreRules::Default();
  std::vector<PackEntry> entries_;
  int64_t bytes_ = 0;
};

}  // namespace

StatusOr<std::vector<PackEntry>> ListFolder(const std::string& folder,
                                            const std::string& prefix,
                                            const PackLimits& limits,
                                            const std::function<bool()>& stop) {
  return Lister(folder, prefix, limits, stop).Run();
}

}  // namespace lockstep::cli
