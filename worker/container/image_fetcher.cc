#include "worker/container/image_fetcher.h"

#include <system_error>
#include <utility>

namespace lockstep::worker::container {
namespace {

// Delay until a cancelled waiter is noticed.
constexpr Duration kLook = std::chrono::milliseconds(200);

}  // namespace

ImageFetcher::~ImageFetcher() {
  MutexLock lock(&mu_);
  closing_ = true;
  while (!fetches_.empty()) changed_.Wait(&mu_);
  JoinEnded();
}

void ImageFetcher::JoinEnded() {
  // They have nothing left to do.
  for (std::thread& thread : ended_) thread.join();
  ended_.clear();
}

void ImageFetcher::Run(const std::shared_ptr<ContainerEngine>& engine,
                       const std::shared_ptr<Fetch>& fetch,
                       const ImageContent& wanted, MonoTime deadline) {
  StatusOr<ImageHere> result = engine->EnsureImage(
      wanted, deadline, [this, fetch](const std::string& line) {
        MutexLock lock(&mu_);
        fetch->line = line;
        return fetch->users > 0 && !closing_;
      });
  MutexLock lock(&mu_);
  fetch->result = std::move(result);
  fetch->ended = true;
  ended_.push_back(std::move(fetch->thread));
  fetches_.erase(wanted.image);
  changed_.NotifyAll();
}

StatusOr<std::shared_ptr<ImageFetcher::Fetch>> ImageFetcher::Join(
    const std::shared_ptr<ContainerEngine>& engine, const ImageContent& wanted,
    MonoTime deadline, std::string* line) {
  JoinEnded();
  if (const auto it = fetches_.find(wanted.image); it != fetches_.end()) {
    *line = it->second->line;
    const ImageContent& other = it->second->wanted;
    if (other.id != wanted.id || other.digest != wanted.digest) return nullptr;
    ++it->second->users;
    return it->second;
  }
  auto fetch = std::make_shared<Fetch>();
  fetch->wanted = wanted;
  fetch->users = 1;
  fetch->deadline = deadline;
  try {
    // It waits for the lock before it touches `fetch`.
    fetch->thread = std::thread([this, engine, fetch, wanted, deadline] {
      Run(engine, fetch, wanted, deadline);
    });
  } catch (const std::system_error& error) {
    return Unavailable("the worker cannot start a thread to fetch {}: {}",
                       wanted.image, error.what());
  }
  fetches_[wanted.image] = fetch;
  return fetch;
}

StatusOr<ImageHere> ImageFetcher::Get(
    const std::shared_ptr<ContainerEngine>& engine, const ImageContent& wanted,
    MonoTime deadline, const Progress& progress) {
  std::shared_ptr<Fetch> fetch;
  for (;;) {
    std::string line;
    {
      MutexLock lock(&mu_);
      if (fetch == nullptr) {
        LOCKSTEP_ASSIGN_OR_RETURN(fetch, Join(engine, wanted, deadline, &line));
      }
      if (fetch != nullptr && !fetch->ended) line = fetch->line;
      if (fetch == nullptr || !fetch->ended) changed_.WaitFor(&mu_, kLook);
      if (fetch != nullptr && fetch->ended) {
        --fetch->users;
        const StatusCode code = fetch->result.status().code();
        // Other waiters may have had an earlier deadline.
        const bool early = code == StatusCode::kCancelled ||
                           (code == StatusCode::kDeadlineExceeded &&
                            MonotonicNow() >= fetch->deadline);
        if (!early || MonotonicNow() >= deadline || closing_)
          return fetch->result;
        fetch = nullptr;
      }
    }
    const bool late = MonotonicNow() >= deadline;
    if (!late && (!progress || progress(line))) continue;
    if (fetch != nullptr) {
      MutexLock lock(&mu_);
      --fetch->users;
    }
    if (late) {
      return DeadlineExceeded("the image {} took too long: {}", wanted.image,
                              line.empty() ? "no news" : line);
    }
    return Cancelled("cancelled fetching the image {}", wanted.image);
  }
}

}  // namespace lockstep::worker::container
