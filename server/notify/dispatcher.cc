#include "server/notify/dispatcher.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/base/mutex.h"

namespace lockstep::server {
namespace {

// Jobs that ended before the coordinator stopped, and were not looked at.
constexpr Duration kFirstLinger = std::chrono::hours(24);
constexpr Duration kLinger = std::chrono::minutes(15);

}  // namespace

// One receiver's outbox, and the thread that empties it.
class Dispatcher::Sender {
 public:
  Sender(const DispatcherOptions* options, const Receiver& receiver,
         FileSystem* files, const Clock* clock)
      : options_(*options),
        name_(receiver.name),
        clock_(*clock),
        receiver_(receiver),
        outbox_(files, JoinPath(options->dir, receiver.name), options->limits) {
  }

  const std::string& name() const { return name_; }
  // Its settings; the name stays. A delivery that runs has those of before.
  void Set(const Receiver& receiver) {
    MutexLock lock(&mu_);
    receiver_ = receiver;
    changed_ = true;
    outbox_.TryAtOnce();
  }

  Status Open() {
    MutexLock lock(&mu_);
    return outbox_.Load();
  }
  void Run() {
    thread_ = std::make_unique<RepeatingThread>(options_.interval,
                                                [this] { SendAll(); });
  }

  // The delivery that runs ends soon.
  void Stop() { stop_ = true; }
  // Waits for that.
  void End() { thread_.reset(); }

  Status Add(const Notification& notification) {
    MutexLock lock(&mu_);
    if (!Wants(receiver_, notification)) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t dropped, outbox_.Add(notification));
    stats_.dropped += dropped;
    return OkStatus();
  }

  ReceiverStats Stats() const {
    MutexLock lock(&mu_);
    ReceiverStats stats = stats_;
    stats.name = name_;
    stats.waiting = outbox_.size();
    stats.oldest = outbox_.oldest();
    return stats;
  }

 private:
  void SendAll() {
    while (!stop_) {
      std::optional<Notification> next;
      Receiver receiver;
      {
        MutexLock lock(&mu_);
        receiver = receiver_;
        changed_ = false;
        size_t dropped = 0;
        next = outbox_.Next(clock_.Now(), &dropped);
        stats_.dropped += dropped;
      }
      if (!next) return;
      const Status status =
          options_.deliver(receiver, *next, clock_.Now().wall, stop_);
      if (!Took(*next, status)) return;
    }
  }

  // Returns false if the receiver is to be tried again later.
  bool Took(const Notification& notification, const Status& status) {
    MutexLock lock(&mu_);
    if (status.ok()) {
      ++stats_.sent;
      outbox_.Remove(notification);
      return true;
    }
    ++stats_.failed;
    // Refused with the settings of before: it is tried with the new ones.
    if (std::exchange(changed_, false)) return true;
    const bool final = status.code() == StatusCode::kFailedPrecondition;
    LOG_WARN("receiver {}: \"{}\" is not taken{}: {}", name_,
             TitleOf(notification), final ? " and is given up" : "",
             Message(status));
    if (final) {
      ++stats_.dropped;
      outbox_.Remove(notification);
    } else {
      outbox_.Failed(clock_.Now().mono);
    }
    return final;
  }

  const DispatcherOptions& options_;
  const std::string name_;
  const Clock& clock_;
  std::atomic<bool> stop_{false};
  mutable Mutex mu_;
  Receiver receiver_ ABSL_GUARDED_BY(mu_);
  // Since the delivery that runs began.
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  Outbox outbox_ ABSL_GUARDED_BY(mu_);
  ReceiverStats stats_ ABSL_GUARDED_BY(mu_);
  // Last: it uses the others.
  std::unique_ptr<RepeatingThread> thread_;
};

StatusOr<std::unique_ptr<Dispatcher>> Dispatcher::Start(
    DispatcherOptions options, FileSystem* files, const Clock* clock) {
  std::unique_ptr<Dispatcher> dispatcher(
      new Dispatcher(std::move(options), files, clock));
  LOCKSTEP_RETURN_IF_ERROR(dispatcher->Open());
  return dispatcher;
}

Dispatcher::Dispatcher(DispatcherOptions options, FileSystem* files,
                       const Clock* clock)
    : options_(std::move(options)),
      files_(files),
      clock_(clock),
      rules_(options_.cluster, options_.receivers.url) {}

Dispatcher::~Dispatcher() {
  thread_.reset();
  for (const auto& sender : senders()) sender->Stop();
}

Dispatcher::Senders Dispatcher::senders() const {
  MutexLock lock(&mu_);
  return senders_;
}

Status Dispatcher::SetReceivers(const Receivers& receivers) {
  const Senders before = senders();
  Senders after;
  Senders added;
  for (const Receiver& receiver : receivers.all) {
    const auto known = std::find_if(
        before.begin(), before.end(),
        [&](const auto& sender) { return sender->name() == receiver.name; });
    if (known != before.end()) {
      after.push_back(*known);
      continue;
    }
    added.push_back(
        std::make_shared<Sender>(&options_, receiver, files_, clock_));
    after.push_back(added.back());
    if (const Status opened = added.back()->Open(); !opened.ok()) {
      return Annotate(opened, "receiver " + receiver.name);
    }
  }
  for (size_t i = 0; i < after.size(); ++i) after[i]->Set(receivers.all[i]);
  for (const auto& sender : added) sender->Run();
  MutexLock lock(&mu_);
  url_ = receivers.url;
  senders_ = after;
  for (const auto& sender : before) {
    if (std::find(after.begin(), after.end(), sender) != after.end()) continue;
    sender->Stop();
    removed_.push_back(sender);
  }
  return OkStatus();
}

Status Dispatcher::Open() {
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(options_.dir, 0700));
  const auto seen = files_->Read(JoinPath(options_.dir, "seen"), 64);
  int64_t nanos = 0;
  if (seen.ok()) nanos = std::strtoll(seen->c_str(), nullptr, 10);
  seen_ = nanos > 0 ? FromUnixNanos(nanos) : clock_->Now().wall;
  // The first time: what happened before is no news, and what happens from now
  // on is, even if the coordinator is killed before it looks.
  if (nanos <= 0) LOCKSTEP_RETURN_IF_ERROR(WriteSeen());
  LOCKSTEP_RETURN_IF_ERROR(SetReceivers(options_.receivers));
  thread_ =
      std::make_unique<RepeatingThread>(options_.interval, [this] { Look(); });
  return OkStatus();
}

Status Dispatcher::WriteSeen() const {
  return files_->WriteAtomic(JoinPath(options_.dir, "seen"),
                             fmt::format("{}\n", ToUnixNanos(seen_)), 0600);
}

void Dispatcher::Look() {
  const CoordinatorView view = options_.view(fresh_ ? kFirstLinger : kLinger);
  Senders senders;
  Senders removed;
  {
    MutexLock lock(&mu_);
    rules_.SetUrl(url_);
    senders = senders_;
    removed.swap(removed_);
  }
  for (const auto& sender : removed) sender->End();
  const std::vector<Notification> news = rules_.Since(seen_, view);
  for (const Notification& notification : news) {
    for (const auto& sender : senders) {
      const Status added = sender->Add(notification);
      if (added.ok()) continue;
      // The disk is full, say. The next look finds the same.
      LOG_ERROR("notifications wait: {}", Message(added));
      return;
    }
  }
  fresh_ = false;
  seen_ = std::max(seen_, view.time.wall);
  // Without news the old time leads to the same.
  if (news.empty()) return;
  if (const Status written = WriteSeen(); !written.ok()) {
    LOG_WARN("after a restart notifications may be repeated: {}",
             Message(written));
  }
}

std::vector<ReceiverStats> Dispatcher::Stats() const {
  std::vector<ReceiverStats> stats;
  for (const auto& sender : senders()) stats.push_back(sender->Stats());
  return stats;
}

}  // namespace lockstep::server
