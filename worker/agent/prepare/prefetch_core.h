// Decides what a worker daemon prefetches for waiting jobs. Pure: no I/O, no
// lock, no clock. Thread-compatible: the daemon's event loop owns it.
//
// Level-triggered: the coordinator sends the full list of wanted items, and
// each change is reported back. One image and one package are fetched at a
// time. A failed fetch is retried with growing delays. A fetch that is no
// longer wanted is cancelled after a while: the job may have just been placed
// here, and its gang then joins the fetch.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PREFETCH_CORE_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PREFETCH_CORE_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/assignment.h"

namespace lockstep {

struct PrefetchTimes {
  // After a failure; doubled each time.
  Duration first = std::chrono::seconds(10);
  Duration most = std::chrono::minutes(10);
  Duration linger = std::chrono::seconds(10);
};

class PrefetchCore {
 public:
  explicit PrefetchCore(PrefetchTimes times = {}) : times_(times) {}

  // Keeps the state of items that are still wanted.
  void Want(const Prefetch& wanted, MonoTime now);

  // Returns the key of an item, for images and packages.
  static std::string KeyOf(const ImageContent& image);
  static std::string KeyOf(const Package& package) { return package.digest; }

  // The next to be fetched, in the coordinator's order; nullopt: none is due,
  // or one is under way. It is under way then.
  std::optional<ImageContent> BeginImage(MonoTime now);
  std::optional<Package> BeginPackage(MonoTime now);

  // How a fetch went. Nothing is kept of an item that is not wanted any more.
  // Cancelled: the daemon ended it.
  struct Result {
    Status status;
    std::optional<ImageContent> content;  // Of an image.
    bool fetched = false;
    Duration duration{};
  };
  void OnDone(const std::string& key, Result result, MonoTime now);

  // Under way, and not wanted for a while.
  bool IsUnwanted(const std::string& key, MonoTime now) const;
  bool Wants(const std::string& key) const;
  // When something is due next; nullopt: nothing will be by time alone.
  std::optional<MonoTime> NextDeadline() const;
  std::vector<Prefetched> Report() const;

 private:
  struct Item {
    Prefetched status;
    std::optional<Package> package;
    bool wanted = true;
    bool under_way = false;
    MonoTime unwanted_since{};
    MonoTime next_try{};
    Duration backoff{};
  };

  Item* Find(const std::string& key);
  const Item* Find(const std::string& key) const;
  static std::string KeyOf(const Item& item);
  Item* Begin(bool image, MonoTime now);

  const PrefetchTimes times_;
  std::vector<Item> items_;  // In the coordinator's order.
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREFETCH_CORE_H_
