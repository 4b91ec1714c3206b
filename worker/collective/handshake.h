// The first exchange of the ranks of a new generation: they prove their
// identity, and that they are configured alike.
//
// One all-gather of a record per rank, in clear: generation, rank, spec hash,
// fingerprint of the configuration, and an HMAC-SHA256 (RFC 2104) over them
// with the generation's key. It finds a stranger, or a member of an older
// generation, before a gradient is trusted. If only the configurations differ,
// a second all-gather of their text finds the first key that differs.
//
// The handshake authenticates the members, not the bytes that follow.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HANDSHAKE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HANDSHAKE_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

struct HandshakeOptions {
  // "job mnist g3", for errors.
  std::string label;
  uint64_t generation = 0;
  // The hash of the cluster spec: at most 64 bytes, the same on every rank.
  std::string spec_hash;
  // The job's key of this generation, not empty.
  std::string key;
  // Everything that must be equal for the ranks to train one model: batch size,
  // hyperparameters, model signature, plan hash, program version. Never a
  // secret: it is sent in clear. Keys have no '=' and no newlines, values no
  // newlines; as "key=value\n" lines they have at most 16 KiB.
  std::map<std::string, std::string> config;
};

// Reasons (see ReasonOf()) of a failed handshake.
inline constexpr char kReasonWrongJobKey[] = "WRONG_JOB_KEY";
inline constexpr char kReasonOtherGeneration[] = "OTHER_GENERATION";
inline constexpr char kReasonOtherSpec[] = "OTHER_SPEC";
inline constexpr char kReasonConfigMismatch[] = "CONFIG_MISMATCH";

// Runs the handshake on a fresh communicator; all ranks must call it. After any
// error the communicator must not be used, and every rank sees an error.
// Unauthenticated: a rank has another key, or speaks another protocol.
// FailedPrecondition: generation, spec or configuration differ; the sentence
// names ranks and values. InvalidArgument: `options` are invalid. Else the
// errors of the communicator.
Status Handshake(Communicator* communicator, const HandshakeOptions& options,
                 MonoTime deadline);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HANDSHAKE_H_
