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
  Impl(RankIdentity identity, RankLinkCallbacks callbacks, Fd wake)
      : identity_(std::move(identity)),
        callbacks_(std::move(callbacks)),
        wake_(std::move(wake)) {}
  ~Impl();

  void Start();
  Status WaitForWelcome(MonoTime deadline);

  Status Put(const std::string& key, std::string_view value);
  StatusOr<std::string> Get(const std::string& key, MonoTime deadline);
  void Ask(const std::string& key);
  void Forget(const std::string& key);
  void SendJoined();
  Status WaitForGo(MonoTime deadline);
  void Report(const v1::RankReport& report);
  Status Flush(MonoTime deadline);
  bool connected();

  const RankIdentity& identity() const { return identity_; }
  // Constant once WaitForWelcome returned OK.
  const v1::RankWelcome& welcome() const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return *welcome_;
  }

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
  void OnWelcome(const v1::RankWelcome& welcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True the first time.
  bool Over(Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueMessage(const v1::RankMessage& message, bool repeated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void QueueLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();
  void Sleep(int fd, short events, Duration timeout);

  const RankIdentity identity_;
  const RankLinkCallbacks callbacks_;
  const Fd wake_;  // eventfd: the thread has something to do.
  // The thread's own; connected_ shows it to others.
  Fd fd_;

  Mutex mu_;
  CondVar changed_;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;  // Welcomed on this socket.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  MonoTime stop_at_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::RankWelcome> welcome_ ABSL_GUARDED_BY(mu_);
  // Why no wait can succeed any more; OK while one may.
  Status over_ ABSL_GUARDED_BY(mu_);
  std::string connect_error_ ABSL_GUARDED_BY(mu_);

  std::deque<Packet> out_ ABSL_GUARDED_BY(mu_);
  LinkState state_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_CLIENT_IMPL_H_
