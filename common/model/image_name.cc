#include "common/model/image_name.h"

#include <re2/re2.h>

#include <algorithm>
#include <string>

#include "absl/strings/escaping.h"

namespace lockstep {
namespace {

constexpr size_t kMaxName = 512;

// The prefixes of containers-transports(5) that a tag could follow. "docker:"
// must be followed by "//", which no name contains.
constexpr std::string_view kTransports[] = {
    "atomic",        "containers-storage", "dir",    "oci", "docker-archive",
    "docker-daemon", "oci-archive",        "ostree", "sif", "tarball"};

const re2::RE2& Grammar() {
  // Never destroyed, because threads may use it at exit.
  static const re2::RE2* const grammar = [] {
    const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
    const std::string host = "(?:" + label + "(?:\\." + label +
                             ")*|\\[[0-9A-Fa-f:]+\\])(?::[0-9]+)?";
    const std::string part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    const std::string tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    const std::string digest =
        "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:"
        "[0-9A-Fa-f]{32,}";
    return new re2::RE2("(?:" + host + "/)?" + part + "(?:/" + part +
                        ")*(?::" + tag + ")?(?:@" + digest + ")?");
  }();
  return *grammar;
}

// Makes the name safe for any message.
std::string Shown(std::string_view image) {
  constexpr size_t kShown = 200;
  return absl::CEscape({image.data(), std::min(image.size(), kShown)});
}

}  // namespace

Status CheckImageName(std::string_view image) {
  if (image.size() > kMaxName ||
      !re2::RE2::FullMatch(re2::StringPiece(image.data(), image.size()),
                           Grammar())) {
    return InvalidArgument(
        "\"{}\" is not an image name: it must be "
        "[REGISTRY[:PORT]/]NAME[:TAG][@DIGEST], in lower case",
        Shown(image));
  }
  const size_t colon = image.find(':');
  const std::string_view first = image.substr(0, colon);
  if (colon != std::string_view::npos &&
      std::find(std::begin(kTransports), std::end(kTransports), first) !=
          std::end(kTransports)) {
    return InvalidArgument(
        "\"{}\" is not an image name: for engines \"{}:\" means a file of "
        "the host; put the registry before it",
        Shown(image), first);
  }
  return OkStatus();
}

}  // namespace lockstep
