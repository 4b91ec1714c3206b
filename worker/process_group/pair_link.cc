#include "worker/process_group/pair_link.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/lost_peers.h"
#include "worker/process_group/deadline.h"

namespace lockstep::worker::process_group {

using collective::Communicator;

// The group's store, with a prefix for this pair. An abort ends its waits.
class PairLink::Store final : public collective::RendezvousStore {
 public:
  Store(collective::RendezvousStore* store, int from, int to)
      : store_(*store), prefix_(fmt::format("pair/{}/{}/", from, to)) {}

  Status Put(const std::string& key, std::string_view value) override {
    return store_.Put(prefix_ + key, value);
  }

  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    for (;;) {
      if (aborted_.load()) return Aborted("the link was aborted");
      const MonoTime until = std::min(deadline, After(kAbortWithin));
      auto value = store_.Get(prefix_ + key, until);
      if (absl::IsDeadlineExceeded(value.status()) &&
          MonotonicNow() < deadline) {
        continue;
      }
      return value;
    }
  }

  void Abort() { aborted_.store(true); }

 private:
  static constexpr Duration kAbortWithin = std::chrono::milliseconds(30);

  collective::RendezvousStore& store_;
  const std::string prefix_;
  std::atomic<bool> aborted_{false};
};

PairLink::PairLink(const GroupOptions& options, int from, int to)
    : options_(options),
      from_(from),
      to_(to),
      store_(std::make_unique<Store>(options_.store.get(), from, to)) {}

PairLink::~PairLink() = default;

Status PairLink::Move(void* data, size_t bytes, MonoTime deadline) {
  Communicator* communicator = nullptr;
  {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(aborted_);
    communicator = communicator_.get();
  }
  if (communicator == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(Form(deadline));
    MutexLock lock(&mu_);
    communicator = communicator_.get();
  }
  const Status status = communicator->RunNow(
      {.kind = collective::CollectiveKind::kBroadcast,
       .slice = collective::AnySlice(any_, data, bytes,
                                     collective::DataType::kUint8)},
      deadline);
  return Translate(status);
}

Status PairLink::Form(MonoTime deadline) {
  collective::CommunicatorOptions options;
  options.backend = options_.backend;
  options.rank = options_.rank == from_ ? 0 : 1;
  options.size = 2;
  options.label = options_.label;
  options.bind_address = options_.bind_address;
  options.operation_timeout = kForever;
  options.forming_deadline = deadline;
  options.key = options_.key;
  options.host = options_.host;
  options.rendezvous = store_.get();
  auto formed = FormCommunicator(options);
  if (formed.ok()) {
    const auto any = (*formed)->AnyMemory();
    if (any.ok()) {
      any_ = *any;
    } else {
      formed = any.status();
    }
  }
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(aborted_);
  if (!formed.ok()) return Translate(formed.status());
  communicator_ = *std::move(formed);
  return OkStatus();
}

void PairLink::Abort(const std::string& reason) {
  MutexLock lock(&mu_);
  if (!aborted_.ok()) return;
  aborted_ = Aborted("{}: {}", options_.label, reason);
  store_->Abort();
  if (communicator_ != nullptr) communicator_->Abort(reason);
}

Status PairLink::Translate(const Status& status) const {
  if (status.ok() || absl::IsAborted(status)) return status;
  const std::vector<int> ranks = {from_, to_};
  Status translated(status.code(), collective::hierarchical::TranslateRanks(
                                       Message(status), ranks, options_.size));
  std::vector<int> lost;
  for (const int rank : collective::LostPeersOf(status)) {
    if (rank == 0 || rank == 1) lost.push_back(ranks[rank]);
  }
  translated = collective::WithLostPeers(std::move(translated), lost);
  const std::string reason = ReasonOf(status);
  return reason.empty() ? translated : WithReason(translated, reason);
}

}  // namespace lockstep::worker::process_group
