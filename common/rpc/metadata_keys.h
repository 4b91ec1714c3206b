// What daemons say of themselves beside their messages.
#ifndef LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_
#define LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_

namespace lockstep {

// Of a worker's stream: the highest epoch that it has obeyed, in decimal; left
// out when it has obeyed nobody yet. A coordinator of a lower one is told why
// the worker will leave.
inline constexpr char kObeyedEpochKey[] = "lockstep-obeyed-epoch";

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_METADATA_KEYS_H_
