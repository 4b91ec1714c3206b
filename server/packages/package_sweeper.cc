#include "server/packages/package_sweeper.h"

#include <utility>
#include <vector>

#include "common/base/logging.h"

namespace lockstep::server {

size_t SweepPackages(const PackageSweeperOptions& options, PackageStore* store,
                     WallTime now) {
  const WallTime limit = now - options.max_idle;
  const std::vector<std::string> unused = store->UnusedSince(limit);
  if (unused.empty()) return 0;
  // Read after the listing: a new job uses its packages before it is stored, so
  // they are no longer unused.
  const std::set<std::string> needed = options.needed();
  const uint64_t before = store->Stats().removed;
  for (const std::string& digest : unused) {
    if (!needed.contains(digest)) store->Remove(digest, limit);
  }
  return store->Stats().removed - before;
}

PackageSweeper::PackageSweeper(PackageSweeperOptions options,
                               PackageStore* store, const Clock* clock)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      thread_(options_.interval, [this] { Sweep(); }) {}

void PackageSweeper::Sweep() {
  if (const size_t gone = SweepPackages(options_, store_, clock_->Now().wall)) {
    LOG_INFO("removed {} packages that no job needs", gone);
  }
}

}  // namespace lockstep::server
