#include "worker/rank_link/protocol.h"

#include <algorithm>
#include <string>

#include "common/base/version.h"
#include "worker/rank_link/text.h"

namespace lockstep::worker::rank_link {
namespace {

// A peer wrote it.
constexpr size_t kMaxVersion = 64;

}  // namespace

Status CheckProtocol(const v1::RankHello& hello) {
  const int32_t theirs = std::max(1, hello.protocol());
  if (theirs == kLinkProtocol || theirs == kLinkProtocol - 1) return OkStatus();
  const bool newer = theirs > kLinkProtocol;
  const std::string version =
      hello.version().empty() ? "?" : CleanText(hello.version(), kMaxVersion);
  return FailedPrecondition(
      "lockstep {} of this program and lockstep-worker {} of this node do not "
      "understand each other (protocols {} and {}): install lockstep {} where "
      "the program runs{}",
      version, kVersion, theirs, kLinkProtocol, kVersion,
      newer ? fmt::format(", or upgrade lockstep-worker to {}", version) : "");
}

}  // namespace lockstep::worker::rank_link
