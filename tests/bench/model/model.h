// What a step of synchronous training takes on machines that are not here:
// the alpha-beta model. A message of n bytes takes alpha + n beta (Hockney,
// 1994); the collectives are those of Thakur, Rabenseifner and Gropp,
// "Optimization of Collective Communication Operations in MPICH" (2005). Pure.
//
// What it leaves out: contention between jobs and in the network's core (every
// host is taken to reach every other at its full rate), ranks that are late,
// the optimizer, input, and the time that reducing takes from computing.
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_MODEL_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_MODEL_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/bucket_plan.h"

namespace lockstep::model {

struct Link {
  double alpha = 0;  // seconds of a message of no bytes
  double beta = 0;   // seconds a byte, each direction
};

enum class Algorithm {
  kRing,          // over all ranks
  kHalving,       // recursive halving and doubling over all ranks
  kTree,          // to one rank and back, by a binomial tree
  kHierarchical,  // within hosts, slices between them, within hosts
};
std::string_view Name(Algorithm algorithm);
inline constexpr Algorithm kAlgorithms[] = {
    Algorithm::kRing, Algorithm::kHalving, Algorithm::kTree,
    Algorithm::kHierarchical};

struct Cluster {
  int hosts = 1;
  int gpus_per_host = 1;  // ranks
  Link intra;             // between the ranks of a host
  // Of a host's line, which its ranks share.
  Link inter;

  int ranks() const { return hosts * gpus_per_host; }
};

struct Training {
  double compute_seconds = 0;  // forward and backward of one step
  double backward_share = 2.0 / 3;
  uint64_t gradient_bytes = 0;
  BucketSizes buckets = SizesFor("hierarchical");
};

// One all-reduce of `bytes`.
double AllReduceSeconds(Algorithm algorithm, const Cluster& cluster,
                        double bytes);
// The quickest for these bytes.
Algorithm BestAlgorithm(const Cluster& cluster, double bytes);

// What PlanBuckets makes of tensors that are small beside buckets, the control
// word aside.
std::vector<uint64_t> Buckets(const Training& training);

struct Step {
  double compute = 0;
  double busy = 0;     // of all reductions, one after the other
  double exposed = 0;  // of them, what is not hidden behind the backward pass
  Algorithm algorithm = Algorithm::kRing;  // of the largest bucket

  double seconds() const { return compute + exposed; }
  // Of N times one rank's rate.
  double efficiency() const { return seconds() > 0 ? compute / seconds() : 1; }
};

// Gradients become ready evenly over the backward pass; bucket after bucket is
// reduced, each by the quickest algorithm, none before it is full.
Step PredictStep(const Cluster& cluster, const Training& training);

// From two measured all-reduces of two ranks: of next to nothing, and of
// `bytes`. InvalidArgument where the larger took no longer.
StatusOr<Link> LinkOf(double small_seconds, double large_seconds, double bytes);

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_MODEL_H_
