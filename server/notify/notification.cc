#include "server/notify/notification.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/base/log_line.h"

namespace lockstep::server {
namespace {

using KindName = std::pair<NotificationKind, std::string_view>;

constexpr std::array kNotificationKinds = {
    KindName{NotificationKind::kStarted, "started"},
    KindName{NotificationKind::kStalled, "stalled"},
    KindName{NotificationKind::kRestarted, "restarted"},
    KindName{NotificationKind::kFailed, "failed"},
    KindName{NotificationKind::kFinished, "finished"},
    KindName{NotificationKind::kCancelled, "cancelled"},
    KindName{NotificationKind::kIdle, "idle"},
    KindName{NotificationKind::kNodeFault, "node-fault"},
    KindName{NotificationKind::kNodeBack, "node-back"},
    KindName{NotificationKind::kGpuFault, "gpu-fault"},
    KindName{NotificationKind::kTest, "test"},
};

// ann of user/ann.
std::string UserOf(const std::string& owner) {
  return owner.substr(owner.rfind('/') + 1);
}

std::map<std::string, std::string, std::less<>> FieldsOf(
    const Notification& n) {
  return {{"title", TitleOf(n)},
          {"text", n.text},
          {"kind", std::string(Name(n.kind))},
          {"cluster", n.cluster},
          {"job", n.job},
          {"owner", n.owner},
          {"user", UserOf(n.owner)},
          {"node", n.node},
          {"reason", n.reason},
          {"cost", n.cost},
          {"url", n.url},
          {"command", n.command}};
}

// Calls `literal` and `field` for the parts of one line or text, in order.
template <typename Literal, typename Field>
void Split(std::string_view text, Literal literal, Field field) {
  while (!text.empty()) {
    const size_t open = text.find('{');
    const size_t close =
        open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    literal(text.substr(0, open));
    field(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
  literal(text);
}

}  // namespace

std::string_view Name(NotificationKind kind) {
  for (const auto& [known, name] : kNotificationKinds) {
    if (known == kind) return name;
  }
  return "unknown";
}

std::optional<NotificationKind> NotificationKindOf(std::string_view name) {
  for (const auto& [kind, known] : kNotificationKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::string NotificationKindNames() {
  std::string names;
  for (const auto& [kind, name] : kNotificationKinds) {
    if (kind == NotificationKind::kTest) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

std::string TitleOf(const Notification& n) {
  switch (n.kind) {
    case NotificationKind::kTest:
      return fmt::format("a test of cluster {}'s notifications", n.cluster);
    case NotificationKind::kStalled:
      return fmt::format("job {} stands still", n.job);
    case NotificationKind::kRestarted:
      return fmt::format("job {} starts again", n.job);
    case NotificationKind::kIdle:
      return fmt::format("job {} does no work", n.job);
    case NotificationKind::kFinished:
      return fmt::format("job {} succeeded", n.job);
    case NotificationKind::kStarted:
    case NotificationKind::kFailed:
    case NotificationKind::kCancelled:
      return fmt::format("job {} {}", n.job, Name(n.kind));
    case NotificationKind::kNodeBack:
      return fmt::format("node {} is back", n.node);
    case NotificationKind::kNodeFault:
      return fmt::format("node {} has a fault", n.node);
    case NotificationKind::kGpuFault:
      return fmt::format("a GPU of node {} has a fault", n.node);
  }
  return "";
}

std::string ToJson(const Notification& n) {
  nlohmann::ordered_json json;
  json["id"] = n.id;
  json["time"] = cri::FormatRfc3339Nano(ToUnixNanos(n.time));
  json["unix_nanos"] = ToUnixNanos(n.time);
  json["kind"] = Name(n.kind);
  json["title"] = TitleOf(n);
  json["text"] = n.text;
  json["cluster"] = n.cluster;
  json["job"] = n.job;
  json["owner"] = n.owner;
  json["labels"] = n.labels;
  json["node"] = n.node;
  json["reason"] = n.reason;
  json["cost"] = n.cost;
  json["url"] = n.url;
  json["command"] = n.command;
  // Messages of programs may hold any bytes.
  return json.dump(-1, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

StatusOr<Notification> NotificationOf(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto string = [&](const char* field) {
    const auto found = json.find(field);
    return found != json.end() && found->is_string() ? found->get<std::string>()
                                                     : std::string();
  };
  if (!json.is_object()) return DataLoss("not a notification");
  const auto kind = NotificationKindOf(string("kind"));
  const auto nanos = json.find("unix_nanos");
  Notification n;
  n.id = string("id");
  if (!kind || n.id.empty() || nanos == json.end() ||
      !nanos->is_number_integer()) {
    return DataLoss("a notification without kind, id or time");
  }
  n.kind = *kind;
  n.time = FromUnixNanos(nanos->get<int64_t>());
  n.text = string("text");
  n.cluster = string("cluster");
  n.job = string("job");
  n.owner = string("owner");
  n.node = string("node");
  n.reason = string("reason");
  n.cost = string("cost");
  n.url = string("url");
  n.command = string("command");
  const auto labels = json.find("labels");
  if (labels != json.end() && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (value.is_string()) n.labels[key] = value.get<std::string>();
    }
  }
  return n;
}

Status CheckTemplate(std::string_view text) {
  const auto fields = FieldsOf({});
  std::string unknown;
  Split(
      text, [](std::string_view) {},
      [&](std::string_view field) {
        if (!fields.contains(field) && unknown.empty()) unknown = field;
      });
  if (unknown.empty()) return OkStatus();
  std::string known;
  for (const auto& [name, value] : fields) {
    known += fmt::format("{}{{{}}}", known.empty() ? "" : ", ", name);
  }
  return InvalidArgument("there is no placeholder {{{}}}; known: {}", unknown,
                         known);
}

std::string Render(std::string_view text, const Notification& notification) {
  const auto fields = FieldsOf(notification);
  std::vector<std::string> lines;
  while (true) {
    const size_t end = text.find('\n');
    std::string line;
    bool any = false, filled = false;
    Split(
        text.substr(0, end), [&](std::string_view part) { line += part; },
        [&](std::string_view name) {
          const auto field = fields.find(name);
          any = true;
          if (field == fields.end() || field->second.empty()) return;
          filled = true;
          line += field->second;
        });
    if (!any || filled) lines.push_back(std::move(line));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace lockstep::server
