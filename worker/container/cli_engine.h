// The engine behind podman's or docker's command line.
#ifndef LOCKSTEP_WORKER_CONTAINER_CLI_ENGINE_H_
#define LOCKSTEP_WORKER_CONTAINER_CLI_ENGINE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/container/command.h"
#include "worker/container/container_engine.h"
#include "worker/container/run_arguments.h"

namespace lockstep::worker::container {

// Limits for fetching an image.
struct ImageTimes {
  // Limit of an inspection of an image.
  Duration look = std::chrono::seconds(30);
  // Limit of a query to the registry for a newer image. Engines retry
  // repeatedly if it does not answer.
  Duration refresh = std::chrono::seconds(20);
  // Limit of a fetch without output or progress.
  Duration idle = std::chrono::seconds(60);
};

// An engine's data about a local image.
struct LocalImage {
  std::string id;                    // "sha256:..."
  std::vector<std::string> digests;  // "registry/name@sha256:..."

  bool operator==(const LocalImage&) const = default;
};
// Parses a line "ID [NAME@DIGEST]..."; nullopt if it is malformed.
std::optional<LocalImage> ParseLocalImage(std::string_view line);
// Returns the name without tag and digest.
std::string RepositoryOf(std::string_view image);
// Returns the digest of `image` at its registry, or "" if no registry has it.
// Engines assign a digest to local images, too; one of "localhost/" cannot be
// fetched.
std::string RegistryDigest(std::string_view image, const LocalImage& local);

class CliEngine final : public ContainerEngine {
 public:
  // `env` is the environment of the engine's client, "NAME=value".
  CliEngine(EngineSetup setup, std::string version,
            std::vector<std::string> env, ImageTimes times = {});

  const std::string& version() const override { return version_; }
  const std::string& program() const override { return setup_.program; }
  bool can_limit() const override { return setup_.can_limit; }
  bool reports() const override { return in_tree() && !setup_.init.empty(); }
  bool confines_root() const override;
  bool in_tree() const override { return setup_.kind == EngineKind::kPodman; }

  std::vector<std::string> RunArguments(
      const ContainerPlan& plan) const override {
    return container::RunArguments(setup_, plan);
  }
  std::vector<std::string> Environment() const override { return env_; }
  std::vector<std::string> ExecArguments(
      const ContainerCommand& command) const override {
    return container::ExecArguments(setup_, command);
  }
  std::vector<std::string> SignalArguments(
      const std::string& name) const override;
  std::vector<std::string> InspectArguments(
      const std::string& name) const override;
  std::vector<std::string> RemoveArguments(
      const std::string& name) const override;
  StatusOr<ImageHere> EnsureImage(
      const ImageContent& wanted, MonoTime deadline,
      const std::function<bool(const std::string&)>& progress) override;
  Status Remove(const std::string& name, MonoTime deadline) override;
  StatusOr<std::vector<FoundContainer>> List(const std::string& mark,
                                             MonoTime deadline) override;

 private:
  using Progress = std::function<bool(const std::string&)>;

  // One inspection; nullopt if the image is not here.
  StatusOr<std::optional<LocalImage>> Look(const std::string& image,
                                           MonoTime deadline,
                                           const Progress& progress);
  StatusOr<CommandResult> Pull(const std::string& image, MonoTime deadline,
                               const Progress& progress);
  StatusOr<ImageHere> EnsureAny(const std::string& image, MonoTime deadline,
                                const Progress& progress);
  StatusOr<ImageHere> EnsureSame(const ImageContent& wanted, MonoTime deadline,
                                 const Progress& progress);
  MonoTime Within(MonoTime deadline, Duration time) const;

  const EngineSetup setup_;
  const std::string version_;
  const std::vector<std::string> env_;
  const ImageTimes times_;
};

// Stops and removes a container of another engine than the current one, with
// `program`, a podman or docker; otherwise like ContainerEngine::Remove.
Status RemoveContainerBy(const std::string& program,
                         const std::vector<std::string>& env,
                         const std::string& name, MonoTime deadline);

// Returns whether a registry may have a newer image of this name: no digest, no
// tag or "latest", and not "localhost/", which has no registry.
bool MayBeNewer(std::string_view image);

// "NAME DAEMON" lines.
std::vector<FoundContainer> ParseList(std::string_view output);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_CLI_ENGINE_H_
