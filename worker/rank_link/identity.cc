#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "common/base/fd.h"
#include "worker/rank_link/client.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::rank_link {
namespace {

template <typename Number>
Status ReadNumber(const char* variable, Number* number) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    return InvalidArgument(
        "{} is set but {} is not: start this program as a rank of a job",
        kLinkVariable, variable);
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

}  // namespace

StatusOr<std::optional<RankIdentity>> RankIdentityFromEnvironment() {
  const char* path = std::getenv(kLinkVariable);
  if (path == nullptr || *path == '\0') return std::optional<RankIdentity>();
  RankIdentity identity;
  identity.path = path;
  const char* job = std::getenv(kJobVariable);
  if (job == nullptr || *job == '\0') {
    return InvalidArgument(
        "{} is set but {} is not: start this program as a rank of a job",
        kLinkVariable, kJobVariable);
  }
  identity.key.job = job;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadNumber(kGenerationVariable, &identity.key.generation));
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber(kRankVariable, &identity.key.rank));
  int nonce_fd = -1;
  LOCKSTEP_RETURN_IF_ERROR(ReadNumber(kNonceFdVariable, &nonce_fd));
  LOCKSTEP_ASSIGN_OR_RETURN(identity.nonce, ReadNonce(nonce_fd));
  return std::optional<RankIdentity>(std::move(identity));
}

}  // namespace lockstep::worker::rank_link
