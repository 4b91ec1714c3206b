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

namespace lockstep::worker::agent {

struct PrefetchTimes {
  // Delay after a failure; doubled each time.
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

  // Starts the next fetch in the coordinator's order; nullopt if none is due or
  // one is running.
  std::optional<ImageContent> BeginImage(MonoTime now);
  std::optional<Package> BeginPackage(MonoTime now);

  // Result of a fetch. Dropped if the item is no longer wanted. Cancelled: the
  // daemon cancelled it.
  struct Result {
    Status status;
    std::optional<ImageContent> content;  // Of an image.
    bool fetched = false;
    Duration duration{};
  };
  void OnDone(const std::string& key, Result result, MonoTime now);

  // The fetch is running, and unwanted for a while.
  bool IsUnwanted(const std::string& key, MonoTime now) const;
  bool Wants(const std::string& key) const;
  // Returns when a fetch is due next; nullopt if time alone makes none due.
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

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREFETCH_CORE_H_
