// What nccl-tests calls collectives, types and operations. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_NAMES_H_
#define LOCKSTEP_WORKER_BENCH_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "worker/collective/communicator.h"

namespace lockstep {

// "float", "half", "bfloat16", "int32", ...
std::string_view NcclName(DataType type);
std::string_view NcclName(ReduceOp op);

// "float, double, ..., all".
std::string TypeNames();
std::string OpNames();

// What one of the names, or another that is in use, stands for; "all": all of
// them. Returns what is wrong, empty when nothing is.
std::string TakeCollectives(const std::string& name,
                            std::vector<CollectiveKind>* values);
std::string TakeTypes(const std::string& name, std::vector<DataType>* values);
std::string TakeOps(const std::string& name, std::vector<ReduceOp>* values);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_NAMES_H_
