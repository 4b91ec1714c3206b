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

namespace lockstep {

Table JobsTable(const std::vector<v1::Job>& jobs, bool wide, WallTime now,
                const Style& style);

// In the order one asks: what state, why, since when, where, how fast, what it
// uses, what it costs, what happened. `bad_gpus` are BadGpusOf the job.
std::string FormatJob(const v1::Job& job, WallTime now, const Style& style,
                      const std::vector<std::string>& bad_gpus = {});

Table NodesTable(const std::vector<v1::Node>& nodes, bool wide, WallTime now,
                 const Style& style);
std::string FormatNode(const v1::Node& node, WallTime now, const Style& style);

// TIME, GENERATION (of jobs), REASON, WHAT; empty where there are none.
std::string FormatEvents(
    const google::protobuf::RepeatedPtrField<v1::Event>& events,
    bool generations);

// TASK, NODE, GPUS: where --dry-run would place a job.
std::string FormatPlacement(
    const google::protobuf::RepeatedPtrField<v1::TaskStatus>& tasks);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_H_
