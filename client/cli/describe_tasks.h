// The tasks of a job as tables: where they are, how they got ready, what they
// use. Pure. Each is empty where there is nothing to say.
#ifndef LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
#define LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_

#include <string>

#include "lockstep/v1/types.pb.h"

namespace lockstep {

// One row a rank of the current or last attempt.
std::string RanksTable(const v1::Job& job);
// One row a task: how long each part of preparing took, and in which it is;
// then which task took longest.
std::string PreparationTable(const v1::Job& job);
// One row a task: averages over its ranks' lives, and peaks.
std::string UseTable(const v1::Job& job);

// A line for each task, or the first few, whose working directory held files
// at the end.
std::string WorkText(const v1::Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_DESCRIBE_TASKS_H_
