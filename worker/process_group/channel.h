// The messages from this rank to another one, or from it.
//
// A channel has a thread and a link (pair_link.h) of its own, so it waits for
// no collective and for no other channel. Messages arrive in the order in which
// they were sent; a receive takes the first one with its tag. A message that no
// receive waits for yet is kept in memory. A send ends when the other rank has
// taken the message or kept it.
//
// The timeout of a send or receive counts from when it is the first one of its
// channel. One that passes breaks the channel, as does every other error but
// one: a receive for a message of another type or size fails alone, with
// FailedPrecondition, and the message is dropped.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_CHANNEL_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_CHANNEL_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/process_group/group_options.h"
#include "worker/process_group/pair_link.h"
#include "worker/process_group/work.h"

namespace lockstep::worker::process_group {

// A sender moves it before the bytes of a message.
struct MessageHeader {
  uint64_t count = 0;
  uint32_t tag = 0;
  uint8_t type = 0;  // collective::DataType
  uint8_t of_bool = 0;
  uint8_t reserved[2] = {};

  bool operator==(const MessageHeader&) const = default;
};

// Push and Abort are for any thread.
class Channel {
 public:
  // `options` are those of the group, with the backend that it took. `sends`:
  // the messages go from this rank to `peer`.
  Channel(const GroupOptions& options, int peer, bool sends);
  // Ends what is under way with Aborted.
  ~Channel();

  // Takes a send or a receive, whose End it will call. Returns the error that
  // broke the channel.
  Status Push(std::shared_ptr<Work> work);

  // Ends every operation, now and later, with Aborted and `reason`.
  void Abort(const std::string& reason);

 private:
  // Kept until its receive comes.
  struct Kept {
    MessageHeader header;
    std::vector<char> bytes;
  };

  // The thread.
  void Serve();
  Status Send(const Request& request, MonoTime deadline);
  // Takes a message: for the first receive with its tag, or to keep it.
  Status TakeMessage(MonoTime deadline);
  Status TakeFor(Work* work, const MessageHeader& header, MonoTime deadline);
  Status TakeToKeep(const MessageHeader& header, MonoTime deadline);
  // Moves as many bytes at a time as both ranks have memory for.
  Status MoveSpans(const SpanList& list, size_t element, MonoTime deadline);
  Status GrowScratch(size_t bytes);
  // Ok where the receive is for such a message.
  Status CheckFits(const Request& request, const MessageHeader& header) const;
  void Deliver(Work* work, const Kept& kept);
  void End(Work* work, const Status& status);
  // Removes the first receive with `tag` from the queue; null: there is none.
  std::shared_ptr<Work> ClaimLocked(uint32_t tag)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the first error, which stays.
  Status Break(const Status& status);

  const GroupOptions options_;
  const int peer_;
  const bool sends_;
  PairLink link_;
  std::vector<char> scratch_;  // the thread's; at most kChunkBytes
  Mutex mu_;
  CondVar changed_;
  std::deque<std::shared_ptr<Work>> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mu_);
  size_t kept_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // The bytes of a message are under way.
  bool moving_ ABSL_GUARDED_BY(mu_) = false;
  Status broken_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_CHANNEL_H_
