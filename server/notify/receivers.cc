#include "server/notify/receivers.h"

#include <absl/strings/escaping.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace lockstep::server {
namespace {

constexpr uint64_t kMaxReceiversFile = 1 << 20;
constexpr uint64_t kMaxSecretFile = 4096;

// The reader of one map of the file: each field is known, or an error.
class ReceiverFields {
 public:
  using Take = std::function<Status(const YAML::Node& node)>;

  ReceiverFields(FileSystem* files, const std::string& path)
      : files_(files), path_(path) {}

  template <typename... Args>
  Status Error(const YAML::Node& node, fmt::format_string<Args...> format,
               Args&&... args) const {
    return InvalidArgument("{}:{}: {}", path_, node.Mark().line + 1,
                           fmt::format(format, std::forward<Args>(args)...));
  }

  Status Read(const YAML::Node& map, const std::string& what,
              const std::map<std::string, Take>& fields) const {
    if (!map.IsMap()) return Error(map, "{} must be a map", what);
    for (const auto& entry : map) {
      const auto name = entry.first.as<std::string>("");
      const auto field = fields.find(name);
      if (field == fields.end()) {
        std::string known;
        for (const auto& [other, take] : fields) {
          known += (known.empty() ? "" : ", ") + other;
        }
        return Error(entry.first, "{} has no field {}; known: {}", what, name,
                     known);
      }
      LOCKSTEP_RETURN_IF_ERROR(field->second(entry.second));
    }
    return OkStatus();
  }

  Take Text(std::string* to) const {
    return [this, to](const YAML::Node& node) -> Status {
      if (!node.IsScalar() || node.Scalar().empty()) {
        return Error(node, "a text is missing");
      }
      *to = node.Scalar();
      return OkStatus();
    };
  }
  Take Template(std::string* to) const {
    return [this, to](const YAML::Node& node) -> Status {
      LOCKSTEP_RETURN_IF_ERROR(Text(to)(node));
      if (const Status status = CheckTemplate(*to); !status.ok()) {
        return Error(node, "{}", Message(status));
      }
      return OkStatus();
    };
  }
  Take List(const std::function<Status(const YAML::Node&)>& each) const {
    return [this, each](const YAML::Node& node) -> Status {
      if (!node.IsSequence() || node.size() == 0) {
        return Error(node, "a list such as [a, b] is missing");
      }
      for (const YAML::Node& item : node) LOCKSTEP_RETURN_IF_ERROR(each(item));
      return OkStatus();
    };
  }
  // The contents of the file that the field names, without spaces around them.
  Take Secret(std::string* to) const {
    return [this, to](const YAML::Node& node) -> Status {
      std::string path;
      LOCKSTEP_RETURN_IF_ERROR(Text(&path)(node));
      auto text = files_->Read(path, kMaxSecretFile);
      if (!text.ok()) return Error(node, "{}", Message(text.status()));
      const size_t begin = text->find_first_not_of(" \t\r\n");
      if (begin == std::string::npos) return Error(node, "{} is empty", path);
      *to = text->substr(begin, text->find_last_not_of(" \t\r\n") - begin + 1);
      return OkStatus();
    };
  }

 private:
  FileSystem* const files_;
  const std::string& path_;
};

bool HasScheme(const std::string& url,
               const std::vector<std::string>& schemes) {
  return std::any_of(schemes.begin(), schemes.end(),
                     [&](const std::string& scheme) {
                       return url.starts_with(scheme + "://") &&
                              url.size() > scheme.size() + 3;
                     });
}

bool IsReceiverName(const std::string& name) {
  return !name.empty() && name.size() <= 63 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

Status ReadWebhook(const ReceiverFields& fields, const YAML::Node& node,
                   Receiver* receiver) {
  WebhookReceiver way;
  LOCKSTEP_RETURN_IF_ERROR(
      fields.Read(node, "webhook",
                  {{"url", fields.Text(&way.url)},
                   {"url_file", fields.Secret(&way.url)},
                   {"secret_file", fields.Secret(&way.secret)}}));
  if (!HasScheme(way.url, {"http", "https"})) {
    return fields.Error(node, "webhook needs a url, http://... or https://...");
  }
  // As the standard's tools write a secret.
  constexpr std::string_view kPrefix = "whsec_";
  if (way.secret.starts_with(kPrefix)) {
    std::string key;
    if (!absl::Base64Unescape(way.secret.substr(kPrefix.size()), &key) ||
        key.empty()) {
      return fields.Error(node,
                          "what follows whsec_ in the secret's file is "
                          "not base64");
    }
    way.secret = std::move(key);
  }
  receiver->way = std::move(way);
  return OkStatus();
}

Status ReadSlack(const ReceiverFields& fields, const YAML::Node& node,
                 Receiver* receiver) {
  SlackReceiver way;
  LOCKSTEP_RETURN_IF_ERROR(fields.Read(
      node, "slack",
      {{"url", fields.Text(&way.url)}, {"url_file", fields.Secret(&way.url)}}));
  if (!HasScheme(way.url, {"http", "https"})) {
    return fields.Error(node, "slack needs a url, http://... or https://...");
  }
  receiver->way = std::move(way);
  return OkStatus();
}

Status ReadMail(const ReceiverFields& fields, const YAML::Node& node,
                Receiver* receiver) {
  MailReceiver way;
  const auto take_to = [&](const YAML::Node& item) {
    return fields.Template(&way.to.emplace_back())(item);
  };
  const auto take_tls = [&](const YAML::Node& item) -> Status {
    const auto tls = item.as<std::string>("");
    if (tls == "required") {
      way.tls = MailReceiver::Tls::kRequired;
    } else if (tls == "never") {
      way.tls = MailReceiver::Tls::kNever;
    } else if (tls != "if offered") {
      return fields.Error(item, "tls is required, \"if offered\" or never");
    }
    return OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(
      fields.Read(node, "mail",
                  {{"server", fields.Text(&way.server)},
                   {"from", fields.Text(&way.from)},
                   {"to", fields.List(take_to)},
                   {"user", fields.Text(&way.user)},
                   {"password_file", fields.Secret(&way.password)},
                   {"tls", take_tls}}));
  if (!HasScheme(way.server, {"smtp", "smtps"})) {
    return fields.Error(node,
                        "mail needs a server, smtp://HOST:PORT or "
                        "smtps://HOST:PORT");
  }
  if (way.from.empty() || way.to.empty()) {
    return fields.Error(node, "mail needs from and to");
  }
  receiver->way = std::move(way);
  return OkStatus();
}

Status ReadCommand(const ReceiverFields& fields, const YAML::Node& node,
                   Receiver* receiver) {
  CommandReceiver way;
  LOCKSTEP_RETURN_IF_ERROR(fields.List([&](const YAML::Node& item) {
    return fields.Template(&way.argv.emplace_back())(item);
  })(node));
  if (!way.argv[0].starts_with("/") ||
      way.argv[0].find('{') != std::string::npos) {
    return fields.Error(node, "command begins with the path of a program");
  }
  receiver->way = std::move(way);
  return OkStatus();
}

StatusOr<Receiver> ReadReceiver(const ReceiverFields& fields,
                                const YAML::Node& node) {
  Receiver receiver;
  int ways = 0;
  const auto way = [&](auto read) {
    return [&, read](const YAML::Node& item) {
      ++ways;
      return read(fields, item, &receiver);
    };
  };
  const auto take_kind = [&](const YAML::Node& item) -> Status {
    const auto kind = NotificationKindOf(item.as<std::string>(""));
    if (!kind) {
      return fields.Error(item, "there is no kind {}; known: {}",
                          item.as<std::string>(""), NotificationKindNames());
    }
    receiver.kinds.insert(*kind);
    return OkStatus();
  };
  const auto insert_to = [&](std::set<std::string>* set) {
    return fields.List([&, set](const YAML::Node& item) -> Status {
      std::string text;
      LOCKSTEP_RETURN_IF_ERROR(fields.Text(&text)(item));
      set->insert(std::move(text));
      return OkStatus();
    });
  };
  const auto take_labels = [&](const YAML::Node& item) -> Status {
    if (!item.IsMap()) return fields.Error(item, "labels must be a map");
    for (const auto& label : item) {
      receiver.labels[label.first.as<std::string>("")] =
          label.second.as<std::string>("");
    }
    return OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(
      fields.Read(node, "a receiver",
                  {{"name", fields.Text(&receiver.name)},
                   {"kinds", fields.List(take_kind)},
                   {"owners", insert_to(&receiver.owners)},
                   {"labels", take_labels},
                   {"reasons", insert_to(&receiver.reasons)},
                   {"text", fields.Template(&receiver.text)},
                   {"webhook", way(ReadWebhook)},
                   {"slack", way(ReadSlack)},
                   {"mail", way(ReadMail)},
                   {"command", way(ReadCommand)}}));
  if (!IsReceiverName(receiver.name)) {
    return fields.Error(node,
                        "a receiver needs a name of letters, digits, \"-\", "
                        "\"_\" and \".\", at most 63");
  }
  if (ways != 1) {
    return fields.Error(
        node, "receiver {} needs one of webhook, slack, mail and command",
        receiver.name);
  }
  return receiver;
}

StatusOr<Receivers> ReadReceivers(const ReceiverFields& fields,
                                  const YAML::Node& root) {
  Receivers receivers;
  const auto take = [&](const YAML::Node& node) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Receiver receiver, ReadReceiver(fields, node));
    for (const Receiver& other : receivers.all) {
      if (other.name == receiver.name) {
        return fields.Error(node, "receiver {} is there twice", receiver.name);
      }
    }
    if (receivers.all.size() == kMaxReceivers) {
      return fields.Error(node, "more than {} receivers", kMaxReceivers);
    }
    receivers.all.push_back(std::move(receiver));
    return OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(fields.Read(root, "the file",
                                       {{"url", fields.Text(&receivers.url)},
                                        {"receivers", fields.List(take)}}));
  if (receivers.all.empty()) {
    return fields.Error(root, "the list receivers is missing");
  }
  if (!receivers.url.empty() && !HasScheme(receivers.url, {"http", "https"})) {
    return fields.Error(root, "url must be http://... or https://...");
  }
  while (receivers.url.ends_with("/")) receivers.url.pop_back();
  return receivers;
}

}  // namespace

bool Wants(const Receiver& receiver, const Notification& n) {
  // A test is for the one whom it is sent to.
  if (n.kind == NotificationKind::kTest) return false;
  if (!receiver.kinds.empty() && !receiver.kinds.contains(n.kind)) return false;
  if (!receiver.owners.empty() && !receiver.owners.contains(n.owner)) {
    return false;
  }
  if (!receiver.reasons.empty() && !receiver.reasons.contains(n.reason)) {
    return false;
  }
  return std::all_of(
      receiver.labels.begin(), receiver.labels.end(), [&](const auto& label) {
        const auto found = n.labels.find(label.first);
        return found != n.labels.end() && found->second == label.second;
      });
}

StatusOr<Receivers> LoadReceivers(FileSystem* files, const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                            files->Read(path, kMaxReceiversFile));
  const ReceiverFields fields(files, path);
  try {
    return ReadReceivers(fields, YAML::Load(text));
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}:{}: {}", path, e.mark.line + 1, e.msg);
  }
}

}  // namespace lockstep::server
