#include "worker/agent/ranks/rank_session.h"

#include <utility>

#include "worker/shim/shim_client.h"

namespace lockstep::worker::agent {

StatusOr<task::ShimRequest> ShimRequestOf(
    const SessionRequest& request, const RankPaths& paths,
    const container::ContainerEngine* engine) {
  LOCKSTEP_ASSIGN_OR_RETURN(const task::TaskRecord record,
                            shim::ReadTaskRecord(paths.task_record));
  const bool contained = !record.container.empty();
  if (contained && engine == nullptr) {
    return FailedPrecondition("the node has no container engine any more");
  }
  container::ContainerCommand command;
  command.container = record.container;
  if (request.port) {
    if (contained && !engine->reports()) {
      return FailedPrecondition("{} cannot connect to ports of containers here",
                                engine->version());
    }
    // The shim's own program, with the rank's rights: the connection is the
    // rank's. In a container, the init's, which is the same.
    command.argv = {"/proc/self/exe", "--connect",
                    std::to_string(request.port->port)};
  } else {
    command.argv = request.command->argv;
    command.terminal = request.command->terminal.has_value();
    if (!request.command->term.empty()) {
      command.environment["TERM"] = request.command->term;
    }
  }
  task::ShimRequest shim;
  shim.terminal = command.terminal;
  if (contained) {
    shim.argv = engine->ExecArguments(command);
    shim.in_container = engine->reports();
    return shim;
  }
  for (const auto& [name, value] : command.environment) {
    shim.env.push_back(fmt::format("{}={}", name, value));
  }
  shim.argv = std::move(command.argv);
  return shim;
}

}  // namespace lockstep::worker::agent
