// The site's table of a local cluster: names such as n1-standard-8 promise
// more than a desk has, so what a task reserves is made to fit. Pure.
#ifndef LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_
#define LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_

#include <cstdint>
#include <string>

namespace lockstep {

// How many tasks of the largest machine fit a worker daemon.
inline constexpr int kTasksPerWorker = 4;

// A --machines-file for the coordinator: every shipped machine with a request
// that is at most a part of a worker daemon with `cpus` and `memory_bytes`, so
// that kTasksPerWorker of them run on it at once. GPUs are not scaled.
std::string LocalMachinesFile(double cpus, int64_t memory_bytes);

// Whether `text` is as LocalMachinesFile made it. One that somebody changed is
// theirs: with names of their runtimes in it, say.
bool IsOwnMachinesFile(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_
