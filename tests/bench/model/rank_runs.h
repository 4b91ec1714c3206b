// Ranks as processes on hosts that are network namespaces: what
// step_model_check (check.cc) runs.
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_RANK_RUNS_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_RANK_RUNS_H_

#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::model {

// Of measured / predicted: outside them a prediction is off.
inline constexpr double kLeastRatio = 0.8;
inline constexpr double kMostRatio = 1.25;
inline constexpr Duration kPatience = std::chrono::seconds(20);

struct Shape {
  int hosts = 1;
  int ranks = 1;  // of each

  int size() const { return hosts * ranks; }
};

// Runs `fn` on every rank of `shape` with the communicator of all, which
// backend "auto" formed. Host i is namespace PREFIXi with address 10.77.0.i+1;
// for prefix "-" all are on the loopback. The first error, of any rank's.
Status RunRanks(const std::string& prefix, Shape shape,
                const std::function<Status(Communicator* communicator)>& fn);

double Median(std::vector<double> values);

// A T that this process and those that it forks share; it stays.
template <typename T>
StatusOr<T*> MapShared() {
  void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mapping memory");
  return new (memory) T{};
}

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_RANK_RUNS_H_
