// Keeps packages while a job needs them, and for a while after their last use.
#ifndef LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_
#define LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_

#include <functional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/base/repeating_thread.h"
#include "server/packages/package_store.h"

namespace lockstep::server {

struct PackageSweeperOptions {
  // A package that no job needs is removed after this time without use. Clients
  // upload before they submit.
  Duration max_idle = std::chrono::hours(1);
  Duration interval = std::chrono::minutes(5);
  // Digests of all unfinished jobs. Called from any thread.
  std::function<std::set<std::string>()> needed;
};

// Sweeps once and returns the number of removed packages.
size_t SweepPackages(const PackageSweeperOptions& options, PackageStore* store,
                     WallTime now);

// Sweeps at once and then at each interval, on its own thread.
class PackageSweeper {
 public:
  // `store` and `clock` outlive this object.
  PackageSweeper(PackageSweeperOptions options, PackageStore* store,
                 const Clock* clock);

 private:
  void Sweep();

  const PackageSweeperOptions options_;
  PackageStore* const store_;
  const Clock* const clock_;
  // The last member, so that it stops before the others are destroyed.
  RepeatingThread thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_
