// `lockstep ui`: prints a login link for a browser.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "client/cli/local_common.h"
#include "common/base/file.h"
#include "common/base/login_link.h"

namespace lockstep::cli {
namespace {

struct UiFlags {
  std::string dir;
  std::string url;
  std::string token_file;
};

// Finds the address of the pages, and the token's file (empty if none is
// needed).
StatusOr<UiFlags> FindPages(const Cli& cli, UiFlags options) {
  if (options.url.empty() != options.token_file.empty()) {
    return InvalidArgument(
        "give --url and --token-file together: the address of a daemon's HTTP "
        "port, and its http_token_file");
  }
  if (options.url.empty()) {
    LocalClusterOptions local;
    LOCKSTEP_ASSIGN_OR_RETURN(local.dir, LocalDir(options.dir, "", *cli.env));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto cluster, LocalCluster::Open(local));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string address,
                              cluster->http_address(kCoordinator));
    options.url = "http://" + address;
    options.token_file = cluster->http_token_file();
    return options;
  }
  if (!options.url.starts_with("http://") &&
      !options.url.starts_with("https://")) {
    return InvalidArgument("--url {} does not begin with http:// or https://",
                           options.url);
  }
  while (options.url.ends_with('/')) options.url.pop_back();
  options.token_file = JoinPath(cli.env->working_directory, options.token_file);
  return options;
}

StatusOr<int> RunUi(const Cli& cli, UiFlags given) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const UiFlags options,
                            FindPages(cli, std::move(given)));
  std::string target = "/";
  if (!options.token_file.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::string token,
                              RealFileSystem()->Read(options.token_file, 4096));
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
    target = LoginTarget(token, SystemClock().Now().wall);
    *cli.env->err << "this link works once, within a minute:\n";
  }
  const std::string link = options.url + target;
  const std::string json =
      nlohmann::ordered_json({{"link", link}}).dump() + "\n";
  if (output == Output::kJson) {
    *cli.env->out << json;
  } else if (output == Output::kYaml) {
    *cli.env->out << JsonToYaml(json);
  } else {
    *cli.env->out << link << "\n";
  }
  return 0;
}

}  // namespace

Command UiCommand(Cli* cli) {
  const auto options = std::make_shared<UiFlags>();
  Command command = LeafCommand(
      "ui", "Print a link to the coordinator's pages for a browser",
      "  lockstep ui\n"
      "  lockstep ui --url http://localhost:7480 \\\n"
      "    --token-file /var/lib/lockstep/coordinator-http/token\n\n"
      "The default is the local cluster. The link works once, within a\n"
      "minute; the browser then has access for 12 hours.");
  AddLocalDirOption(&command, &options->dir);
  command.Add("--url URL", &options->url,
              "URL of a daemon's HTTP port for the browser");
  command.Add("--token-file FILE", &options->token_file,
              "The daemon's http_token_file, or a copy");
  AddOutputOption(&command, cli);
  command.run = [=] { return RunUi(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
