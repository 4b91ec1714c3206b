// Fetches each image once per node, for gangs in preparation and for
// prefetches.
//
// A fetch runs on a thread of its own and is cancelled when its last waiter
// leaves. Each name has at most one fetch at a time: a request for another
// content of the name waits for it. Safe from any thread.
#ifndef LOCKSTEP_WORKER_CONTAINER_IMAGE_FETCHER_H_
#define LOCKSTEP_WORKER_CONTAINER_IMAGE_FETCHER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "worker/container/container_engine.h"

namespace lockstep::worker::container {

class ImageFetcher {
 public:
  // Called with the progress from time to time, "" if it is unknown; returns
  // false to stop waiting.
  using Progress = std::function<bool(const std::string&)>;

  ImageFetcher() = default;
  // Cancels running fetches. REQUIRES: no waiters.
  ~ImageFetcher();

  // Like engine->EnsureImage, with one fetch for all callers. Also Unavailable
  // if no thread can start.
  StatusOr<ImageHere> Get(const std::shared_ptr<ContainerEngine>& engine,
                          const ImageContent& wanted, MonoTime deadline,
                          const Progress& progress) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Guarded by mu_.
  struct Fetch {
    ImageContent wanted;
    int users = 0;
    MonoTime deadline;
    bool ended = false;
    std::string line;
    StatusOr<ImageHere> result = Unavailable("it has not ended");
    std::thread thread;
  };

  // Returns a matching fetch, and starts it if none runs. Returns null while
  // another content of the name is being fetched; `*line` is then its progress.
  StatusOr<std::shared_ptr<Fetch>> Join(
      const std::shared_ptr<ContainerEngine>& engine,
      const ImageContent& wanted, MonoTime deadline, std::string* line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(const std::shared_ptr<ContainerEngine>& engine,
           const std::shared_ptr<Fetch>& fetch, const ImageContent& wanted,
           MonoTime deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  // By the image's name.
  std::map<std::string, std::shared_ptr<Fetch>> fetches_ ABSL_GUARDED_BY(mu_);
  // Threads of ended fetches, to be joined.
  std::vector<std::thread> ended_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_IMAGE_FETCHER_H_
