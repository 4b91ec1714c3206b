// The answers to commands, so that a repeat gets the first one: by caller and
// request id, and no more than so many.
//
// What would be too much displaces the oldest: a caller's own where that caller
// has too much, else the oldest of all. A repeat of a command whose answer is
// forgotten is carried out again, or refused by what the first one did.
// Pure; thread-compatible.
#ifndef LOCKSTEP_SERVER_COORDINATOR_ANSWER_BOOK_H_
#define LOCKSTEP_SERVER_COORDINATOR_ANSWER_BOOK_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/store/store.h"

namespace lockstep {

struct AnswerLimits {
  size_t of_caller = 20'000;
  size_t bytes_of_caller = 64 << 20;
  size_t of_all = 100'000;
  size_t bytes_of_all = 256 << 20;
};

class AnswerBook {
 public:
  explicit AnswerBook(const AnswerLimits& limits) : limits_(limits) {}

  // Null: none.
  const AnsweredRequest* Find(const std::string& client,
                              const std::string& id) const;
  bool empty() const { return answers_.empty(); }
  // Which have to go for `next` to come.
  std::vector<RequestName> Displaced(const AnsweredRequest& next) const;
  // Takes `answer` whatever the limits say.
  void Add(AnsweredRequest answer);
  void Forget(const RequestName& name);
  void ForgetBefore(WallTime time);

 private:
  // Oldest first.
  using Ages = std::set<std::pair<WallTime, RequestName>>;
  struct Group {
    Ages ages;
    size_t bytes = 0;
  };

  static size_t BytesOf(const AnsweredRequest& answer);
  // The oldest of `group` until it, without `gone`, is within the limits with
  // `bytes` more; they are added to `gone`.
  void Trim(const Group& group, size_t most, size_t most_bytes, size_t bytes,
            std::set<RequestName>* gone) const;

  const AnswerLimits limits_;
  std::map<RequestName, AnsweredRequest> answers_;
  Group all_;
  std::map<std::string, Group> callers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_ANSWER_BOOK_H_
