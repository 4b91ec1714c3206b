// The messages that a rank and its worker daemon have exchanged. Not
// thread-safe.
//
// A restarted daemon has no state, so the rank repeats its own part to each
// daemon that welcomes it.
#ifndef LOCKSTEP_WORKER_RANK_LINK_LINK_STATE_H_
#define LOCKSTEP_WORKER_RANK_LINK_LINK_STATE_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "lockstep/v1/rank.pb.h"

namespace lockstep::worker::rank_link {

class LinkState {
 public:
  // The rendezvous. AlreadyExists if `key` was put with another value.
  Status Put(const std::string& key, std::string_view value);
  // `tell`: OnValue says that the answer is there, and does not keep it.
  void Ask(const std::string& key, bool tell = false) {
    asked_.insert_or_assign(key, tell);
  }
  void StopAsking(const std::string& key) { asked_.erase(key); }
  // Takes the answer to a key that was asked for, and ignores all others.
  // Returns true where it is to be told.
  bool OnValue(const std::string& key, const std::string& value);
  // Repeats neither the Put nor the question of `key`.
  void Forget(const std::string& key);
  std::optional<std::string> Find(const std::string& key) const;

  // After a recovery, no rank requests values from then on.
  void Join(const v1::RankJoined& joined);
  // The rendezvous of another recovery begins.
  void BeginAnew();
  // All ranks have joined, so none requests values from now on.
  void OnGo();
  bool go() const { return go_; }

  // Keeps all of `report` except its event, which is sent once.
  void Remember(const v1::RankReport& report);

  // Returns the messages that the rank repeats.
  std::vector<v1::RankMessage> Repeated() const;

 private:
  std::map<std::string, std::string> puts_;
  std::map<std::string, bool> asked_;  // Whether the answer is told.
  std::map<std::string, std::string> values_;
  std::optional<v1::RankJoined> joined_;
  bool go_ = false;
  v1::RankReport latest_;
  std::map<std::string, std::string> artifacts_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_LINK_STATE_H_
