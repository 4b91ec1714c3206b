#include "client/cli/job_resource.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "client/cli/job_view.h"
#include "client/cli/output.h"
#include "common/training/states.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

JobState OutcomeOf(v1::Reason reason) {
  switch (reason) {
    case v1::REASON_CANCELLED_BY_USER:
    case v1::REASON_MAX_RUNNING_TIME:
    case v1::REASON_MAX_WAIT_TIME:
      return JobState::kCancelled;
    case v1::REASON_COMPLETED:
      return JobState::kSucceeded;
    default:
      return JobState::kFailed;
  }
}

std::string TimeField(const google::protobuf::Timestamp& time) {
  return google::protobuf::util::TimeUtil::ToString(time);
}

ordered_json Parsed(const std::string& json) {
  return ordered_json::parse(json, nullptr, false);
}

}  // namespace

std::string ResourceState(const v1::Job& job) {
  if (job.state() < v1::JOB_STATE_QUEUED ||
      job.state() > v1::JOB_STATE_CANCELLED) {
    return "STATE_UNSPECIFIED";
  }
  TrainingStateInput input;
  // The numbers are equal.
  input.state = static_cast<JobState>(job.state());
  input.has_run = job.has_start_time();
  input.has_prepared = std::any_of(
      job.phases().begin(), job.phases().end(),
      [](const v1::PhaseDuration& p) { return p.phase() == "preparing"; });
  if (job.state() == v1::JOB_STATE_FINISHING) {
    input.outcome = OutcomeOf(job.cause().reason());
  }
  return std::string(Name(TrainingStateOf(input)));
}

std::string Etag(int64_t version) {
  return absl::Base64Escape(std::to_string(version));
}

ordered_json ServiceFields(const v1::Job& job) {
  ordered_json out = ordered_json::object();
  const std::string state = ResourceState(job);
  if (job.has_create_time()) out["createTime"] = TimeField(job.create_time());
  if (job.has_end_time()) out["endTime"] = TimeField(job.end_time());
  const bool has_cause =
      state == "FAILED" || state == "CANCELLING" || state == "CANCELLED";
  const std::string error = job.details_hidden() ? CauseText(job, job.cause())
                                                 : job.cause().message();
  if (has_cause && !error.empty()) out["errorMessage"] = error;
  out["etag"] = Etag(job.resource_version());
  out["jobId"] = job.name();
  // A text, like all 64-bit numbers of that API.
  out["jobPosition"] = std::to_string(job.queue_position());
  if (!job.spec().labels().empty()) {
    // A protobuf map has no order.
    out["labels"] = std::map<std::string, std::string>(
        job.spec().labels().begin(), job.spec().labels().end());
  }
  if (job.has_start_time()) out["startTime"] = TimeField(job.start_time());
  out["state"] = state;
  if (job.has_training()) {
    out["trainingInput"] =
        Parsed(ToSparseJson(job.training().training_input()));
  }
  if (job.bill().has_ml_units()) {
    out["trainingOutput"] = {
        {"consumedMLUnits", std::round(job.bill().ml_units() * 1e4) / 1e4}};
  } else if (job.has_training()) {
    out["trainingOutput"] = ordered_json::object();
  }
  return out;
}

ordered_json JobResource(const v1::Job& job) {
  ordered_json out = ServiceFields(job);
  v1::Job rest = job;
  rest.clear_training();
  ordered_json lockstep = Parsed(ToJson(rest));
  if (job.training().has_lockstep()) {
    lockstep["input"] = Parsed(ToSparseJson(job.training().lockstep()));
  }
  out["lockstep"] = std::move(lockstep);
  return out;
}

ordered_json JobResources(const std::vector<v1::Job>& jobs) {
  ordered_json list = ordered_json::array();
  for (const v1::Job& job : jobs) list.push_back(JobResource(job));
  return {{"jobs", std::move(list)}, {"nextPageToken", ""}};
}

}  // namespace lockstep::cli
