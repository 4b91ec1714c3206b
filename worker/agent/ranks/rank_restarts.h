// Restarts one rank while the rest of its gang keeps running: with the same
// ports, directory, log and generation.
//
// Its number (RankStatus.restarts) is on disk before its new process exists,
// and the records of the old process are gone before that. A daemon that starts
// in between finds either an ended rank, which it is told to restart, or a rank
// that has never started.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_RANKS_RANK_RESTARTS_H_
#define LOCKSTEP_WORKER_AGENT_RANKS_RANK_RESTARTS_H_

#include "common/base/file.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/ranks/rank_parts.h"
#include "worker/agent/ranks/rank_starter.h"

namespace lockstep::worker::agent {

class RankRestarts {
 public:
  // All are borrowed.
  RankRestarts(const RankParts& parts, const RankHooks* hooks,
               FileSystem* files, RankStarter* starter)
      : parts_(parts), hooks_(hooks), files_(files), starter_(starter) {}

  // Returns whether the rank has run here before in this generation. One that
  // has moved to this node has not.
  bool IsRestart(const RankRef& ref) const;
  // REQUIRES: IsRestart(ref), and its previous process has ended.
  void Restart(const RankRef& ref);

 private:
  struct Deadlines {
    MonoTime kill_shim;
    MonoTime give_up;
    // For the ranks that train without it: the processors are theirs until they
    // have a communicator.
    MonoTime others;
  };
  // Waits until the previous shim has exited and the ports are free.
  void StartWhenFree(const RankRef& ref, Deadlines deadlines);
  // Holds all ports that the rank needs, or a rank of its task holds them.
  bool HasPorts(const RankRef& ref, const LocalGang& gang);

  const RankParts parts_;
  const RankHooks* const hooks_;
  FileSystem* const files_;
  RankStarter* const starter_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_RANKS_RANK_RESTARTS_H_
