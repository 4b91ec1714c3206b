// The rank's end of the link to its worker daemon.
//
// A thread of its own reads, writes and reconnects (10 ms doubling to 1 s,
// for as long as it takes: training needs no daemon). The calling thread only
// touches queues. After a reconnect the link repeats what may have been lost:
// its Puts and unanswered Gets, Joined, and of the reports the latest
// checkpoint and reduction plan, each artifact, the resumed step, the
// directives done, `parked` and the exit message. Events are sent at most once.
//
// A recovery (RankWelcome.recovery) begins the rendezvous anew: a Welcome with
// a higher one drops Puts, questions, values, Joined and Go. Until the rank has
// taken it (WaitForRecovery), Put, Get and WaitForGo return Aborted.
//
// Threads: all methods from any thread. The callbacks run on the link's
// thread and must not block it longer than an abort takes.
#ifndef LOCKSTEP_WORKER_RANK_LINK_CLIENT_H_
#define LOCKSTEP_WORKER_RANK_LINK_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/rank.pb.h"
#include "worker/collective/communicator.h"
#include "worker/rank_link/rank_key.h"

namespace lockstep::worker::rank_link {

// The identity of this process, from its environment.
struct RankIdentity {
  RankKey key;
  std::string path;
  std::string nonce;
  // Of a program: random, another one for each join.
  std::string instance = {};
};
// Of a native rank. No value: LOCKSTEP_LINK is not set, and this process is not
// a rank. InvalidArgument names the variable that is missing or wrong. Reads
// the nonce from the inherited file and closes that.
StatusOr<std::optional<RankIdentity>> RankIdentityFromEnvironment();
// Of a process of a program. No value: lockstep did not start it.
// FailedPrecondition: lockstep did, as a native rank or by a daemon that gives
// programs no link.
StatusOr<std::optional<RankIdentity>> ProgramIdentityFromEnvironment();

// Returns the text of the file LOCKSTEP_LINK_FILE, which the daemon writes: the
// socket's path and the nonce, which has no line break, on a line each.
std::string LinkFileText(const std::string& path, const std::string& nonce);

struct RankLinkCallbacks {
  // The generation is over, with the daemon's sentence. At most once; also
  // when the daemon refuses this rank after a reconnect.
  std::function<void(const std::string& why)> abort;
  // A Welcome with a higher recovery has come.
  std::function<void(const v1::RankWelcome& welcome)> recover;
  // May come repeatedly with the same id.
  std::function<void(const v1::RankDirective& directive)> directive;
  // The answer to an Ask.
  std::function<void(const std::string& key, const std::string& value)> value;
  // Once a second or more often, also while the daemon is away.
  std::function<void()> tick;
};

class RankLink final : public collective::RendezvousStore {
 public:
  // Sends Hello and waits for Welcome. PermissionDenied: the daemon refuses.
  // AlreadyExists: another process has joined as this rank and lives.
  // DeadlineExceeded: no answer came by `deadline`.
  static StatusOr<std::unique_ptr<RankLink>> Connect(
      RankIdentity identity, RankLinkCallbacks callbacks, MonoTime deadline);
  // Tries for 0.2 s to hand over what is queued, then closes.
  ~RankLink() override;

  const RankKey& key() const;
  // The first Welcome, or that of the newest recovery.
  v1::RankWelcome welcome() const;

  // RendezvousStore. Aborted once the generation is over.
  Status Put(const std::string& key, std::string_view value) override;
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline) override;
  // As Get, but returns at once: the value goes to the callback. A key is for
  // one of them.
  void Ask(const std::string& key);
  // Repeats neither the Put nor the Ask of `key` any more.
  void Forget(const std::string& key);

  // `recovery` formed the communicator (0: none). Dropped where there is a
  // newer one. `elastic`: this rank can train while others are away.
  void SendJoined(uint32_t recovery, bool recoverable, bool elastic = false);
  // Waits for a recovery above `above`, takes the newest one and returns it:
  // the rendezvous is that one's from now on. Aborted once the generation is
  // over.
  StatusOr<uint32_t> WaitForRecovery(uint32_t above, MonoTime deadline);
  // Aborted once the generation is over.
  Status WaitForGo(MonoTime deadline);

  // Queued. Texts are cut to 4096 bytes and made valid UTF-8.
  void Report(const v1::RankReport& report);
  // Waits until all that was queued has been handed to the kernel.
  Status Flush(MonoTime deadline);

  bool connected() const;

 private:
  class Impl;
  explicit RankLink(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_CLIENT_H_
