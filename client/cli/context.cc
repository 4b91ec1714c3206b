// `lockstep context`: the named clusters of the configuration file.
#include <fmt/format.h>

#include <cctype>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/listing.h"
#include "common/base/file.h"
#include "common/base/host_port.h"
#include "common/model/names.h"
#include "common/pki/credentials.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

struct Known {
  ContextEntry entry;
  // The file that defines it.
  std::string file;
};

// The contexts of the user's file and of the site's. For the same name the
// user's wins, as for a connection.
struct Contexts {
  // The default context; empty if none is chosen.
  std::string current;
  std::map<std::string, Known> by_name;
};

StatusOr<Contexts> ReadContexts(const CliEnvironment& env) {
  Contexts contexts;
  contexts.current = env.Variable("LOCKSTEP_CONTEXT");
  for (const std::string& path : {UserConfigPath(env), env.system_config}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Config config, LoadConfig(path));
    if (contexts.current.empty()) contexts.current = config.current;
    for (const auto& [name, entry] : config.contexts) {
      contexts.by_name.try_emplace(name, Known{entry, path});
    }
  }
  return contexts;
}

Status NoContext(const Contexts& contexts, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, context] : contexts.by_name) names.push_back(known);
  const std::string near = Nearest(name, names);
  return NotFound("there is no context {}{}; `lockstep context list` shows all",
                  Printable(name),
                  near.empty() ? "" : "; did you mean " + near + "?");
}

ordered_json ContextJson(const std::string& name, const Known& known,
                         bool current) {
  return {{"name", name},
          {"current", current},
          {"address", known.entry.address},
          {"ca", known.entry.ca},
          {"cert", known.entry.cert},
          {"key", known.entry.key},
          {"insecureLoopback", known.entry.insecure_loopback},
          {"file", known.file}};
}

// Warns of variables that override the file.
void WarnOfVariables(CliEnvironment* env) {
  for (const char* name : {"LOCKSTEP_CONTEXT", "LOCKSTEP_ADDRESS"}) {
    if (env->Variable(name).empty()) continue;
    *env->err << fmt::format(
        "lockstep: {} is set in the environment and overrides the current "
        "context\n",
        name);
  }
}

// ---- list -------------------------------------------------------------------

Table ContextTable(const Contexts& contexts, bool wide) {
  Table table{{"NAME", "CURRENT", "ADDRESS", "CERT", "FILE"}, {}};
  if (wide) {
    table.header.push_back("CA");
    table.header.push_back("KEY");
  }
  const auto text = [](const std::string& value) {
    return value.empty() ? "-" : Printable(value);
  };
  for (const auto& [name, known] : contexts.by_name) {
    const ContextEntry& entry = known.entry;
    std::vector<std::string> row = {
        Printable(name), name == contexts.current ? "yes" : "-",
        text(entry.address),
        entry.insecure_loopback ? "no TLS" : text(entry.cert),
        Printable(known.file)};
    if (wide) {
      row.push_back(text(entry.ca));
      row.push_back(text(entry.key));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

StatusOr<int> ListContexts(const Cli& cli) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*cli.env));
  Listing listing;
  ordered_json all = ordered_json::array();
  for (const auto& [name, known] : contexts.by_name) {
    all.push_back(ContextJson(name, known, name == contexts.current));
    listing.names.push_back(name);
  }
  listing.json = Dump(all);
  listing.table = [&contexts](bool wide, const Style&) {
    return ContextTable(contexts, wide);
  };
  LOCKSTEP_RETURN_IF_ERROR(WriteListing(cli, listing));
  if (contexts.by_name.empty()) {
    *cli.env->err << fmt::format(
        "there is no context in {}: `lockstep local up` and `lockstep context "
        "set` write one\n",
        UserConfigPath(*cli.env));
  }
  return 0;
}

// ---- show -------------------------------------------------------------------

// Returns the identity that the coordinator will see, and its expiry; or why
// the files are unusable.
std::string WhoText(const ContextEntry& entry, WallTime now) {
  if (entry.insecure_loopback) return "any user of this machine: no TLS";
  const auto credentials = pki::LoadCredentials(
      RealFileSystem(), {entry.ca, entry.cert, entry.key}, now);
  if (!credentials.ok()) return Message(credentials.status());
  return fmt::format("{}, until {}", Describe(credentials->identity),
                     FormatWallTime(credentials->not_after).substr(0, 10));
}

StatusOr<int> ShowContext(const Cli& cli, const std::string& wanted) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  LOCKSTEP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*env));
  const std::string name = wanted.empty() ? contexts.current : wanted;
  if (name.empty()) {
    return NotFound(
        "no context is chosen: name one, or choose it with `lockstep context "
        "use`");
  }
  const auto found = contexts.by_name.find(name);
  if (found == contexts.by_name.end()) return NoContext(contexts, name);
  const ContextEntry& entry = found->second.entry;
  const bool current = name == contexts.current;
  const std::string json = Dump(ContextJson(name, found->second, current));
  if (output == Output::kJson) {
    *env->out << json;
  } else if (output == Output::kYaml) {
    *env->out << JsonToYaml(json);
  } else if (output == Output::kName) {
    *env->out << name << "\n";
  } else {
    const auto row = [&](const char* label, const std::string& value) {
      if (value.empty()) return;
      *env->out << fmt::format("{:<10} {}\n", label, Printable(value));
    };
    row("context", name + (current ? " (current)" : ""));
    row("address", entry.address);
    row("ca", entry.ca);
    row("cert", entry.cert);
    row("key", entry.key);
    row("you are", WhoText(entry, env->clock->Now().wall));
    row("file", found->second.file);
  }
  return 0;
}

// ---- use --------------------------------------------------------------------

StatusOr<int> UseContext(const Cli& cli, const std::string& name) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*env));
  if (!contexts.by_name.contains(name)) return NoContext(contexts, name);
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, LoadConfig(UserConfigPath(*env)));
  config.current = name;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path,
                            SaveUserConfig(*env, config));
  *env->err << fmt::format("context {} is the current one in {}\n", name, path);
  WarnOfVariables(env);
  return 0;
}

// ---- set --------------------------------------------------------------------

struct SetContextFlags {
  std::string name;
  ContextEntry given;
  // A folder with ca.crt, tls.crt and tls.key.
  std::string credentials;
  bool use = false;
};

Status CheckContextName(const std::string& name) {
  bool good = !name.empty() && name.size() <= 63 && name[0] != '-';
  for (const char c : name) {
    good = good && (std::isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                    c == '_' || c == '.');
  }
  if (good) return OkStatus();
  return InvalidArgument(
      "\"{}\" cannot be the name of a context: use at most 63 letters, digits, "
      "\"-\", \"_\" or \".\", not \"-\" first",
      Printable(name));
}

// Given values replace existing ones; paths become absolute.
void MergeInto(const SetContextFlags& options, const std::string& directory,
               ContextEntry* entry) {
  const ContextEntry& given = options.given;
  if (!given.address.empty()) entry->address = given.address;
  const auto take = [&](const std::string& path, std::string* field) {
    if (path.empty()) return;
    *field = JoinPath(directory, path);
    entry->insecure_loopback = false;
  };
  if (!options.credentials.empty()) {
    const pki::CredentialPaths paths =
        pki::CredentialPathsIn(options.credentials);
    take(paths.ca, &entry->ca);
    take(paths.certificate, &entry->cert);
    take(paths.key, &entry->key);
  }
  take(given.ca, &entry->ca);
  take(given.cert, &entry->cert);
  take(given.key, &entry->key);
  if (given.insecure_loopback) entry->insecure_loopback = true;
}

// Checks that the entry suffices for a connection.
Status CheckEntry(const std::string& name, const ContextEntry& entry) {
  if (entry.address.empty()) {
    return InvalidArgument("context {} needs --address HOST:PORT", name);
  }
  const auto address = ParseHostPort(entry.address);
  if (!address.ok()) return Annotate(address.status(), "--address");
  if (entry.insecure_loopback) {
    if (IsLoopback(address->host)) return OkStatus();
    return InvalidArgument(
        "--insecure-loopback is for this machine only, but {} is another",
        entry.address);
  }
  for (const std::string& path : {entry.ca, entry.cert, entry.key}) {
    if (path.empty()) {
      return InvalidArgument(
          "context {} needs --ca, --cert and --key, or --credentials DIR with "
          "ca.crt, tls.crt and tls.key",
          name);
    }
    if (!RealFileSystem()->Exists(path)) {
      return NotFound("there is no file {}", path);
    }
  }
  return OkStatus();
}

StatusOr<int> SetContext(const Cli& cli, const SetContextFlags& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_RETURN_IF_ERROR(CheckContextName(options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*env));
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, LoadConfig(UserConfigPath(*env)));
  ContextEntry& entry = config.contexts[options.name];
  MergeInto(options, env->working_directory, &entry);
  LOCKSTEP_RETURN_IF_ERROR(CheckEntry(options.name, entry));
  // The first context becomes the current one.
  if (options.use || contexts.current.empty()) config.current = options.name;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path,
                            SaveUserConfig(*env, config));
  *env->err << fmt::format("context {} written to {}", options.name, path);
  if (config.current == options.name) {
    *env->err << "; it is the current one\n";
    WarnOfVariables(env);
  } else {
    *env->err << fmt::format("; `lockstep context use {}` makes it current\n",
                             options.name);
  }
  return 0;
}

// ---- delete -----------------------------------------------------------------

StatusOr<int> DeleteContext(const Cli& cli, const std::string& name) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, LoadConfig(UserConfigPath(*env)));
  if (config.contexts.erase(name) == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*env));
    const auto found = contexts.by_name.find(name);
    if (found == contexts.by_name.end()) return NoContext(contexts, name);
    return FailedPrecondition("context {} belongs to the site's file {}", name,
                              found->second.file);
  }
  const bool was_current = config.current == name;
  if (was_current) config.current.clear();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path,
                            SaveUserConfig(*env, config));
  *env->err << fmt::format(
      "removed context {} from {}{}; its certificate and key stay\n", name,
      path, was_current ? ", which has no current context now" : "");
  return 0;
}

}  // namespace

Command ContextListCommand(Cli* cli) {
  Command command =
      LeafCommand("list", "List the contexts of the configuration files",
                  "  lockstep context list\n"
                  "  lockstep context list -o wide\n\n"
                  "Contexts of the user's file come first, then those of\n"
                  "the site's, which is /etc/lockstep/config.yaml.");
  AddOutputOption(&command, cli);
  command.run = [=] { return ListContexts(*cli); };
  return command;
}

Command ContextShowCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  Command command = LeafCommand("show", "Show a context and its identity",
                                "  lockstep context show\n"
                                "  lockstep context show lab -o json");
  command.Add("name", name.get(), "The context (default: the current one)");
  AddOutputOption(&command, cli);
  command.run = [=] { return ShowContext(*cli, *name); };
  return command;
}

Command ContextUseCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  Command command =
      LeafCommand("use", "Make a context the current one",
                  "  lockstep context use lab\n\n"
                  "Commands connect to it unless --context, --address or a\n"
                  "LOCKSTEP_* variable overrides it.");
  command.Add("name", name.get(), "The context", Required);
  command.run = [=] { return UseContext(*cli, *name); };
  return command;
}

Command ContextSetCommand(Cli* cli) {
  const auto options = std::make_shared<SetContextFlags>();
  Command command = LeafCommand(
      "set", "Add a context, or change the given fields",
      "  lockstep context set lab --address head.example.com:7443 \\\n"
      "    --credentials ~/.config/lockstep/pki/user-ann --use\n"
      "  lockstep context set lab --address 10.0.0.1:7443\n\n"
      "The first context becomes the current one. Paths are stored as\n"
      "absolute paths; the files are not copied.");
  ContextEntry* const given = &options->given;
  command.Add("name", &options->name, "The context", Required);
  command.Add("--address", &given->address, "HOST:PORT of the coordinator");
  command.Add("--credentials DIR", &options->credentials,
              "Folder with ca.crt, tls.crt and tls.key, as `lockstep cert "
              "issue` writes it");
  command.Add("--ca", &given->ca, "PEM file of the cluster's CA");
  command.Add("--cert", &given->cert, "PEM file of your certificate");
  command.Add("--key", &given->key, "PEM file of its key");
  command.Add("--insecure-loopback", &given->insecure_loopback,
              "No TLS; on this machine only");
  command.Add("--use", &options->use, "Also make it the current one");
  command.run = [=] { return SetContext(*cli, *options); };
  return command;
}

Command ContextDeleteCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  Command command =
      LeafCommand("delete", "Remove a context from the user's file",
                  "  lockstep context delete lab\n"
                  "\nThe cluster and the certificate's files stay.");
  command.Add("name", name.get(), "The context's full name", Required);
  command.run = [=] { return DeleteContext(*cli, *name); };
  return command;
}

}  // namespace lockstep::cli
