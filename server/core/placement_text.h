// Describes why a gang waits, or can never be placed. Pure; for scheduler.cc.
#ifndef LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_
#define LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_

#include <string>
#include <vector>

#include "server/core/placement.h"

namespace lockstep::server {

// Returns the sum over all tasks of a job.
Resources SumOf(const JobSpec& spec);

// " of pool a100"; empty without a pool.
std::string OfPool(const std::string& pool);

// Why none of `hosts`, which are those of `pool`, takes work: "no worker daemon
// takes work now; 2 of 3 nodes are drained", "no node of pool a100 is ready
// now".
std::string DescribeNoneReady(const std::string& pool,
                              const std::vector<HostCapacity>& hosts,
                              const std::vector<HostCapacity>& all);

// For a pool without hosts: "no node of pool a10 is registered; the pools
// here are a100, default: did you mean a100?". Empty if it has hosts.
std::string DescribeUnknownPool(const std::string& pool,
                                const std::vector<HostCapacity>& all);

// Which of `hosts` are apart from each other, or cool down, and until when.
// Empty if there are none.
std::string DescribeApart(const std::vector<HostCapacity>& hosts);

// In the following, `hosts` are those of the job's pool.

// Why a gang, of which `placed` tasks fit, cannot use the hosts as they are:
// "a worker task needs 8 GPUs on one node; the most free on one is 4 GPUs
// (gpu-3; big holds 4 GPUs); not ready: b; 1 of 3 nodes is drained". If
// hosts lack different resources, it names one host of each kind. If each task
// fits somewhere: "needs 8 cpus in 4 tasks; 2 of them fit now (a: big
// holds 2 cpus; b: other holds 2 cpus)".
std::string DescribeShortage(const JobSpec& spec,
                             const std::vector<HostCapacity>& hosts,
                             size_t placed);

// One sentence for each role that fits on none of `hosts`, which are empty: "a
// worker task needs 8 cpus, more than any node has; the nearest that would fit
// is 4 cpus (node b)", or that no host has a container engine. Empty if every
// role fits somewhere.
std::vector<std::string> TooLargeForAnyHost(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_
