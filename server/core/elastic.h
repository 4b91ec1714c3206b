// Ranks of a job that are away while the others train without them
// (docs/design/recovery.md, "Smaller for a while"). Pure; recovery.h decides
// with it.
//
// A rank of an elastic job that is lost goes away: the next recovery forms a
// communicator of the others, which train on at once. Its process is started
// again meanwhile, or on another node when one has prepared (replacing.h). When
// the new process waits for a recovery, one follows in which the rank is a
// member again.
//
// A failure of a rank that is away costs the job nothing: it uses up no try and
// has the wait of any retry, and the rank is started again as long as the
// others train.
#ifndef LOCKSTEP_SERVER_CORE_ELASTIC_H_
#define LOCKSTEP_SERVER_CORE_ELASTIC_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "server/core/job_view.h"

namespace lockstep::server {

// While another rank started this shortly before, one that is ready waits for
// it, so that the others stop once for both.
inline constexpr Duration kReturnTogether = std::chrono::seconds(5);

// A rank that fails so soon after it was back waits before its next start, and
// longer each time.
inline constexpr Duration kSoon = std::chrono::seconds(10);

// How long a recovery in which ranks return may take, from the first member
// that has left its communicator: others may still save or end a step.
inline constexpr Duration kLongestReturn = std::chrono::minutes(8);

// Ascending.
std::vector<int32_t> AwayRanks(const Job& job);

// Whether the job has ranks on the node, and all of them are away.
bool AllAreAwayOn(const Job& job, const NodeName& node);

// Whether the newest recovery took ranks in that were away.
bool IsReturn(const Job& job);

// Whether the rank has left the communicator before the newest recovery, or has
// joined that one.
bool HasLeftForNewest(const Job& job, const RankStatus& rank);

// Whether the job's success needs no exit of the rank: it is away, or has
// returned in the newest recovery and has not trained yet.
bool IsNotNeeded(const Job& job, const RankStatus& rank);

// The task of the rank that speaks for all and writes what the job saves: the
// first one that is needed.
// REQUIRES: the job has tasks.
const TaskStatus& ChiefTask(const Job& job);
const RankStatus& ChiefRank(const Job& job);

// Whether a process on the node speaks for all, or did so before the newest
// recovery and may not know of that yet.
bool MayHaveChief(const Job& job, const NodeName& node);

// Whether the members that are left, with `back`, which were away, may train
// without `lost`, too: the job and their programs are elastic, and enough tasks
// are complete. Rank 0 stays where its exit ends the job (EndWith::kChief).
bool MayTrainWithout(const Job& job, const std::set<int32_t>& lost,
                     const std::set<int32_t>& back = {});

// How a program of the job says that it can: "lockstep.torch.Replica says so
// with elastic=True".
std::string HowToSaySo(const JobSpec& spec);

// Of an elastic job that loses ranks: an event if the others cannot train on
// because their program has not said that it can.
void NoteThatItCannot(Job* job, Time now);

// Of a job that holds its state while `lost` are replaced: an event if its
// program can train on, and only the job does not ask for it.
void NoteThatItCould(Job* job, const std::set<int32_t>& lost, Time now);

// Members on lost nodes that no other node is ready for.
std::set<int32_t> Unreachable(const Job& job, const JobView& view);

// Ranks that are away and whose processes wait to be members again.
std::set<int32_t> ReadyToReturn(const Job& job, Time now);

// Starts ranks that are away and ended, after a wait; not on a node where they
// must not start.
void RestartAwayRanks(Job* job, const JobView& view, Time now);

// "3 of 4 ranks train; rank 1 is away". Empty: none is away.
std::string SizeText(const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_ELASTIC_H_
