// Metadata keys of daemons' calls.
#ifndef LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_
#define LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_

namespace lockstep {

// In a worker's stream: the highest epoch that the worker has obeyed, in
// decimal; absent if there is none. It tells a coordinator with a lower epoch
// why the worker will leave.
inline constexpr char kObeyedEpochKey[] = "lockstep-obeyed-epoch";

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_
