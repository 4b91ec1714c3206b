#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "worker/rank_link/client.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::rank_link {
namespace {

constexpr size_t kMaxLinkFile = 4096;

template <typename Number>
Status ReadNumber(const char* link_variable, const char* variable,
                  Number* number) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return InvalidArgument(
        "{} is set but {} is not: start this program as a rank of a job",
        link_variable, variable);
  }
  const char* end = text + std::string_view(text).size();
  const auto [stop, error] = std::from_chars(text, end, *number);
  if (error != std::errc() || stop != end || *number < 0) {
    return InvalidArgument("{}='{}' is not a number", variable, text);
  }
  return OkStatus();
}

StatusOr<std::string> ReadNonce(int number) {
  const Fd fd(number);
  std::string nonce(kMaxNonce + 1, '\0');
  ssize_t n = ::pread(number, nonce.data(), nonce.size(), 0);
  if (n < 0 && errno == ESPIPE) {
    n = ::read(number, nonce.data(), nonce.size());
  }
  if (n < 0) {
    return ErrnoStatus(errno, fmt::format("reading the nonce from fd {} ({})",
                                          number, kNonceFdVariable));
  }
  if (n == 0 || n > static_cast<ssize_t>(kMaxNonce)) {
    return InvalidArgument("the nonce in fd {} is not 1 to {} bytes long",
                           number, kMaxNonce);
  }
  nonce.resize(static_cast<size_t>(n));
  return nonce;
}

Status ReadKey(const char* link_variable, RankKey* key) {
  const char* job = std::getenv(kJobVariable);
  if (job == nullptr || *job == '\0') {
    return InvalidArgument(
        "{} is set but {} is not: start this program as a rank of a job",
        link_variable, kJobVariable);
  }
  key->job = job;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadNumber(link_variable, kGenerationVariable, &key->generation));
  return ReadNumber(link_variable, kRankVariable, &key->rank);
}

bool IsSet(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0';
}

}  // namespace

StatusOr<std::optional<RankIdentity>> RankIdentityFromEnvironment() {
  const char* path = std::getenv(kLinkVariable);
  if (path == nullptr || *path == '\0') return std::optional<RankIdentity>();
  RankIdentity identity;
  identity.path = path;
  LOCKSTEP_RETURN_IF_ERROR(ReadKey(kLinkVariable, &identity.key));
  int nonce_fd = -1;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadNumber(kLinkVariable, kNonceFdVariable, &nonce_fd));
  LOCKSTEP_ASSIGN_OR_RETURN(identity.nonce, ReadNonce(nonce_fd));
  return std::optional<RankIdentity>(std::move(identity));
}

StatusOr<std::optional<RankIdentity>> ProgramIdentityFromEnvironment() {
  if (!IsSet(kLinkFileVariable)) {
    if (IsSet(kLinkVariable)) {
      return FailedPrecondition(
          "this is a rank of a native job, which joins with lockstep's C++ "
          "runtime: submit it with --kind program");
    }
    if (IsSet(kJobVariable)) {
      return FailedPrecondition(
          "{} is set but {} is not: the worker daemon of this node is too old "
          "for programs to join (upgrade lockstep-worker), or the variable was "
          "removed",
          kJobVariable, kLinkFileVariable);
    }
    return std::optional<RankIdentity>();
  }
  RankIdentity identity;
  LOCKSTEP_RETURN_IF_ERROR(ReadKey(kLinkFileVariable, &identity.key));
  const std::string file = std::getenv(kLinkFileVariable);
  StatusOr<std::string> text = RealFileSystem()->Read(file, kMaxLinkFile);
  if (!text.ok()) return Annotate(text.status(), kLinkFileVariable);
  const size_t line = text->find('\n');
  const size_t end =
      line == std::string::npos ? line : text->find('\n', line + 1);
  if (end == std::string::npos) {
    return InvalidArgument("{}: {} has no path and nonce on a line each",
                           kLinkFileVariable, file);
  }
  identity.path = text->substr(0, line);
  identity.nonce = text->substr(line + 1, end - line - 1);
  identity.instance = RandomBytes(16);
  return std::optional<RankIdentity>(std::move(identity));
}

std::string LinkFileText(const std::string& path, const std::string& nonce) {
  return path + "\n" + nonce + "\n";
}

}  // namespace lockstep::worker::rank_link
