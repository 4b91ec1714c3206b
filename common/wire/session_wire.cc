#include "common/wire/session_wire.h"

#include <algorithm>
#include <array>

#include "common/wire/fields.h"

namespace lockstep {
namespace {

constexpr int32_t kMaxWindow = 10'000;
constexpr size_t kMaxTerm = 64;
constexpr int32_t kMaxProfileSeconds = 300;
constexpr int32_t kMaxProfileRate = 1000;
// Linux's numbers of the signals that a client may send (session.proto).
constexpr std::array kSignals = {1, 2, 3, 9, 10, 12, 15, 18, 19};

}  // namespace

inline void ReadValue(v1::ProfileSession::Format from, ProfileFormat* to,
                      FieldChecker* check) {
  ReadEnum(from, v1::ProfileSession::Format_IsValid(from) && from != 0, to,
           check);
}
inline v1::ProfileSession::Format ToProto(ProfileFormat from) {
  return static_cast<v1::ProfileSession::Format>(from);
}

LOCKSTEP_FIELDS(WindowSize, v1::WindowSize) {
  LOCKSTEP_FIELD(rows, Range(0, kMaxWindow));
  LOCKSTEP_FIELD(columns, Range(0, kMaxWindow));
}

LOCKSTEP_FIELDS(CommandSession, v1::CommandSession) {
  LOCKSTEP_FIELD(argv, AtMost(kMaxSessionArguments),
                 Each(Bytes(kMaxSessionBytes)));
  LOCKSTEP_FIELD(terminal);
  LOCKSTEP_FIELD(term, Text(kMaxTerm));
  v.Rule([](CommandSession* command, FieldChecker* check) {
    size_t bytes = 0;
    for (const std::string& argument : command->argv) bytes += argument.size();
    check->Require(!command->argv.empty() && !command->argv[0].empty(), "argv",
                   "must name a program");
    check->Require(bytes <= kMaxSessionBytes, "argv",
                   "has more than 32 KiB in all");
  });
}

LOCKSTEP_FIELDS(PortSession, v1::PortSession) {
  LOCKSTEP_FIELD(port, Range(1, 65535));
}

LOCKSTEP_FIELDS(ProfileSession, v1::ProfileSession) {
  LOCKSTEP_FIELD(format);
  LOCKSTEP_FIELD(seconds, Range(1, kMaxProfileSeconds));
  LOCKSTEP_FIELD(rate, Range(1, kMaxProfileRate));
  LOCKSTEP_FIELD(native);
  LOCKSTEP_FIELD(idle);
}

LOCKSTEP_FIELDS(SessionRequest, v1::SessionRequest) {
  LOCKSTEP_FIELD(name, kJobName);
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(command);
  LOCKSTEP_FIELD(port);
  LOCKSTEP_FIELD(profile);
  v.Rule([](SessionRequest* request, FieldChecker* check) {
    const int kinds = (request->command ? 1 : 0) + (request->port ? 1 : 0) +
                      (request->profile ? 1 : 0);
    check->Require(kinds == 1, "",
                   "must have one of command, port and profile");
  });
}

LOCKSTEP_FIELDS(SessionOrder, v1::OpenSession) {
  LOCKSTEP_FIELD(id, kPositive);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(request);
}

Status CheckInput(const v1::SessionInput& input) {
  switch (input.input_case()) {
    case v1::SessionInput::kData:
      if (input.data().size() <= kMaxSessionData) return OkStatus();
      return InvalidArgument("data: has {} bytes; at most {} are allowed",
                             input.data().size(), kMaxSessionData);
    case v1::SessionInput::kSize:
      return FromProto(input.size()).status();
    case v1::SessionInput::kSignal:
      if (std::find(kSignals.begin(), kSignals.end(), input.signal()) !=
          kSignals.end()) {
        return OkStatus();
      }
      return InvalidArgument("signal: {} is not a signal that may be sent",
                             input.signal());
    case v1::SessionInput::kEndOfData:
      return OkStatus();
    case v1::SessionInput::kOpen:
      return InvalidArgument("open: only the first message may have it");
    case v1::SessionInput::INPUT_NOT_SET:
      break;
  }
  return InvalidArgument("a message without content, or of a later version");
}

}  // namespace lockstep
