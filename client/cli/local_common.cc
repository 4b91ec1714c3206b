#include "client/cli/local_common.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "common/base/file.h"

namespace lockstep::cli {

void AddLocalDirOption(Command* command, std::string* dir) {
  command->Add("--dir DIR", dir,
               "The cluster's directory (default: the context's, "
               "or ~/.local/share/lockstep/local)");
}

StatusOr<std::string> LocalDir(const std::string& dir,
                               const std::string& context,
                               const CliEnvironment& env) {
  if (!dir.empty()) return JoinPath(env.working_directory, dir);
  LOCKSTEP_ASSIGN_OR_RETURN(std::string known, LocalDirOfContext(context, env));
  if (known.empty() && context.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(known, LocalDirOfContext(kLocalContext, env));
  }
  if (!known.empty()) return known;
  const std::string data = env.Variable("XDG_DATA_HOME");
  if (!data.empty() && data[0] == '/') return data + "/lockstep/local";
  const std::string home = env.Variable("HOME");
  if (home.empty()) {
    return FailedPrecondition(
        "neither HOME nor XDG_DATA_HOME is set: give --dir DIR");
  }
  return home + "/.local/share/lockstep/local";
}

std::string FormatDaemons(const std::vector<DaemonStatus>& daemons,
                          const Style& style) {
  std::vector<std::vector<std::string>> rows;
  for (const DaemonStatus& daemon : daemons) {
    rows.push_back({daemon.name,
                    daemon.running ? "running" : style.Red("stopped"),
                    daemon.running ? fmt::format("{}", daemon.pid) : "-",
                    daemon.grpc.empty() ? "-" : daemon.grpc, daemon.http,
                    daemon.directory});
  }
  return RenderTable({"DAEMON", "STATE", "PID", "GRPC", "HTTP", "DIRECTORY"},
                     rows);
}

std::string DaemonsJson(const std::string& dir,
                        const std::vector<DaemonStatus>& daemons) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  bool running = !daemons.empty();
  for (const DaemonStatus& daemon : daemons) {
    running = running && daemon.running;
    ordered_json one = {{"name", daemon.name},
                        {"running", daemon.running},
                        {"pid", daemon.pid}};
    if (!daemon.grpc.empty()) one["grpc"] = daemon.grpc;
    one["http"] = daemon.http;
    one["directory"] = daemon.directory;
    one["log"] = daemon.log;
    list.push_back(one);
  }
  return ordered_json(
             {{"directory", dir}, {"running", running}, {"daemons", list}})
             .dump(1) +
         "\n";
}

Status WriteDaemons(const Cli& cli, const LocalCluster& cluster) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  const auto daemons = cluster.Daemons();
  const std::string json = DaemonsJson(cluster.layout().dir, daemons);
  switch (output) {
    case Output::kJson:
      *cli.env->out << json;
      break;
    case Output::kYaml:
      *cli.env->out << JsonToYaml(json);
      break;
    case Output::kName:
      for (const DaemonStatus& daemon : daemons) {
        *cli.env->out << daemon.name << "\n";
      }
      break;
    default:
      *cli.env->out << FormatDaemons(daemons, cli.OutStyle());
  }
  return OkStatus();
}

}  // namespace lockstep::cli
