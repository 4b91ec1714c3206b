// A native job of four ranks that recovers in place, for the tests of
// recovery.h.
#ifndef LOCKSTEP_SERVER_CORE_RECOVERY_FIXTURE_H_
#define LOCKSTEP_SERVER_CORE_RECOVERY_FIXTURE_H_

#include <csignal>

#include "server/core/recovery.h"
#include "server/core/scenes.h"

namespace lockstep::server {

// Four ranks on a, b, c and d.
inline Scene Recoverable() {
  Scene s(NativeSpec("j", 4));
  s.Run({"a", "b", "c", "d"});
  for (int32_t rank = 0; rank < 4; ++rank) s.Rank(rank).recoverable = true;
  s.Settle();
  return s;
}

inline const RankStatus& Stored(const Scene& s, int32_t rank) {
  return *RanksOf(s.job)[static_cast<size_t>(rank)];
}

// The node does as it is told: the rank's process is new.
inline void ComeBack(Scene* s, int32_t rank) {
  RankStatus fresh;
  fresh.rank = rank;
  fresh.state = RankState::kStarted;
  fresh.restarts = Stored(*s, rank).restarts;
  s->Rank(rank) = fresh;
  s->Settle();
}

inline void Join(Scene* s) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankStatus& status = s->Rank(rank);
    status.state = RankState::kJoined;
    status.recoverable = true;
    status.recovery = s->job.recovery;
  }
  s->Settle();
}

inline void Commit(Scene* s, int64_t step) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    s->Rank(rank).progress.committed_step = step;
  }
}

// Rank 1 is killed and comes back.
inline void LoseOne(Scene* s) {
  s->Exited(1, Signal(SIGKILL));
  s->Settle();
  ComeBack(s, 1);
  Join(s);
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_RECOVERY_FIXTURE_H_
