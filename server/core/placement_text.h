// Why a gang waits, or can never be placed, in words. Pure; for scheduler.cc.
#ifndef LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_
#define LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_

#include <string>
#include <vector>

#include "server/core/placement.h"

namespace lockstep {

// Of all tasks of a job.
Resources SumOf(const JobSpec& spec);

// " of pool a100"; nothing for no pool.
std::string OfPool(const std::string& pool);

// Why nobody of `hosts`, those of `pool`, takes work: "no worker daemon takes
// work now; 2 of 3 nodes are drained", "no node of pool a100 is ready now".
std::string DescribeNobodyReady(const std::string& pool,
                                const std::vector<HostCapacity>& hosts,
                                const std::vector<HostCapacity>& all);

// Of a pool that no host is in: "no node of pool a10 is registered; the pools
// here are a100, default: did you mean a100?". Empty: there are some.
std::string DescribeUnknownPool(const std::string& pool,
                                const std::vector<HostCapacity>& all);

// Which of `hosts` are kept apart from each other, or cool down, and until
// when; empty: none.
std::string DescribeApart(const std::vector<HostCapacity>& hosts);

// In the following, `hosts` are those of the job's pool.

// Why a gang of which `placed` tasks fit does not go on the hosts as they are:
// "a worker task needs 8 GPUs on one node; the most free on one is 4 GPUs
// (gpu-3; big holds 4 GPUs); not ready: b; 1 of 3 nodes is drained". Where
// hosts are short of different things, one host of each kind is named. Where
// each task fits somewhere: "needs 8 cpus in 4 tasks; 2 of them fit now (a: big
// holds 2 cpus; b: other holds 2 cpus)".
std::string DescribeShortage(const JobSpec& spec,
                             const std::vector<HostCapacity>& hosts,
                             size_t placed);

// Of each role that no host can take, empty as `hosts` are: "a worker task
// needs 8 cpus, more than any node has; the nearest that would fit is 4 cpus
// (node b)", and where no host has a container engine, that. Empty: every role
// fits somewhere.
std::vector<std::string> TooLargeForAnyHost(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_PLACEMENT_TEXT_H_
