// Which nodes get no new work for a while because they failed jobs, and which
// two did not reach each other.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
// A node gets a strike where the evidence points at it: it was too slow to
// prepare or to start its ranks, it is among the fewest that explain which
// pairs did not reach each other when they were asked (pair_probe.h) and part
// of several, or it killed ranks of a job that then ran elsewhere. The second
// within ten minutes, never the first, makes it cool down: for a minute, and
// twice as long each time, up to an hour. That has an end in any case; who gets
// no strike for an hour after it begins anew.
//
// Two nodes that did not reach each other when they were asked are apart from
// the first time: for a minute, twice as long each time, up to an hour;
// forgotten ten minutes after it ended. Where only their ranks say that they
// lost each other, as the two reach each other or nothing was heard of them,
// they are apart from the second time within ten minutes only.
//
// A coordinator that is started again has forgotten all of this, which is safe:
// no promise rests on it, and what it meant is seen again at the price of a
// failure that uses up no try.
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

namespace lockstep {

struct StrikeOptions {
  // So many strikes within so long.
  size_t strikes = 2;
  Duration window = std::chrono::minutes(10);
  Duration first = std::chrono::minutes(1);
  Duration longest = std::chrono::hours(1);
};

class Strikes {
 public:
  struct CoolDown {
    // What the strikes were for.
    std::string why;
    Time since;
    WallTime until{};
  };
  struct Apart {
    NodeName a;  // Before `b` by name.
    NodeName b;
    // "a did not reach b (Connection timed out)"; none of a rank's words.
    std::string why;
    Time since;
    WallTime until{};
    // They did not reach each other when they were asked: it ends when they
    // do.
    bool tested = false;
  };
  struct News {
    std::vector<std::pair<NodeName, CoolDown>> cooled;
    std::vector<Apart> apart;
  };

  explicit Strikes(StrikeOptions options = {}) : options_(options) {}

  // Of a generation that has ended; said again it counts once. `keep`: the node
  // of rank 0.
  News Take(const std::string& uid, Generation generation,
            const GangEvidence& evidence, const NodeName& keep, Time now);
  // A rank of the job was killed on the node, by nobody that is known. Counts
  // when the job runs on other nodes within the window.
  void NoteKill(const std::string& uid, const NodeName& node, Time now);
  bool HasKilled(const std::string& uid) const { return kills_.contains(uid); }
  // It has done a part of its work on `nodes`.
  News NoteRan(const std::string& uid, const std::set<NodeName>& nodes,
               Time now);
  // It has ended.
  void ForgetJob(const std::string& uid);

  // An operator says that all is well with it, or it is gone. True: something
  // has changed.
  bool Clear(const NodeName& node);
  // The two reach each other.
  bool Mend(const NodeName& a, const NodeName& b, Time now);
  // Ends what is over; the nodes that this is about.
  std::set<NodeName> Expire(Time now);

  // Null: it does not cool down.
  const CoolDown* CoolingOf(const NodeName& node) const;
  // By name.
  std::vector<Apart> AllApart() const;
  std::vector<NodeName> ApartFrom(const NodeName& node) const;

 private:
  struct Host {
    std::deque<MonoTime> strikes;
    std::string why;
    // How often it cooled down.
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

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_STRIKES_H_
