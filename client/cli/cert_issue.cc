#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/pki_dir.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

struct IssueFlags {
  std::string dir;
  std::string kind;
  std::string name;
  std::string role = "submitter";
  bool has_role = false;
  bool force = false;
  std::string output;
};

StatusOr<int> RunIssue(const Cli& cli, const IssueFlags& options) {
  CliEnvironment* const env = cli.env;
  if (options.has_role && options.kind != "user") {
    return InvalidArgument("--role is for users; a {} has none", options.kind);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string dir, PkiDir(options.dir, *env));
  const std::string output =
      options.output.empty()
          ? fmt::format("{}/{}-{}", dir, options.kind, options.name)
          : JoinPath(env->working_directory, options.output);
  if (!options.force && RealFileSystem()->Exists(output + "/tls.key")) {
    return AlreadyExists(
        "{} already has a key; --force replaces it and its "
        "certificate",
        output);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const WallTime end,
      IssueCertificate(dir, options.kind, options.name, options.role, output,
                       env->clock->Now().wall));
  *env->err << fmt::format(
      "wrote ca.crt, tls.crt and tls.key for {} {}{}, valid until {}; copy the "
      "folder to its host, and keep the key secret\n",
      options.kind, options.name,
      options.kind == "user" ? " as " + options.role : "",
      FormatWallTime(end).substr(0, 10));
  *env->out << output << "\n";
  return 0;
}

}  // namespace

Command CertIssueCommand(Cli* cli) {
  const auto options = std::make_shared<IssueFlags>();
  Command command = LeafCommand(
      "issue", "Issue a certificate for a daemon or a user",
      "  lockstep cert issue worker host-a\n"
      "  lockstep cert issue user ann --role viewer --to /tmp/ann\n"
      "\nViewers read; submitters also submit, and change their own jobs;"
      "\nadmins change all. A worker's NAME is that of its node (--node).");
  command.Add("kind", &options->kind, "worker, user or coordinator",
              OneOf({"worker", "user", "coordinator"}), Required);
  command.Add("name", &options->name, "Name of the node or user", Required);
  command.Add("--role", &options->role, "For users: viewer, submitter or admin",
              OneOf({"viewer", "submitter", "admin"}), ShowDefault,
              SetsGiven(&options->has_role));
  AddPkiDirOption(&command, &options->dir);
  command.Add("--to DIR", &options->output,
              "Folder for the files (default: beside the CA)");
  command.Add("--force", &options->force,
              "Replace an existing key and certificate");
  command.run = [=] { return RunIssue(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
