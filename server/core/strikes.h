// Tracks the nodes that get no new work for a while because they failed jobs,
// and the pairs of nodes that did not reach each other.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
// A node gets a strike if the evidence points at it: it was too slow to prepare
// or to start its ranks; it is part of several pairs whose probe failed
// (pair_probe.h), and of the smallest set of nodes that explains these pairs;
// or it killed ranks of a job that then ran elsewhere. The second strike within
// ten minutes, never the first, makes the node cool down: for a minute, and
// twice as long each time, up to an hour. A node that gets no strike for an
// hour after a cool-down starts again at a minute.
//
// Two nodes whose probe failed are apart from the first time on: for a minute,
// and twice as long each time, up to an hour. This is forgotten ten minutes
// after it ended. If only their ranks report the loss, because the probe
// succeeded or got no answer, they are apart from the second time within ten
// minutes on.
//
// A restarted coordinator has forgotten all of this. That is safe: no guarantee
// depends on it, and it learns the same again from a failure that uses up no
// try.
#ifndef LOCKSTEP_SERVER_CORE_STRIKES_H_
#define LOCKSTEP_SERVER_CORE_STRIKES_H_

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "server/core/evidence.h"

namespace lockstep::server {

struct StrikeOptions {
  // Number of strikes within `window` that makes a node cool down.
  size_t strikes = 2;
  Duration window = std::chrono::minutes(10);
  Duration first = std::chrono::minutes(1);
  Duration longest = std::chrono::hours(1);
};

class Strikes {
 public:
  struct CoolDown {
    // The causes of the strikes.
    std::string why;
    Time since;
    WallTime until{};
  };
  struct Apart {
    NodeName a;  // Before `b` by name.
    NodeName b;
    // "a did not reach b (Connection timed out)". Contains no text from a rank.
    std::string why;
    Time since;
    WallTime until{};
    // The probe failed. The pair is no longer apart once it succeeds.
    bool tested = false;
  };
  struct News {
    std::vector<std::pair<NodeName, CoolDown>> cooled;
    std::vector<Apart> apart;
  };

  explicit Strikes(StrikeOptions options = {}) : options_(options) {}

  // Records the evidence of an ended generation. A repeated call does nothing.
  // `keep` is the node of rank 0.
  News Take(const std::string& uid, Generation generation,
            const GangEvidence& evidence, const NodeName& keep, Time now);
  // Records that an unknown sender killed a rank of the job on the node. It
  // counts when the job runs on other nodes within the window.
  void NoteKill(const std::string& uid, const NodeName& node, Time now);
  bool HasKilled(const std::string& uid) const { return kills_.contains(uid); }
  // Records that the job has done a part of its work on `nodes`.
  News NoteRan(const std::string& uid, const std::set<NodeName>& nodes,
               Time now);
  // Call it when the job has ended.
  void ForgetJob(const std::string& uid);

  // Clears the node after an operator's command, or when it is removed. Returns
  // whether something changed.
  bool Clear(const NodeName& node);
  // Records that the two reach each other. Returns whether something changed.
  bool Mend(const NodeName& a, const NodeName& b, Time now);
  // Ends what has expired. Returns the affected nodes.
  std::set<NodeName> Expire(Time now);

  // Null if the node does not cool down.
  const CoolDown* CoolingOf(const NodeName& node) const;
  // By name.
  std::vector<Apart> AllApart() const;
  std::vector<NodeName> ApartFrom(const NodeName& node) const;

 private:
  struct Host {
    std::deque<MonoTime> strikes;
    std::string why;
    // Number of cool-downs.
    int times = 0;
    bool cools = false;
    CoolDown cooling;
    MonoTime end;
  };
  struct Pair {
    int times = 0;
    // When it was last lost although the two reach each other.
    bool doubted = false;
    bool parted = false;
    Apart apart;
    MonoTime end;
  };
  using PairKey = std::pair<NodeName, NodeName>;

  Duration For(int times) const;
  void Strike(const NodeName& node, const std::string& why, Time now,
              News* news);
  void Part(const LostPair& lost, Time now, News* news);

  const StrikeOptions options_;
  std::map<NodeName, Host> hosts_;
  std::map<PairKey, Pair> pairs_;
  // By a job's uid, the last generation that was taken in.
  std::map<std::string, Generation> taken_;
  // By a job's uid: nodes that killed its ranks, and when last.
  std::map<std::string, std::map<NodeName, MonoTime>> kills_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_STRIKES_H_
