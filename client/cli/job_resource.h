// A job as AI Platform's Job resource, for programs and users of that API.
// "lockstep" holds everything else about the job. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_
#define LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// One of the seven (common/training/states.h): "PREPARING". STATE_UNSPECIFIED
// for an unknown state of a newer coordinator.
std::string ResourceState(const v1::Job& job);

// createTime, endTime, errorMessage, etag, jobId, jobPosition, labels,
// startTime, state, trainingInput, trainingOutput: in this order, if present.
// Only a job submitted with a trainingInput has one.
nlohmann::ordered_json ServiceFields(const v1::Job& job);

// The same plus "lockstep": the message Job in protobuf's JSON mapping, with
// the submitted `lockstep` key as its "input".
nlohmann::ordered_json JobResource(const v1::Job& job);

// The list form of that API: {"jobs": [...], "nextPageToken": ""}.
nlohmann::ordered_json JobResources(const std::vector<v1::Job>& jobs);

// Returns the job's version as an opaque token.
std::string Etag(int64_t version);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_
