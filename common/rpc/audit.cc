#include "common/rpc/audit.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/base/logging.h"
#include "lockstep/v1/session.pb.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using Request = google::protobuf::Message;

constexpr size_t kMaxShown = 128;
constexpr size_t kMaxSentence = 512;

// Makes any bytes one line.
std::string Shown(std::string_view text, size_t most) {
  std::string shown(text.substr(0, most));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > most) shown += "...";
  return shown;
}

std::string StringField(const Request& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated() ||
      field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    return "";
  }
  return message.GetReflection()->GetString(message, field);
}

// "mnist rank 3: bash -l".
std::string SessionTarget(const v1::SessionRequest& open) {
  std::string what;
  if (open.has_port()) what = fmt::format("port {}", open.port().port());
  if (open.has_profile()) {
    what = fmt::format("profile of {} s", open.profile().seconds());
  }
  for (const std::string& argument : open.command().argv()) {
    what += (what.empty() ? "" : " ") + argument;
    if (what.size() > kMaxSentence) break;
  }
  return fmt::format("{} rank {}: {}", open.name(), open.rank(),
                     what.substr(0, kMaxSentence));
}

}  // namespace

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kUnauthenticated ||
         status.code() == StatusCode::kResourceExhausted;
}

std::string AuditLine(const AuditRecord& record) {
  const std::string who = record.who.empty() ? "an unknown caller" : record.who;
  const std::string from =
      record.from.empty() ? "" : " from " + Shown(record.from, kMaxShown);
  const std::string target =
      record.target.empty()
          ? ""
          : fmt::format(" \"{}\"", Shown(record.target, kMaxShown));
  const std::string answer =
      record.answer.ok()
          ? "OK"
          : fmt::format("{}: {}", CodeName(record.answer.code()),
                        Shown(Message(record.answer), kMaxSentence));
  const std::string times =
      record.count == 1 ? "" : fmt::format(" {} times", record.count);
  return fmt::format("audit: {}{}{} called {}{}{}: {}",
                     IsRefusal(record.answer) ? "refused " : "", who, from,
                     Shown(record.method, kMaxShown), target, times, answer);
}

void Audit(const AuditRecord& record) {
  if (IsRefusal(record.answer)) {
    LOG_WARN("{}", AuditLine(record));
  } else {
    LOG_INFO("{}", AuditLine(record));
  }
}

std::string AuditTarget(const Request& request) {
  if (const auto* const session =
          dynamic_cast<const v1::SessionInput*>(&request)) {
    return SessionTarget(session->open());
  }
  std::string name = StringField(request, "name");
  if (!name.empty()) return name;
  const FieldDescriptor* spec =
      request.GetDescriptor()->FindFieldByName("spec");
  if (spec == nullptr || spec->is_repeated() ||
      spec->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
      !request.GetReflection()->HasField(request, spec)) {
    return "";
  }
  return StringField(request.GetReflection()->GetMessage(request, spec),
                     "name");
}

}  // namespace lockstep
