// The tasks of a job as tables: where they are, how they got ready, what they
// use. Pure. Each is empty where there is nothing to say.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_

#include <string>
#include <vector>

#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// One row a rank of the current or last attempt.
std::string RanksTable(const v1::Job& job);
// One row a task: how long each part of preparing took, and in which it is;
// then which task took longest.
std::string PreparationTable(const v1::Job& job);
// One row a task: averages over its ranks' lives, and peaks.
std::string UseTable(const v1::Job& job);

// "worker 0 uses GPU 1 of node a: Xid 79 ..." of each GPU that a job which has
// not ended uses, and that is faulty or that its node does not offer any more.
std::vector<std::string> BadGpusOf(const v1::Job& job,
                                   const std::vector<v1::Node>& nodes);

// A line for each task, or the first few, whose working directory held files
// at the end.
std::string WorkText(const v1::Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
