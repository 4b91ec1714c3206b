// A job as AI Platform's Job resource, which programs and people that come
// from there read, with all else that lockstep knows of it under "lockstep".
// Pure.
#ifndef LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_
#define LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// One of the seven (common/training/states.h): "PREPARING"; of a state that a
// newer coordinator knows, STATE_UNSPECIFIED.
std::string ResourceState(const v1::Job& job);

// createTime, endTime, errorMessage, etag, jobId, jobPosition, labels,
// startTime, state, trainingInput, trainingOutput: in that order, those that
// there are. trainingInput is what came in; a job that came otherwise has none.
nlohmann::ordered_json ServiceFields(const v1::Job& job);

// The same with "lockstep": the message Job in protobuf's JSON mapping, and
// what came in beside trainingInput as its "input".
nlohmann::ordered_json JobResource(const v1::Job& job);

// As that API lists them: {"jobs": [...], "nextPageToken": ""}.
nlohmann::ordered_json JobResources(const std::vector<v1::Job>& jobs);

// The job's version as an opaque token.
std::string Etag(int64_t version);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_JOB_RESOURCE_H_
