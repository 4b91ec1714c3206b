// Tables of a job's tasks: placement, preparation and use. Pure. Each returns
// "" if there is nothing to show.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_

#include <string>
#include <vector>

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// One row per rank of the current or last attempt.
std::string RanksTable(const v1::Job& job);
// One row per task: the duration of each part of preparing, and the current
// part. Then names the slowest task.
std::string PreparationTable(const v1::Job& job);
// One row per task: averages over its ranks' lives, and peaks.
std::string UseTable(const v1::Job& job);

// "worker 0 uses GPU 1 of node a: Xid 79 ..." for each GPU that an unfinished
// job uses and that is faulty or no longer offered by its node.
std::vector<std::string> BadGpusOf(const v1::Job& job,
                                   const std::vector<v1::Node>& nodes);

// One line per task whose working directory held files at the end, for the
// first few tasks.
std::string WorkText(const v1::Job& job);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
