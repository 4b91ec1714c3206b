// `lockstep jobs list|describe` and `nodes list|describe` as text. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_H_

#include <string>
#include <vector>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

Table JobsTable(const std::vector<v1::Job>& jobs, bool wide, WallTime now,
                const Style& style);

// Shows state, cause, times, placement, speed, use, cost and events. `bad_gpus`
// are BadGpusOf the job.
std::string FormatJob(const v1::Job& job, WallTime now, const Style& style,
                      const std::vector<std::string>& bad_gpus = {});

Table NodesTable(const std::vector<v1::Node>& nodes, bool wide, WallTime now,
                 const Style& style);
std::string FormatNode(const v1::Node& node, WallTime now, const Style& style);

// TIME, GENERATION (for jobs), REASON, WHAT. Empty without events.
std::string FormatEvents(
    const google::protobuf::RepeatedPtrField<v1::Event>& events,
    bool generations);

// TASK, NODE, GPUS: the placement that --dry-run finds.
std::string FormatPlacement(
    const google::protobuf::RepeatedPtrField<v1::TaskStatus>& tasks);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_H_
