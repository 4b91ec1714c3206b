#include "worker/agent/work/work_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/os/as_user.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxName = 4095;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

using Dir = std::unique_ptr<DIR, int (*)(DIR*)>;

// Takes a descriptor of its own.
Dir OpenDir(int fd) {
  const int copy = openat(fd, ".", kFolderFlags);
  DIR* const dir = copy < 0 ? nullptr : fdopendir(copy);
  if (dir == nullptr && copy >= 0) close(copy);
  return {dir, closedir};
}

// The owner of a file may set any time. Times outside 1970 to 2261, the range
// of the coordinator's messages, become the nearest valid time.
WallTime TimeOf(const struct stat& info) {
  constexpr int64_t kLastSecond = 9'200'000'000;
  const int64_t seconds =
      std::clamp<int64_t>(info.st_mtim.tv_sec, 0, kLastSecond);
  const bool clamped = seconds != info.st_mtim.tv_sec;
  return WallTime(std::chrono::seconds(seconds) +
                  std::chrono::nanoseconds(clamped ? 0 : info.st_mtim.tv_nsec));
}

// Sparse files may add up to more than there are numbers.
int64_t SumUp(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// Counts what is in folders, within limits for all of them together.
class Walk {
 public:
  Walk(const WalkLimits& limits, const std::function<MonoTime()>& now)
      : limits_(limits), now_(now), end_(now() + limits.time) {}

  struct Sum {
    int64_t files = 0;
    int64_t bytes = 0;
  };
  // `entries` may be null: it gets those directly in the folder.
  Sum Count(int folder, int depth, std::vector<WorkFile>* entries) {
    Sum sum;
    const Dir dir = OpenDir(folder);
    if (dir == nullptr) return sum;
    while (const dirent* at = readdir(dir.get())) {
      const std::string name = at->d_name;
      if (name == "." || name == "..") continue;
      if (Over()) break;
      struct stat info {};
      if (fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      WorkFile file;
      file.modify_time = TimeOf(info);
      if (S_ISREG(info.st_mode)) {
        file.bytes = std::max<int64_t>(0, info.st_size);
        ++sum.files;
      } else if (S_ISDIR(info.st_mode)) {
        file.directory = true;
        const Sum below = CountBelow(folder, name, depth + 1);
        file.bytes = below.bytes;
        sum.files += below.files;
      } else {
        continue;
      }
      sum.bytes = SumUp(sum.bytes, file.bytes);
      if (entries == nullptr) continue;
      file.path = PrintableText(name, kMaxName);
      entries->push_back(std::move(file));
    }
    return sum;
  }
  bool truncated() const { return truncated_; }

 private:
  Sum CountBelow(int folder, const std::string& name, int depth) {
    if (depth > limits_.depth) {
      truncated_ = true;
      return {};
    }
    const Fd fd(openat(folder, name.c_str(), kFolderFlags));
    return fd ? Count(fd.get(), depth, nullptr) : Sum();
  }
  bool Over() {
    ++seen_;
    over_ =
        over_ || seen_ > limits_.entries || (seen_ % 64 == 0 && now_() >= end_);
    truncated_ = truncated_ || over_;
    return over_;
  }

  const WalkLimits& limits_;
  const std::function<MonoTime()>& now_;
  const MonoTime end_;
  size_t seen_ = 0;
  bool over_ = false;
  bool truncated_ = false;
};

// The kernel keeps the whole path beneath `root`, without links.
StatusOr<Fd> OpenBeneath(int root, const std::string& path, uint64_t flags) {
  struct open_how how {};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS;
  const std::string name = path.empty() ? "." : path;
  const long fd = syscall(SYS_openat2, root, name.c_str(), &how, sizeof(how));
  if (fd >= 0) return Fd(static_cast<int>(fd));
  const std::string shown = PrintableText(path, kMaxName);
  switch (errno) {
    case ELOOP:
      return InvalidArgument(
          "{} is a symbolic link or lies below one, and links are not followed",
          shown);
    case EXDEV:
      return InvalidArgument("{} leads out of the working directory", shown);
    case ENOENT:
    case ENOTDIR:
      return NotFound("{} is not in the working directory", shown);
    case ENAMETOOLONG:
      return InvalidArgument("the path is too long");
    case ENOSYS:
      return FailedPrecondition(
          "the kernel of this node has no openat2 (Linux 5.6 or later), "
          "without which files cannot be fetched safely");
    default:
      return ErrnoStatus(errno, "opening " + shown);
  }
}

Status ListFolder(int root, const FileQuery& query, const WalkLimits& limits,
                  const std::function<MonoTime()>& now, FileAnswer* answer) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Fd fd,
      OpenBeneath(root, query.path, O_RDONLY | O_NONBLOCK | O_DIRECTORY));
  Walk walk(limits, now);
  (void)walk.Count(fd.get(), 0, &answer->entries);
  auto& entries = answer->entries;
  std::sort(
      entries.begin(), entries.end(),
      [](const WorkFile& a, const WorkFile& b) { return a.path < b.path; });
  answer->truncated = walk.truncated() || entries.size() > kMaxListedFiles;
  if (entries.size() > kMaxListedFiles) entries.resize(kMaxListedFiles);
  for (WorkFile& file : entries) {
    if (query.path.empty()) continue;
    file.path = PrintableText(JoinPath(query.path, file.path), kMaxName);
  }
  return OkStatus();
}

Status CheckRegular(const Fd& fd, const std::string& path, struct stat* info) {
  const std::string shown = PrintableText(path, kMaxName);
  if (fstat(fd.get(), info) != 0)
    return ErrnoStatus(errno, "inspecting " + shown);
  if (S_ISREG(info->st_mode)) return OkStatus();
  return InvalidArgument(
      "{} is {}: only regular files can be read", shown,
      S_ISDIR(info->st_mode) ? "a folder" : "a special file");
}

Status ReadPart(int root, const FileQuery& query, FileAnswer* answer) {
  struct stat info {};
  // Opening a pipe would be felt by the program at its other end.
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd seen,
                            OpenBeneath(root, query.path, O_PATH));
  LOCKSTEP_RETURN_IF_ERROR(CheckRegular(seen, query.path, &info));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Fd fd,
      OpenBeneath(root, query.path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  // It may have been replaced since.
  LOCKSTEP_RETURN_IF_ERROR(CheckRegular(fd, query.path, &info));
  answer->size = info.st_size;
  answer->data.resize(static_cast<size_t>(
      std::clamp<int64_t>(query.range->length, 0, kMaxFileChunk)));
  size_t have = 0;
  while (have < answer->data.size()) {
    const ssize_t n =
        pread(fd.get(), answer->data.data() + have, answer->data.size() - have,
              query.range->offset + static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return ErrnoStatus(errno,
                         "reading " + PrintableText(query.path, kMaxName));
    }
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  answer->data.resize(have);
  return OkStatus();
}

StatusOr<Fd> OpenRoot(const std::string& directory, const FileQuery& query) {
  Fd root(
      open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (root) return root;
  const std::string task = TaskName(query.type, query.index);
  if (errno == ENOENT) {
    return NotFound(
        "the working directory of {} is not on this node: it was empty or has "
        "been removed",
        task);
  }
  return ErrnoStatus(errno, "opening the working directory of " + task);
}

}  // namespace

WorkDirectory DescribeWork(const std::string& directory,
                           const WalkLimits& limits,
                           const std::function<MonoTime()>& now) {
  WorkDirectory work;
  const Fd fd(open(directory.c_str(), kFolderFlags));
  if (!fd) return work;
  Walk walk(limits, now);
  const Walk::Sum sum = walk.Count(fd.get(), 0, &work.entries);
  work.files = sum.files;
  work.bytes = sum.bytes;
  work.truncated = walk.truncated();
  std::sort(work.entries.begin(), work.entries.end(),
            [](const WorkFile& a, const WorkFile& b) {
              return std::make_pair(b.modify_time, a.path) <
                     std::make_pair(a.modify_time, b.path);
            });
  if (work.entries.size() > kMaxWorkEntries) {
    work.entries.resize(kMaxWorkEntries);
  }
  return work;
}

FileAnswer AnswerQuery(const std::string& directory, const FileQuery& query,
                       const std::optional<TaskUser>& user,
                       const WalkLimits& limits,
                       const std::function<MonoTime()>& now) {
  FileAnswer answer;
  answer.status = [&]() -> Status {
    if (query.path.find('\0') != std::string::npos) {
      return InvalidArgument("the path contains a NUL byte");
    }
    // By the daemon itself: the task's user need not reach its own directory's
    // parents.
    LOCKSTEP_ASSIGN_OR_RETURN(const Fd root, OpenRoot(directory, query));
    const auto read = [&] {
      return query.range ? ReadPart(root.get(), query, &answer)
                         : ListFolder(root.get(), query, limits, now, &answer);
    };
    if (!user || user->uid == geteuid()) return read();
    const AsUser as(user->uid, user->gid, user->groups);
    if (as.ok()) return read();
    return FailedPrecondition(
        "the worker cannot read files as user {}: it does not run as root",
        user->uid);
  }();
  if (!answer.status.ok()) {
    const Status status = answer.status;
    answer = FileAnswer();
    answer.status = status;
  }
  answer.id = query.id;
  return answer;
}

}  // namespace lockstep::worker::agent
