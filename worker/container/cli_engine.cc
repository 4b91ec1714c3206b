#include "worker/container/cli_engine.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/container/command.h"
#include "worker/task/engine_words.h"

namespace lockstep::worker::container {

std::vector<FoundContainer> ParseList(std::string_view output) {
  std::vector<FoundContainer> found;
  while (!output.empty()) {
    const std::string_view line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    const size_t space = line.find(' ');
    if (line.empty() || space == 0) continue;
    FoundContainer container;
    container.name = line.substr(0, space);
    if (space != std::string_view::npos) {
      container.daemon = line.substr(space + 1);
    }
    found.push_back(std::move(container));
  }
  return found;
}

CliEngine::CliEngine(EngineSetup setup, std::string version,
                     std::vector<std::string> env, ImageTimes times)
    : setup_(std::move(setup)),
      version_(std::move(version)),
      env_(std::move(env)),
      times_(times) {}

bool CliEngine::confines_root() const {
  // Podman has no daemon: it has the rights of its caller.
  if (setup_.kind == EngineKind::kPodman) return geteuid() != 0;
  return setup_.rootless;
}

std::vector<std::string> CliEngine::SignalArguments(
    const std::string& name) const {
  return {setup_.program, "kill", "--signal", "%", name};
}

std::vector<std::string> CliEngine::InspectArguments(
    const std::string& name) const {
  return {setup_.program,
          "inspect",
          "--type=container",
          "--format",
          "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}",
          name};
}

std::vector<std::string> CliEngine::RemoveArguments(
    const std::string& name) const {
  // Removes it at once, because the grace is over, with its anonymous volumes.
  if (in_tree()) {
    return {setup_.program, "rm",       "--force", "--time=0",
            "--volumes",    "--ignore", name};
  }
  return {setup_.program, "rm", "--force", "--volumes", name};
}

Status CliEngine::Remove(const std::string& name, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const CommandResult result,
      RunCommand({RemoveArguments(name), env_, {}}, deadline));
  // Podman prints it in lower case.
  if (result.ok() ||
      result.last_error.find("o such container") != std::string::npos) {
    return OkStatus();
  }
  return Unavailable("cannot remove the container {}: {}", name,
                     task::EngineSentence(result.last_error));
}

StatusOr<std::vector<FoundContainer>> CliEngine::List(const std::string& mark,
                                                      MonoTime deadline) {
  const std::string label =
      in_tree()
          ? fmt::format("{{{{index .Labels \"{}\"}}}}", kContainerDaemonLabel)
          : fmt::format("{{{{.Label \"{}\"}}}}", kContainerDaemonLabel);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const CommandResult result,
      RunCommand({{setup_.program, "ps", "--all", "--filter",
                   fmt::format("label={}={}", kContainerMarkLabel, mark),
                   "--format", "{{.Names}} " + label},
                  env_,
                  {}},
                 deadline));
  if (!result.ok()) {
    return Unavailable("{} cannot list its containers: {}", version_,
                       task::EngineSentence(result.last_error));
  }
  return ParseList(result.output);
}

Status RemoveContainerBy(const std::string& program,
                         const std::vector<std::string>& env,
                         const std::string& name, MonoTime deadline) {
  EngineSetup setup;
  setup.program = program;
  const bool docker =
      program.substr(program.rfind('/') + 1).starts_with("docker");
  setup.kind = docker ? EngineKind::kDocker : EngineKind::kPodman;
  return CliEngine(std::move(setup), program, env).Remove(name, deadline);
}

}  // namespace lockstep::worker::container
