// The machine table of a local cluster. Types such as n1-standard-8 are larger
// than a desktop, so requests are reduced to fit. Pure.
#ifndef LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_
#define LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_

#include <cstdint>
#include <string>

namespace lockstep::cli {

// The number of tasks of the largest machine that fit a worker daemon.
inline constexpr int kTasksPerWorker = 4;

// Returns a --machines-file for the coordinator: every shipped machine, with a
// request of at most a share of a worker daemon with `cpus` and `memory_bytes`,
// so that kTasksPerWorker of them run on it at once. GPUs are not scaled.
std::string LocalMachinesFile(double cpus, int64_t memory_bytes);

// True if LocalMachinesFile made `text`. A file that the user changed, for
// example to add runtimes, is kept.
bool IsOwnMachinesFile(const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_MACHINES_TABLE_H_
