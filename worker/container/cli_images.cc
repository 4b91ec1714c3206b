// Images, by an engine's command line.
#include <algorithm>
#include <utility>

#include "common/base/hex.h"
#include "common/model/image_name.h"
#include "worker/container/cli_engine.h"
#include "worker/task/engine_words.h"

namespace lockstep::worker::container {
namespace {

constexpr std::string_view kSha = "sha256:";
constexpr size_t kShaDigits = 64;
constexpr std::string_view kLocal = "localhost/";

bool HasDigest(const LocalImage& local, const std::string& digest) {
  return !digest.empty() &&
         std::any_of(local.digests.begin(), local.digests.end(),
                     [&](const std::string& name) {
                       return name.ends_with("@" + digest);
                     });
}

bool IsWanted(const LocalImage& local, const ImageContent& wanted) {
  return local.id == wanted.id || HasDigest(local, wanted.digest);
}

ImageContent ContentOf(const std::string& image, const LocalImage& local) {
  return {image, local.id, RegistryDigest(image, local), ""};
}

Status Unnamed(const std::string& image, const Status& status) {
  return status.code() == StatusCode::kCancelled
             ? Cancelled("cancelled fetching the image {}", image)
             : Annotate(status, "the image " + image);
}

}  // namespace

bool MayBeNewer(std::string_view image) {
  if (image.starts_with("localhost/")) return false;
  if (image.find('@') != std::string_view::npos) return false;
  const size_t colon = image.rfind(':');
  const size_t slash = image.rfind('/');
  // A colon before a slash is the registry's port.
  if (colon == std::string_view::npos ||
      (slash != std::string_view::npos && colon < slash)) {
    // Without a tag; podman also takes an image's id, which names no registry.
    return true;
  }
  return image.substr(colon + 1) == "latest";
}

std::optional<LocalImage> ParseLocalImage(std::string_view line) {
  LocalImage local;
  line = line.substr(0, line.find('\n'));
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (word.empty()) continue;
    if (local.id.empty()) {
      // Podman leaves the algorithm out.
      const std::string_view hex =
          word.starts_with(kSha) ? word.substr(kSha.size()) : word;
      if (!IsHex(hex, kShaDigits)) return std::nullopt;
      local.id = fmt::format("{}{}", kSha, hex);
    } else if (word.find('@') != std::string_view::npos) {
      local.digests.emplace_back(word);
    }
  }
  if (local.id.empty()) return std::nullopt;
  return local;
}

std::string RepositoryOf(std::string_view image) {
  image = image.substr(0, image.find('@'));
  const size_t colon = image.rfind(':');
  const size_t slash = image.rfind('/');
  // A colon before a slash is the registry's port.
  if (colon != std::string_view::npos &&
      (slash == std::string_view::npos || colon > slash)) {
    image = image.substr(0, colon);
  }
  return std::string(image);
}

std::string RegistryDigest(std::string_view image, const LocalImage& local) {
  const std::string repository = RepositoryOf(image);
  for (const std::string& name : local.digests) {
    const size_t at = name.find('@');
    const std::string_view from = std::string_view(name).substr(0, at);
    const std::string_view digest = std::string_view(name).substr(at + 1);
    // "debian" is "docker.io/library/debian".
    if (from != repository && !from.ends_with("/" + repository)) continue;
    if (from.starts_with(kLocal) || !digest.starts_with(kSha) ||
        !IsHex(digest.substr(kSha.size()), kShaDigits)) {
      continue;
    }
    return std::string(digest);
  }
  return "";
}

MonoTime CliEngine::Within(MonoTime deadline, Duration time) const {
  return std::min(deadline, MonotonicNow() + time);
}

StatusOr<std::optional<LocalImage>> CliEngine::Look(const std::string& image,
                                                    MonoTime deadline,
                                                    const Progress& progress) {
  Command look{{setup_.program, "image", "inspect", "--format",
                "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}", image},
               env_,
               {}};
  look.on_line = [&](const std::string& /*line*/) {
    return !progress || progress("inspecting the image");
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const CommandResult result,
                            RunCommand(look, Within(deadline, times_.look)));
  if (!result.ok()) return std::nullopt;
  std::optional<LocalImage> local = ParseLocalImage(result.output);
  if (!local) {
    return Internal("{} returned invalid image data: {}", version_,
                    task::EngineSentence(result.output));
  }
  return local;
}

StatusOr<CommandResult> CliEngine::Pull(const std::string& image,
                                        MonoTime deadline,
                                        const Progress& progress) {
  Command pull{{setup_.program, "pull", image}, env_, {}, times_.idle};
  pull.on_line = [&](const std::string& line) {
    return !progress || progress(task::EngineSentence(line));
  };
  return RunCommand(pull, deadline);
}

StatusOr<ImageHere> CliEngine::EnsureImage(
    const ImageContent& wanted, MonoTime deadline,
    const std::function<bool(const std::string&)>& progress) {
  if (const Status named = CheckImageName(wanted.image); !named.ok()) {
    return FailedPrecondition("{}", Message(named));
  }
  return wanted.id.empty() ? EnsureAny(wanted.image, deadline, progress)
                           : EnsureSame(wanted, deadline, progress);
}

StatusOr<ImageHere> CliEngine::EnsureAny(const std::string& image,
                                         MonoTime deadline,
                                         const Progress& progress) {
  const auto before = Look(image, deadline, progress);
  if (!before.ok()) return Unnamed(image, before.status());
  const bool here = before->has_value();
  if (here && !MayBeNewer(image)) {
    return ImageHere{ContentOf(image, **before), false};
  }
  // Only something of a registry can be fetched.
  if (image.starts_with(kLocal)) {
    return FailedPrecondition("the image {} is not on this node", image);
  }
  const auto pulled =
      Pull(image, here ? Within(deadline, times_.refresh) : deadline, progress);
  if (pulled.status().code() == StatusCode::kCancelled) {
    return Unnamed(image, pulled.status());
  }
  if (pulled.ok() && pulled->ok()) {
    const auto after = Look(image, deadline, progress);
    if (!after.ok()) return Unnamed(image, after.status());
    if (!after->has_value()) {
      return Internal("the engine fetched the image {} but does not list it",
                      image);
    }
    return ImageHere{ContentOf(image, **after),
                     !here || (*before)->id != (*after)->id};
  }
  // An older one is better than none, when the registry cannot be reached.
  if (here) return ImageHere{ContentOf(image, **before), false};
  if (!pulled.ok()) return Unnamed(image, pulled.status());
  return FailedPrecondition("cannot fetch the image {}: {}", image,
                            task::EngineSentence(pulled->last_error));
}

StatusOr<ImageHere> CliEngine::EnsureSame(const ImageContent& wanted,
                                          MonoTime deadline,
                                          const Progress& progress) {
  const std::string& image = wanted.image;
  const auto found = [&](const LocalImage& local, bool fetched) {
    ImageHere here{ContentOf(image, local), fetched};
    if (here.content.digest.empty() && HasDigest(local, wanted.digest)) {
      here.content.digest = wanted.digest;
    }
    return here;
  };
  const auto named = Look(image, deadline, progress);
  if (!named.ok()) return Unnamed(image, named.status());
  if (*named && IsWanted(**named, wanted)) return found(**named, false);
  // Its tag was moved, and the image is still there.
  const auto kept = Look(wanted.id, deadline, progress);
  if (!kept.ok()) return Unnamed(image, kept.status());
  if (*kept && IsWanted(**kept, wanted)) return found(**kept, false);

  std::string why = "no registry has that image: copy it to this node";
  if (!wanted.digest.empty() && !image.starts_with(kLocal)) {
    const std::string by_digest = RepositoryOf(image) + "@" + wanted.digest;
    const auto pulled = Pull(by_digest, deadline, progress);
    if (!pulled.ok()) return Unnamed(image, pulled.status());
    if (pulled->ok()) {
      const auto after = Look(by_digest, deadline, progress);
      if (!after.ok()) return Unnamed(image, after.status());
      if (*after) return found(**after, true);
    }
    why =
        "cannot fetch that image: " + task::EngineSentence(pulled->last_error);
  }
  const std::string here =
      *named ? fmt::format("is {} on this node",
                           ShownDigest(ContentOf(image, **named)))
             : "is not on this node";
  return FailedPrecondition(
      "the image {} {}, but the job uses {}, as resolved by {}; {}", image,
      here, ShownDigest(wanted), wanted.node.empty() ? "another" : wanted.node,
      why);
}

}  // namespace lockstep::worker::container
