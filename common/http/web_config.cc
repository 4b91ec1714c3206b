#include "common/http/web_config.h"

#include <yaml-cpp/yaml.h>

#include "common/base/file.h"

namespace lockstep::http {
namespace {

struct Reader {
  const std::string& directory;
  const std::string& name;

  std::string At(const YAML::Node& node) const {
    return fmt::format("{}:{}", name, node.Mark().line + 1);
  }

  StatusOr<std::string> Text(const std::string& field,
                             const YAML::Node& node) const {
    if (!node.IsScalar() || node.Scalar().empty()) {
      return InvalidArgument("{}: {} must be a text", At(node), field);
    }
    return node.Scalar();
  }

  StatusOr<std::string> Path(const std::string& field,
                             const YAML::Node& node) const {
    StatusOr<std::string> path = Text(field, node);
    if (!path.ok() || path->starts_with('/')) return path;
    return JoinPath(directory, *path);
  }

  StatusOr<ClientAuth> Auth(const std::string& field,
                            const YAML::Node& node) const {
    static const std::map<std::string, ClientAuth> kTypes = {
        {"NoClientCert", ClientAuth::kNone},
        {"RequestClientCert", ClientAuth::kRequest},
        {"RequireAnyClientCert", ClientAuth::kRequireAny},
        {"VerifyClientCertIfGiven", ClientAuth::kVerifyIfGiven},
        {"RequireAndVerifyClientCert", ClientAuth::kRequireAndVerify}};
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string type, Text(field, node));
    const auto known = kTypes.find(type);
    if (known != kTypes.end()) return known->second;
    return InvalidArgument(
        "{}: there is no {} {}; known: NoClientCert, RequestClientCert, "
        "RequireAnyClientCert, VerifyClientCertIfGiven, "
        "RequireAndVerifyClientCert",
        At(node), field, type);
  }

  Status TlsField(const std::string& field, const YAML::Node& node,
                  WebTls* tls) const {
    if (field == "cert_file") {
      LOCKSTEP_ASSIGN_OR_RETURN(tls->certificate, Path(field, node));
    } else if (field == "key_file") {
      LOCKSTEP_ASSIGN_OR_RETURN(tls->key, Path(field, node));
    } else if (field == "client_ca_file") {
      LOCKSTEP_ASSIGN_OR_RETURN(tls->client_ca, Path(field, node));
    } else if (field == "client_auth_type") {
      LOCKSTEP_ASSIGN_OR_RETURN(tls->client_auth, Auth(field, node));
    } else if (field == "min_version") {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string version, Text(field, node));
      if (version != "TLS12" && version != "TLS13") {
        return InvalidArgument("{}: min_version must be TLS12 or TLS13, not {}",
                               At(node), version);
      }
      tls->only_tls13 = version == "TLS13";
    } else {
      return InvalidArgument(
          "{}: tls_server_config has no field {} here; known: cert_file, "
          "key_file, client_ca_file, client_auth_type, min_version",
          At(node), field);
    }
    return OkStatus();
  }

  StatusOr<WebTls> Tls(const YAML::Node& root) const {
    if (!root.IsMap()) {
      return InvalidArgument("{}: tls_server_config must be a map", At(root));
    }
    WebTls tls;
    for (const auto& entry : root) {
      LOCKSTEP_RETURN_IF_ERROR(
          TlsField(entry.first.as<std::string>(""), entry.second, &tls));
    }
    if (tls.certificate.empty() || tls.key.empty()) {
      return InvalidArgument(
          "{}: tls_server_config needs both cert_file and key_file", At(root));
    }
    const bool verifies = Verifies(tls.client_auth);
    if (verifies && tls.client_ca.empty()) {
      return InvalidArgument("{}: this client_auth_type needs a client_ca_file",
                             At(root));
    }
    if (!verifies && !tls.client_ca.empty()) {
      return InvalidArgument(
          "{}: client_ca_file has no effect without client_auth_type "
          "VerifyClientCertIfGiven or RequireAndVerifyClientCert",
          At(root));
    }
    return tls;
  }

  Status Users(const YAML::Node& root, WebConfig* config) const {
    if (!root.IsMap()) {
      return InvalidArgument("{}: basic_auth_users must be a map", At(root));
    }
    for (const auto& entry : root) {
      const auto user = entry.first.as<std::string>("");
      const auto hash = entry.second.as<std::string>("");
      if (user.empty() || user.find(':') != std::string::npos) {
        return InvalidArgument(
            "{}: basic_auth_users: a user's name must not be empty or have a "
            "colon",
            At(entry.first));
      }
      // The error does not repeat the hash, because it may be a password.
      const bool bcrypt = hash.size() == 60 && (hash.starts_with("$2a$") ||
                                                hash.starts_with("$2b$") ||
                                                hash.starts_with("$2y$"));
      if (!bcrypt) {
        return InvalidArgument(
            "{}: basic_auth_users: the value for {} is not a bcrypt hash; "
            "`htpasswd -nB {}` prints one",
            At(entry.second), user, user);
      }
      config->users[user] = hash;
    }
    return OkStatus();
  }

  Status Root(const YAML::Node& root, WebConfig* config) const {
    if (root.IsNull()) return OkStatus();
    if (!root.IsMap()) return InvalidArgument("{}: it is not a map", name);
    for (const auto& entry : root) {
      const auto field = entry.first.as<std::string>("");
      if (field == "tls_server_config") {
        LOCKSTEP_ASSIGN_OR_RETURN(config->tls, Tls(entry.second));
      } else if (field == "basic_auth_users") {
        LOCKSTEP_RETURN_IF_ERROR(Users(entry.second, config));
      } else {
        return InvalidArgument(
            "{}: there is no field {} here; known: tls_server_config, "
            "basic_auth_users",
            At(entry.first), field);
      }
    }
    return OkStatus();
  }
};

}  // namespace

StatusOr<WebConfig> ParseWebConfig(const std::string& text,
                                   const std::string& directory,
                                   const std::string& name) {
  WebConfig config;
  try {
    const Reader reader{directory, name};
    LOCKSTEP_RETURN_IF_ERROR(reader.Root(YAML::Load(text), &config));
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}: {}", name, e.what());
  }
  return config;
}

StatusOr<WebConfig> LoadWebConfig(const std::string& path) {
  if (path.empty()) return WebConfig();
  const auto text = RealFileSystem()->Read(path);
  if (!text.ok()) {
    return NotFound("the web configuration {} cannot be read: {}", path,
                    Message(text.status()));
  }
  const size_t slash = path.rfind('/');
  return ParseWebConfig(
      *text, slash == std::string::npos ? "." : path.substr(0, slash + 1),
      path);
}

}  // namespace lockstep::http
