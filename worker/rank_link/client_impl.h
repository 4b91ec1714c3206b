// The implementation of RankLink. The link's thread is in client_thread.cc,
// the calls that wait are in client.cc.
#ifndef LOCKSTEP_WORKER_RANK_LINK_CLIENT_IMPL_H_
#define LOCKSTEP_WORKER_RANK_LINK_CLIENT_IMPL_H_

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/rank_link/client.h"
#include "worker/rank_link/link_state.h"

namespace lockstep::worker::rank_link {

// Whether a link that is over for this reason is not welcomed any more.
inline bool IsRefusal(const Status& over) {
  return over.code() == StatusCode::kPermissionDenied ||
         over.code() == StatusCode::kAlreadyExists;
}

class RankLink::Impl {
 public:
  Impl(RankIdentity own, RankLinkCallbacks callbacks, Fd wake)
      : identity(std::move(own)),
        callbacks_(std::move(callbacks)),
        wake_(std::move(wake)) {}
  ~Impl();

  void Start();
  Status WaitForWelcome(MonoTime deadline);

  Status Put(const std::string& key, std::string_view value);
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline);
  void Ask(const std::string& key);
  void Forget(const std::string& key);
  void SendJoined(uint32_t recovery, bool recoverable, bool elastic);
  StatusOr<uint32_t> WaitForRecovery(uint32_t above, MonoTime deadline);
  Status WaitForGo(MonoTime deadline);
  void Report(const v1::RankReport& report);
  Status Flush(MonoTime deadline);
  bool connected();

  // After WaitForWelcome.
  v1::RankWelcome welcome() {
    MutexLock lock(&mu_);
    return *welcome_;
  }

  const RankIdentity identity;

 private:
  struct Packet {
    std::string bytes;
    // Made again after a reconnect.
    bool repeated = false;
  };

  void Loop();
  bool TryConnect();
  void Disconnect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: the connection is at its end.
  bool Receive();
  bool Send();
  void OnMessage(const v1::DaemonMessage& message);
  // True: the recovery is a new one.
  bool OnWelcome(const v1::RankWelcome& welcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why no rendezvous can succeed now; OK: it may.
  Status Closed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True the first time.
  bool Over(Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueMessage(const v1::RankMessage& message, bool repeated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();

  const RankLinkCallbacks callbacks_;
  const Fd wake_;  // eventfd: the thread has something to do.
  // The thread's own; connected_ shows it to others.
  Fd fd_;

  Mutex mu_;
  CondVar changed_;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;  // Welcomed on this socket.
  // The link is being destroyed, until then at the latest.
  std::optional<MonoTime> stop_at_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::RankWelcome> welcome_ ABSL_GUARDED_BY(mu_);
  // The recovery that the rank forms or has formed.
  uint32_t taken_recovery_ ABSL_GUARDED_BY(mu_) = 0;
  // Why no wait can succeed any more; OK while one may.
  Status over_ ABSL_GUARDED_BY(mu_);
  std::string connect_error_ ABSL_GUARDED_BY(mu_);

  std::deque<Packet> out_ ABSL_GUARDED_BY(mu_);
  LinkState state_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_CLIENT_IMPL_H_
