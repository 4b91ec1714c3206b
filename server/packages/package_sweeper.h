// How long packages are kept: while a job needs them, and a while after
// somebody last asked for them.
#ifndef LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_
#define LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_

#include <functional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/base/repeating_thread.h"
#include "server/packages/package_store.h"

namespace lockstep {

struct PackageSweeperOptions {
  // What is needed by no job goes when nobody asked for it for so long: a
  // client uploads first and submits then.
  Duration max_idle = std::chrono::hours(1);
  Duration interval = std::chrono::minutes(5);
  // Digests of all jobs that have not ended. From any thread.
  std::function<std::set<std::string>()> needed;
};

// One sweep; returns how many went.
size_t SweepPackages(const PackageSweeperOptions& options, PackageStore* store,
                     WallTime now);

// Looks at once, and then each interval, on a thread of its own.
class PackageSweeper {
 public:
  // `store` and `clock` outlive it.
  PackageSweeper(PackageSweeperOptions options, PackageStore* store,
                 const Clock* clock);

 private:
  void Sweep();

  const PackageSweeperOptions options_;
  PackageStore* const store_;
  const Clock* const clock_;
  // The last member: it ends before what it works on.
  RepeatingThread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_PACKAGES_PACKAGE_SWEEPER_H_
