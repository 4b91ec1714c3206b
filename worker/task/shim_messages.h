// Messages between a worker daemon and a shim: one message per packet on the
// shim's Unix socket (SOCK_SEQPACKET).
//
//   daemon -> shim    HELLO nonce      first, within 5 s, or it is disconnected
//                     STATE            asks for the state
//                     SIGNAL           signo, to the rank or to its whole tree
//                     KILL_TREE        SIGTERM to all, SIGKILL after the grace
//                     FENCE            the rank may go on until a later time
//                     FORGET           the exit record was read: the shim may
//                     exit
//                     SESSION          a command in the rank (session.h of the
//                                      shim); with 4 descriptors: its input,
//                                      output, error output and control
//   shim -> daemon    STATE            answers HELLO, STATE, SIGNAL, KILL_TREE
//   and
//                                      FORGET; also unasked (id 0), to every
//                                      greeted connection, at each new phase
//                     REFUSED          a sentence; after a refused HELLO the
//                                      connection is closed
//
// An answer carries the id of its request. The shim serves several connections
// at a time, because a restarting daemon does not close its old one first.
#ifndef LOCKSTEP_WORKER_TASK_SHIM_MESSAGES_H_
#define LOCKSTEP_WORKER_TASK_SHIM_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/task/exit_record.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::task {

inline constexpr size_t kMaxShimMessage = 64 << 10;

struct ShimRequest {
  enum class Kind : uint8_t {
    kHello = 1,
    kState = 2,
    kSignal = 3,
    kKillTree = 4,
    kForget = 5,
    kFence = 6,
    kSession = 7,
  };
  Kind kind = Kind::kState;
  uint32_t id = 0;  // Chosen by the caller; not 0.
  std::string nonce;
  int32_t signo = 0;
  bool whole_tree = false;
  // kKillTree: 0 kills immediately, a negative value means the spec's grace. A
  // second request can only shorten the time.
  int64_t grace_nanos = -1;
  // kFence: as in ShimSpec. An earlier time than the last one has no effect,
  // and none has once the rank was told to end.
  int64_t fence_nanos = 0;
  // kSession: as in ShimSpec; `env` is put into the rank's.
  std::vector<std::string> argv;
  std::vector<std::string> env;
  // Its input is a terminal, which becomes the command's.
  bool terminal = false;
  // The command is a client of an engine, whose own keeper in the container
  // gets the control descriptor as number 3.
  bool in_container = false;
};

inline constexpr size_t kSessionFds = 4;

struct ShimReply {
  enum class Kind : uint8_t { kState = 1, kRefused = 2 };
  Kind kind = Kind::kState;
  uint32_t id = 0;
  std::string error;  // kRefused.

  enum class Phase : uint8_t {
    kStarting = 1,  // The program has not been executed yet.
    kRunning = 2,   // Its exec succeeded.
    kEnding = 3,    // It has ended; its tree and output are cleared up.
    kExited = 4,    // exit_record is set.
  };
  Phase phase = Phase::kStarting;
  ProcessRef shim;
  ProcessRef process;
  ExitRecord exit_record;
  // The exit record is on disk. If false, this message is the only record so
  // far, for example because the disk is full.
  bool durable = false;
};

std::string EncodeShimRequest(const ShimRequest& request);
bool DecodeShimRequest(std::string_view bytes, ShimRequest* request,
                       std::string* error);
std::string EncodeShimReply(const ShimReply& reply);
bool DecodeShimReply(std::string_view bytes, ShimReply* reply,
                     std::string* error);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_SHIM_MESSAGES_H_
