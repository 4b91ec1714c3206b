#include "client/cli/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <vector>

#include "common/base/file.h"
#include "common/model/names.h"

namespace lockstep::cli {
namespace {

Status At(const std::string& source, const YAML::Mark& mark,
          const std::string& text) {
  return InvalidArgument("{}:{}:{}: {}", source, mark.line + 1, mark.column + 1,
                         text);
}

StatusOr<ContextEntry> ReadContext(const YAML::Node& node,
                                   const std::string& source) {
  ContextEntry entry;
  const std::map<std::string, std::string*> texts = {
      {"address", &entry.address},
      {"ca", &entry.ca},
      {"cert", &entry.cert},
      {"key", &entry.key},
      {"local-dir", &entry.local_dir}};
  if (!node.IsMap()) return At(source, node.Mark(), "a context has fields");
  for (const auto& field : node) {
    const std::string name = field.first.as<std::string>();
    const auto text = texts.find(name);
    if (text != texts.end()) {
      *text->second = field.second.as<std::string>();
    } else if (name == "insecure-loopback") {
      entry.insecure_loopback = field.second.as<bool>();
    } else {
      const std::string near = Nearest(
          name,
          {"address", "ca", "cert", "key", "insecure-loopback", "local-dir"});
      return At(source, field.first.Mark(),
                "a context has no field " + name +
                    (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }
  return entry;
}

StatusOr<Config> ReadConfig(const YAML::Node& root, const std::string& source) {
  Config config;
  if (root.IsNull()) return config;
  if (!root.IsMap()) return At(source, root.Mark(), "the file has fields");
  for (const auto& field : root) {
    const std::string name = field.first.as<std::string>();
    if (name == "current-context") {
      config.current = field.second.as<std::string>();
    } else if (name == "contexts") {
      for (const auto& context : field.second) {
        LOCKSTEP_ASSIGN_OR_RETURN(
            config.contexts[context.first.as<std::string>()],
            ReadContext(context.second, source));
      }
    } else {
      return At(source, field.first.Mark(),
                "there is no field " + name +
                    "; there are current-context and contexts");
    }
  }
  return config;
}

void Fill(const std::string& value, std::string* field) {
  if (field->empty()) *field = value;
}

// "there are a and b".
std::string Choices(const std::vector<std::string>& names) {
  if (names.empty()) return "there is none";
  std::string text = names.size() == 1 ? "there is " : "there are ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

bool IsTrue(const std::string& text) {
  return text == "1" || text == "true" || text == "yes";
}

}  // namespace

StatusOr<Config> ParseConfig(const std::string& text,
                             const std::string& source) {
  try {
    return ReadConfig(YAML::Load(text), source);
  } catch (const YAML::Exception& e) {
    return At(source, e.mark, e.msg);
  }
}

std::string FormatConfig(const Config& config) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  if (!config.current.empty()) {
    out << YAML::Key << "current-context" << YAML::Value << config.current;
  }
  out << YAML::Key << "contexts" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, entry] : config.contexts) {
    out << YAML::Key << name << YAML::Value << YAML::BeginMap;
    const auto write = [&](const char* field, const std::string& value) {
      if (!value.empty()) out << YAML::Key << field << YAML::Value << value;
    };
    write("address", entry.address);
    write("ca", entry.ca);
    write("cert", entry.cert);
    write("key", entry.key);
    if (entry.insecure_loopback) {
      out << YAML::Key << "insecure-loopback" << YAML::Value << true;
    }
    write("local-dir", entry.local_dir);
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string UserConfigPath(const CliEnvironment& env) {
  if (const std::string path = env.Variable("LOCKSTEP_CONFIG"); !path.empty()) {
    return path;
  }
  const std::string xdg = env.Variable("XDG_CONFIG_HOME");
  if (!xdg.empty() && xdg[0] == '/') return xdg + "/lockstep/config.yaml";
  const std::string home = env.Variable("HOME");
  return home.empty() ? "" : home + "/.config/lockstep/config.yaml";
}

StatusOr<Config> LoadConfig(const std::string& path) {
  if (path.empty()) return Config{};
  const auto text = RealFileSystem()->Read(path, 1 << 20);
  if (text.status().code() == StatusCode::kNotFound) return Config{};
  if (!text.ok()) return text.status();
  return ParseConfig(*text, path);
}

StatusOr<std::string> SaveUserConfig(const CliEnvironment& env,
                                     const Config& config) {
  const std::string path = UserConfigPath(env);
  if (path.empty()) {
    return FailedPrecondition(
        "neither XDG_CONFIG_HOME nor HOME is set: there is no directory for a "
        "context");
  }
  // A bare name, which LOCKSTEP_CONFIG may hold, has no directory.
  if (const size_t slash = path.rfind('/'); slash != std::string::npos) {
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->MakeDirs(path.substr(0, slash + 1), 0700));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      RealFileSystem()->WriteAtomic(path, FormatConfig(config), 0600));
  return path;
}

StatusOr<ClientOptions> ResolveConnection(const ConnectionFlags& flags,
                                          const CliEnvironment& env) {
  ConnectionFlags wanted = flags;
  Fill(env.Variable("LOCKSTEP_CONTEXT"), &wanted.context);
  Fill(env.Variable("LOCKSTEP_ADDRESS"), &wanted.address);
  Fill(env.Variable("LOCKSTEP_CA"), &wanted.ca);
  Fill(env.Variable("LOCKSTEP_CERT"), &wanted.cert);
  Fill(env.Variable("LOCKSTEP_KEY"), &wanted.key);
  wanted.insecure_loopback |=
      IsTrue(env.Variable("LOCKSTEP_INSECURE_LOOPBACK"));
  ContextEntry entry;
  std::vector<std::string> known;
  bool found = false;
  for (const std::string& path : {UserConfigPath(env), env.system_config}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Config config, LoadConfig(path));
    Fill(config.current, &wanted.context);
    for (const auto& [name, context] : config.contexts) {
      known.push_back(name);
      if (found || name != wanted.context) continue;
      entry = context;
      found = true;
    }
  }
  if (!wanted.context.empty() && !found && wanted.address.empty()) {
    const std::string near = Nearest(wanted.context, known);
    return NotFound("there is no context {} in {}; {}{}", wanted.context,
                    UserConfigPath(env), Choices(known),
                    near.empty() ? "" : "; did you mean " + near + "?");
  }
  Fill(entry.address, &wanted.address);
  Fill(entry.ca, &wanted.ca);
  Fill(entry.cert, &wanted.cert);
  Fill(entry.key, &wanted.key);
  if (wanted.address.empty() && wanted.context.empty() && !known.empty()) {
    return FailedPrecondition(
        "no context is chosen: {} has no current-context; {}: give --context "
        "NAME",
        UserConfigPath(env), Choices(known));
  }
  if (wanted.address.empty()) {
    return FailedPrecondition(
        "no cluster is known: `lockstep local up` starts one on this machine; "
        "for another give --address, --ca, --cert and --key, or write a "
        "context "
        "into {} with `lockstep context set`",
        UserConfigPath(env));
  }
  ClientOptions options;
  options.address = wanted.address;
  options.insecure_loopback =
      wanted.insecure_loopback || entry.insecure_loopback;
  if (!options.insecure_loopback) {
    for (const auto& [value, flag] :
         {std::pair{wanted.ca, "--ca"}, std::pair{wanted.cert, "--cert"},
          std::pair{wanted.key, "--key"}}) {
      if (value.empty()) {
        return FailedPrecondition(
            "the connection to {} needs {} FILE (or LOCKSTEP_{} or a context)",
            wanted.address, flag,
            flag == std::string("--ca")     ? "CA"
            : flag == std::string("--cert") ? "CERT"
                                            : "KEY");
      }
    }
    options.ca = wanted.ca;
    options.certificate = wanted.cert;
    options.key = wanted.key;
  }
  return options;
}

StatusOr<std::string> LocalDirOfContext(const std::string& name,
                                        const CliEnvironment& env) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
                            LoadConfig(UserConfigPath(env)));
  std::string wanted = name;
  if (wanted.empty()) wanted = env.Variable("LOCKSTEP_CONTEXT");
  Fill(config.current, &wanted);
  const auto context = config.contexts.find(wanted);
  return context == config.contexts.end() ? "" : context->second.local_dir;
}

StatusOr<std::string> SaveContext(const CliEnvironment& env,
                                  const std::string& name,
                                  const ContextEntry& entry) {
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, LoadConfig(UserConfigPath(env)));
  config.current = name;
  config.contexts[name] = entry;
  return SaveUserConfig(env, config);
}

Status RemoveContexts(const CliEnvironment& env, const std::string& address) {
  LOCKSTEP_ASSIGN_OR_RETURN(Config config, LoadConfig(UserConfigPath(env)));
  const size_t removed = std::erase_if(config.contexts, [&](const auto& item) {
    return item.second.address == address;
  });
  if (removed == 0) return OkStatus();
  if (!config.contexts.count(config.current)) config.current.clear();
  return SaveUserConfig(env, config).status();
}

}  // namespace lockstep::cli
