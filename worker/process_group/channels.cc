#include "worker/process_group/channels.h"

namespace lockstep::worker::process_group {

Status Channels::Push(std::shared_ptr<Work> work) {
  const int peer = work->request().root;
  const bool sends = work->request().collective == Collective::kSend;
  Channel* channel = nullptr;
  {
    MutexLock lock(&mu_);
    LOCKSTEP_RETURN_IF_ERROR(aborted_);
    std::unique_ptr<Channel>& slot = channels_[{peer, sends}];
    if (slot == nullptr) {
      slot = std::make_unique<Channel>(options_, peer, sends);
    }
    channel = slot.get();
  }
  return channel->Push(std::move(work));
}

void Channels::Free() {
  std::map<std::pair<int, bool>, std::unique_ptr<Channel>> channels;
  MutexLock lock(&mu_);
  channels.swap(channels_);
}

void Channels::Abort(const std::string& reason) {
  MutexLock lock(&mu_);
  if (aborted_.ok()) aborted_ = Aborted("{}: {}", options_.label, reason);
  for (const auto& [key, channel] : channels_) channel->Abort(reason);
}

}  // namespace lockstep::worker::process_group
