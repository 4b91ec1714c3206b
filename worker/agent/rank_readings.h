// What ranks' pages, exit records and GPUs say, in the model's words. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_RANK_READINGS_H_
#define LOCKSTEP_WORKER_AGENT_RANK_READINGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/model/job.h"
#include "common/model/node.h"
#include "worker/devices/gpu_reading.h"
#include "worker/task/exit_record.h"
#include "worker/task/rank_page.h"

namespace lockstep {

// Of a page of another generation: nothing (the default). Every number is
// finite and within what the coordinator takes.
RankProgress ToProgress(const task::RankPage& page, Generation generation);

ExitStatus ToExitStatus(const task::ExitRecord& record);

// Final use, from the record; `sampled` holds what was measured meanwhile.
Usage ToUsage(const task::ExitRecord& record, const Usage& sampled);

// Of the GPUs `offered`, in their order; those that `readings` (of all GPUs of
// the host, perhaps none) lacks have no values. Within what the coordinator
// takes.
std::vector<GpuUsage> ToGpuUsage(const std::vector<Gpu>& offered,
                                 const std::vector<GpuReading>& readings);

// Fit for a message field and a log line: at most `limit` bytes of valid
// UTF-8 without control characters; others become '?'.
std::string CleanText(std::string_view text, size_t limit);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_RANK_READINGS_H_
