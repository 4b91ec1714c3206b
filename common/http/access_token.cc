#include "common/http/access_token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/base/login_link.h"
#include "common/base/random.h"
#include "common/base/sha256.h"

namespace lockstep::http {
namespace {

constexpr size_t kRandomBytes = 32;
constexpr size_t kLeast = 16;
constexpr size_t kMost = 512;
constexpr mode_t kMode = 0640;
// Time between two checks of the file.
constexpr Duration kLookInterval = std::chrono::seconds(1);

// Returns the part of `header` after `scheme`, given in lower case with its
// space.
std::optional<std::string_view> After(std::string_view header,
                                      std::string_view scheme) {
  if (header.size() < scheme.size()) return std::nullopt;
  for (size_t i = 0; i < scheme.size(); ++i) {
    const char c = header[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != scheme[i]) {
      return std::nullopt;
    }
  }
  header.remove_prefix(scheme.size());
  return header;
}

// Returns "" if `header` has no token.
std::string Shown(std::string_view header) {
  if (header.size() > 2 * kMost) return "";
  if (const auto token = After(header, "bearer ")) return std::string(*token);
  const auto basic = After(header, "basic ");
  std::string pair;
  if (!basic || !absl::Base64Unescape({basic->data(), basic->size()}, &pair)) {
    return "";
  }
  constexpr std::string_view kUser = "token:";
  return pair.starts_with(kUser) ? pair.substr(kUser.size()) : "";
}

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Unavailable("{}", std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

std::tuple<ino_t, time_t, long> Version(const struct stat& info) {
  return {info.st_ino, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

// Writes the whole file under another name first, because a daemon that starts
// at the same time must not read a partial file.
Status Make(const std::string& path) {
  std::string text;
  {
    const std::string random = RandomBytes(kRandomBytes);
    absl::WebSafeBase64Escape({random.data(), random.size()}, &text);
  }
  text += '\n';
  const std::string draft = path + ".new-" + RandomHex(8);
  const auto failed = [&](const char* what) {
    const std::string why = std::strerror(errno);
    ::unlink(draft.c_str());
    return FailedPrecondition(
        "the token file {} is missing and cannot be created ({}: {}): make its "
        "directory writable for this daemon",
        path, what, why);
  };
  Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!fd) return failed("open");
  // The umask may have removed the group's read permission.
  if (::fchmod(fd.get(), kMode) != 0) return failed("chmod");
  if (!WriteAll(fd.get(), text).ok()) return failed("write");
  if (::fsync(fd.get()) != 0) return failed("fsync");
  if (::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return failed("link");
  }
  ::unlink(draft.c_str());
  return OkStatus();
}

}  // namespace

AccessToken::AccessToken(std::string path, const Clock* clock)
    : path_(std::move(path)), clock_(clock) {}

StatusOr<std::unique_ptr<AccessToken>> AccessToken::Open(std::string path,
                                                         const Clock* clock) {
  if (RealFileSystem()->Stat(path).status().code() == StatusCode::kNotFound) {
    LOCKSTEP_RETURN_IF_ERROR(Make(path));
  }
  std::unique_ptr<AccessToken> token(new AccessToken(std::move(path), clock));
  MutexLock lock(&token->mu_);
  token->looked_ = clock->Now().mono;
  LOCKSTEP_RETURN_IF_ERROR(token->Read());
  return token;
}

Status AccessToken::Read() {
  struct stat info = {};
  if (::stat(path_.c_str(), &info) == 0) version_ = Version(info);
  const auto read = RealFileSystem()->Read(path_, kMost + 2);
  if (!read.ok()) {
    return FailedPrecondition("the token file {} cannot be read: {}", path_,
                              Message(read.status()));
  }
  if ((info.st_mode & S_IROTH) != 0) {
    return InvalidArgument(
        "every user of this machine can read the token file {}: chmod 0640 "
        "it, and give it to a group of its readers",
        path_);
  }
  std::string text = *read;
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  const bool visible = std::all_of(
      text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!visible || text.size() < kLeast || text.size() > kMost) {
    return InvalidArgument(
        "the token file {} must have one line of {} to {} visible ASCII "
        "characters; the daemon creates a missing file at its start",
        path_, kLeast, kMost);
  }
  token_ = std::move(text);
  return OkStatus();
}

void AccessToken::ReadIfChanged() {
  const MonoTime now = clock_->Now().mono;
  if (now - looked_ < kLookInterval) return;
  looked_ = now;
  struct stat info = {};
  if (::stat(path_.c_str(), &info) != 0 || Version(info) == version_) return;
  if (const Status read = Read(); !read.ok()) {
    LOG_WARN("http: the earlier token stays valid: {}", Message(read));
  }
}

bool AccessToken::Admits(std::string_view header) {
  const std::string shown = Sha256(Shown(header));
  MutexLock lock(&mu_);
  ReadIfChanged();
  const std::string right = Sha256(token_);
  return CRYPTO_memcmp(shown.data(), right.data(), right.size()) == 0;
}

std::string AccessToken::Mac(std::string_view text) {
  MutexLock lock(&mu_);
  ReadIfChanged();
  return TokenMac(token_, text);
}

}  // namespace lockstep::http
