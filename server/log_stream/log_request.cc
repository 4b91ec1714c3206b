#include "server/log_stream/log_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/wire/value_wire.h"

namespace lockstep::server {
namespace {

// A tail's lines are in memory until the end of the log is read.
constexpr int64_t kMaxTail = 100'000;
constexpr int kMaxTasks = 1000;
// The allowed lag of a host's clock and lines: a reader that follows until some
// time waits this much longer.
constexpr Duration kUntilSlack = std::chrono::seconds(2);

int64_t Nanos(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000'000 + time.nanos();
}

// "master-replica-0, worker-replica-0 to 6 and service".
std::string TasksText(const JobSpec& spec) {
  std::string text;
  for (const RoleSpec& role : spec.roles) {
    text += ReplicaName(role.type, 0);
    if (role.count > 1) text += fmt::format(" to {}", role.count - 1);
    text += ", ";
  }
  return text.substr(0, text.size() - 2) + " and service";
}

}  // namespace

Status CheckLogRequest(const v1::StreamLogsRequest& request) {
  if (request.attempt() < 0) {
    return InvalidArgument("attempt: must be 0 (all) or more, not {}",
                           request.attempt());
  }
  if (request.tail() < 0 || request.tail() > kMaxTail) {
    return InvalidArgument("tail: must be 0 (all) to {}, not {}", kMaxTail,
                           request.tail());
  }
  if (request.ranks_size() > kMaxRanks) {
    return InvalidArgument("ranks: names more than {}", kMaxRanks);
  }
  for (const int32_t rank : request.ranks()) {
    if (rank < 0) {
      return InvalidArgument("ranks: must be 0 or more, not {}", rank);
    }
  }
  if (request.has_since()) {
    LOCKSTEP_RETURN_IF_ERROR(FromProto(request.since(), "since").status());
  }
  if (request.has_until()) {
    LOCKSTEP_RETURN_IF_ERROR(FromProto(request.until(), "until").status());
  }
  if (request.has_since() && request.has_until() &&
      Nanos(request.until()) < Nanos(request.since())) {
    return InvalidArgument("until: is before since");
  }
  if (request.tasks_size() > kMaxTasks) {
    return InvalidArgument("tasks: names more than {}", kMaxTasks);
  }
  if (!v1::Severity_IsValid(request.min_severity())) {
    return InvalidArgument(
        "min_severity: must be 0 (all) to 5 (CRITICAL), not {}",
        static_cast<int>(request.min_severity()));
  }
  const auto filter = LogFilter::Make(SelectionOf(request));
  if (!filter.ok()) return Annotate(filter.status(), "grep");
  return OkStatus();
}

LogSelection SelectionOf(const v1::StreamLogsRequest& request) {
  LogSelection selection;
  if (request.has_since()) selection.since = Nanos(request.since());
  if (request.has_until()) selection.until = Nanos(request.until());
  if (request.min_severity() != v1::SEVERITY_UNSPECIFIED) {
    selection.min_severity = static_cast<Severity>(request.min_severity());
  }
  selection.grep = request.grep();
  return selection;
}

std::string ReplicaOf(const std::string& name) {
  return name == "chief-replica-0" ? ReplicaName(TaskType::kChief, 0) : name;
}

Status CheckLogSelection(const v1::StreamLogsRequest& request, const Job& job) {
  int64_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
    ranks += int64_t{role.count} * role.ranks_per_task;
  }
  for (const int32_t rank : request.ranks()) {
    if (rank >= 0 && rank < ranks) continue;
    return InvalidArgument("ranks: job {} has ranks 0 to {}, not {}",
                           job.spec.name, ranks - 1, rank);
  }
  for (const std::string& name : request.tasks()) {
    if (name == kServiceTask) continue;
    const std::string task = ReplicaOf(name);
    const auto is_one = [&](const RoleSpec& role) {
      // A role may have many tasks, so the number is parsed instead of all
      // names.
      const std::string first = ReplicaName(role.type, 0);
      const std::string prefix = first.substr(0, first.size() - 1);
      if (!task.starts_with(prefix)) return false;
      const std::string number = task.substr(prefix.size());
      return !number.empty() && number.size() < 7 &&
             number.find_first_not_of("0123456789") == std::string::npos &&
             std::stoi(number) < role.count &&
             std::to_string(std::stoi(number)) == number;
    };
    if (std::any_of(job.spec.roles.begin(), job.spec.roles.end(), is_one)) {
      continue;
    }
    return InvalidArgument("tasks: job {} has {}, not \"{}\"", job.spec.name,
                           TasksText(job.spec), task);
  }
  if (!request.follow() && request.attempt() > job.attempt) {
    return InvalidArgument("attempt: job {} has {} so far, not {}",
                           job.spec.name, job.attempt, request.attempt());
  }
  return OkStatus();
}

bool IsPast(const v1::StreamLogsRequest& request, WallTime now) {
  return request.has_until() &&
         ToUnixNanos(now - kUntilSlack) > Nanos(request.until());
}

}  // namespace lockstep::server
