#include "worker/agent/prepare/output_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/fd.h"
#include "common/base/random.h"
#include "common/model/output_identity.h"
#include "common/os/as_user.h"
#include "worker/agent/prepare/preflight.h"

namespace lockstep::worker::agent {
namespace {

constexpr off_t kMaxFile = 4096;

std::string FileIn(const std::string& directory) {
  return JoinPath(directory, kOutputIdentityFile);
}

// The directory belongs to the task's user, who may put anything there: a pipe
// must not hold up this thread. NotFound: there is nothing. ResourceExhausted:
// it is too long to be an identity, or it is not a file.
StatusOr<std::string> ReadFile(const std::string& path) {
  const Fd fd(open(path.c_str(),
                   O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!fd && errno != ELOOP && errno != ENXIO) {
    return ErrnoStatus(errno, "opening " + path);
  }
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > kMaxFile) {
    return ResourceExhausted("{} does not consist of one line", path);
  }
  std::string text(kMaxFile, '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  if (n < 0) return ErrnoStatus(errno, "reading " + path);
  text.resize(static_cast<size_t>(n));
  return text;
}

// NotFound: there is none.
StatusOr<std::string> ReadIdentity(const std::string& directory) {
  const std::string path = FileIn(directory);
  const auto text = ReadFile(path);
  if (text.status().code() == StatusCode::kNotFound) return text.status();
  if (!text.ok() && text.status().code() != StatusCode::kResourceExhausted) {
    return PreflightRefusal(
        text.status(),
        fmt::format("the identity of the output directory cannot be "
                    "read: {}",
                    Message(text.status())));
  }
  std::string_view line = text.ok() ? std::string_view(*text) : "";
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (!IsOutputIdentity(line)) {
    return FailedPrecondition(
        "{} is damaged: it must contain one line of 32 hex digits, the id of "
        "the output directory; restore the file, or remove it if no job uses "
        "the directory",
        path);
  }
  return std::string(line);
}

// AlreadyExists if another host has created it first.
Status Publish(const std::string& temporary, const std::string& path) {
  if (link(temporary.c_str(), path.c_str()) == 0) return OkStatus();
  const int error = errno;
  // File systems without hard links.
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                  RENAME_NOREPLACE) == 0) {
      return OkStatus();
    }
    if (errno == EINVAL || errno == ENOSYS) {
      if (rename(temporary.c_str(), path.c_str()) == 0) return OkStatus();
    }
    return ErrnoStatus(errno, "making " + path);
  }
  return ErrnoStatus(error, "making " + path);
}

Status MakeIdentity(FileSystem* files, const std::string& directory) {
  const std::string path = FileIn(directory);
  const std::string temporary = path + "." + RandomHex(8);
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, files->Create(temporary, 0644));
  Status written = file->Append(RandomHex(16) + "\n");
  if (written.ok()) written = file->Sync();
  if (written.ok()) written = file->Close();
  if (written.ok()) written = Publish(temporary, path);
  (void)files->Remove(temporary);
  // Two jobs may begin at once: then both use the file of the first.
  if (written.code() == StatusCode::kAlreadyExists) return OkStatus();
  return written;
}

StatusOr<std::string> ReadOrMake(FileSystem* files,
                                 const std::string& directory) {
  auto known = ReadIdentity(directory);
  if (known.status().code() != StatusCode::kNotFound) return known;
  if (const Status made = MakeIdentity(files, directory); !made.ok()) {
    return PreflightRefusal(
        made,
        fmt::format("cannot write an identity into the output directory {}: {}",
                    directory, Message(made)));
  }
  known = ReadIdentity(directory);
  if (known.status().code() == StatusCode::kNotFound) {
    return Unavailable("{} vanished right after its creation",
                       FileIn(directory));
  }
  return known;
}

Status NotShared(const std::string& directory, std::string_view what) {
  return WithReason(
      FailedPrecondition(
          "the output directory {} is not shared: this host {} the file {} "
          "that the host of rank 0 sees there; mount the same file system on "
          "both, or choose a shared directory",
          directory, what, kOutputIdentityFile),
      kOutputNotShared);
}

Status Missing(const std::string& sentence) {
  return WithReason(FailedPrecondition("{}", sentence), kOutputMissing);
}

// Runs on the host of rank 0. Creates no directory in place of a missing one.
StatusOr<std::string> CompareOnFirst(const OutputIdentityInput& input) {
  const std::string& directory = input.directory;
  auto seen = ReadIdentity(directory);
  if (seen.ok() && *seen == input.expected) return seen;
  if (seen.ok()) {
    return Missing(fmt::format(
        "the output directory {} is not the one that the job wrote to before: "
        "its {} has {}, not {}; mount the right file system",
        directory, kOutputIdentityFile, *seen, input.expected));
  }
  switch (seen.status().code()) {
    case StatusCode::kNotFound:
      return Missing(fmt::format(
          "the file {} is missing from the output directory {}, where the job "
          "wrote before: mount the directory again, or write the line {} into "
          "the file if the directory is the right one",
          kOutputIdentityFile, directory, input.expected));
    case StatusCode::kFailedPrecondition:
      return Missing(
          fmt::format("cannot verify that the output directory {} is the one "
                      "that the job wrote to before: {}",
                      directory, Message(seen.status())));
    default:
      return seen;
  }
}

// One look at what must be `input.expected`. OUTPUT_NOT_SHARED: it may be seen
// later.
StatusOr<std::string> Compare(const OutputIdentityInput& input) {
  if (input.has_first_rank) return CompareOnFirst(input);
  const std::string& directory = input.directory;
  auto seen = ReadIdentity(directory);
  const bool missing = seen.status().code() == StatusCode::kNotFound;
  if (!seen.ok() && !missing) return seen;
  if (seen.ok() && *seen == input.expected) return seen;
  if (missing) return NotShared(directory, "does not see");
  return NotShared(directory, "sees another file in place of");
}

// With the rights of the task's user, for the job names the path.
StatusOr<std::string> Look(FileSystem* files,
                           const OutputIdentityInput& input) {
  const auto look = [&] {
    return input.expected.empty() ? ReadOrMake(files, input.directory)
                                  : Compare(input);
  };
  const auto& user = input.user;
  if (!user || user->uid == geteuid()) return look();
  const AsUser as(user->uid, user->gid, user->groups);
  if (as.ok()) return look();
  return FailedPrecondition(
      "the worker cannot check the output directory {} as user {}: it does not "
      "run as root",
      input.directory, user->uid);
}

}  // namespace

StatusOr<std::string> OutputIdentity(FileSystem* files,
                                     const OutputIdentityInput& input,
                                     const std::function<void()>& waiting,
                                     package::Cancellation* cancel) {
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + input.options.patience;
  for (;;) {
    auto seen = Look(files, input);
    const bool may_come =
        ReasonOf(seen.status()) == kOutputNotShared && !input.has_first_rank;
    const MonoTime now = clock.Now().mono;
    if (seen.ok() || !may_come || now >= deadline) return seen;
    waiting();
    if (!cancel->SleepFor(std::min(input.options.poll, deadline - now))) {
      return cancel->Check();
    }
  }
}

}  // namespace lockstep::worker::agent
