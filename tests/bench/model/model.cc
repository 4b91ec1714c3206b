#include "tests/bench/model/model.h"

#include <algorithm>
#include <cmath>

namespace lockstep::model {
namespace {

// Rounds of doubling until `ranks` are reached.
double Rounds(int ranks) { return std::ceil(std::log2(std::max(1, ranks))); }

// Each rank sends to the next; between hosts one pair of ranks uses each line.
double Ring(int ranks, const Link& link, double bytes) {
  if (ranks < 2) return 0;
  return 2.0 * (ranks - 1) * (link.alpha + bytes / ranks * link.beta);
}

// For other numbers than powers of two, one more exchange of all bytes, there
// and back.
double Halving(int ranks, const Link& link, double bytes) {
  if (ranks < 2) return 0;
  const int group = 1 << static_cast<int>(std::floor(std::log2(ranks)));
  double seconds = 2 * Rounds(group) * link.alpha +
                   2.0 * (group - 1) / group * bytes * link.beta;
  if (group != ranks) seconds += 2 * (link.alpha + bytes * link.beta);
  return seconds;
}

double Tree(const Cluster& c, double bytes) {
  return 2 * (Rounds(c.gpus_per_host) * (c.intra.alpha + bytes * c.intra.beta) +
              Rounds(c.hosts) * (c.inter.alpha + bytes * c.inter.beta));
}

double HalvingOverAll(const Cluster& c, double bytes) {
  if (c.hosts == 1) return Halving(c.gpus_per_host, c.intra, bytes);
  if (c.gpus_per_host == 1) return Halving(c.hosts, c.inter, bytes);
  // Farthest first: while it is between hosts, all ranks of one share its line.
  const double shared = c.gpus_per_host * c.inter.beta;
  return Halving(c.hosts, {c.inter.alpha, shared}, bytes) +
         Halving(c.gpus_per_host, c.intra, bytes / c.hosts);
}

double Hierarchical(const Cluster& c, double bytes) {
  // In shared memory or by direct copies: a rank gets to each other one once
  // on the way there, and once on the way back.
  const double within = Ring(c.gpus_per_host, c.intra, bytes);
  // The slices of all ranks of a host go through its line at the same time.
  return within + std::min(Ring(c.hosts, c.inter, bytes),
                           Halving(c.hosts, c.inter, bytes));
}

}  // namespace

std::string_view Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kHalving:
      return "halving";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kHierarchical:
      return "hierarchical";
  }
  return "unknown";
}

double AllReduceSeconds(Algorithm algorithm, const Cluster& cluster,
                        double bytes) {
  if (cluster.ranks() < 2) return 0;
  switch (algorithm) {
    case Algorithm::kRing:
      return Ring(cluster.ranks(),
                  cluster.hosts > 1 ? cluster.inter : cluster.intra, bytes);
    case Algorithm::kHalving:
      return HalvingOverAll(cluster, bytes);
    case Algorithm::kTree:
      return Tree(cluster, bytes);
    case Algorithm::kHierarchical:
      return Hierarchical(cluster, bytes);
  }
  return 0;
}

Algorithm BestAlgorithm(const Cluster& cluster, double bytes) {
  return *std::min_element(std::begin(kAlgorithms), std::end(kAlgorithms),
                           [&](Algorithm a, Algorithm b) {
                             return AllReduceSeconds(a, cluster, bytes) <
                                    AllReduceSeconds(b, cluster, bytes);
                           });
}

std::vector<uint64_t> Buckets(const Training& training) {
  const BucketSizes& sizes = training.buckets;
  std::vector<uint64_t> buckets;
  uint64_t left = training.gradient_bytes;
  while (left > 0) {
    const uint64_t room = buckets.empty() ? sizes.first : sizes.bucket;
    buckets.push_back(std::min(left, std::max<uint64_t>(1, room)));
    left -= buckets.back();
  }
  const uint64_t last = sizes.last;
  if (last > 0 && !buckets.empty() && buckets.back() > last) {
    buckets.back() -= last;
    buckets.push_back(last);
  }
  return buckets;
}

Step PredictStep(const Cluster& cluster, const Training& training) {
  Step step;
  step.compute = training.compute_seconds;
  const double backward = training.compute_seconds * training.backward_share;
  const double total = static_cast<double>(training.gradient_bytes);
  double filled = 0;
  double end = 0;
  double largest = 0;
  for (const uint64_t bucket : Buckets(training)) {
    const double bytes = static_cast<double>(bucket);
    filled += bytes;
    const double ready =
        training.compute_seconds - backward + backward * filled / total;
    const Algorithm best = BestAlgorithm(cluster, bytes);
    const double seconds = AllReduceSeconds(best, cluster, bytes);
    end = std::max(end, ready) + seconds;
    step.busy += seconds;
    if (bytes > largest) {
      largest = bytes;
      step.algorithm = best;
    }
  }
  step.exposed = std::max(0.0, end - step.compute);
  return step;
}

StatusOr<Link> LinkOf(double small_seconds, double large_seconds,
                      double bytes) {
  if (!(small_seconds > 0) || !(large_seconds > small_seconds) ||
      !(bytes > 0)) {
    return InvalidArgument(
        "an all-reduce of {} bytes took {} s and one of none {} s: no line "
        "is like that",
        bytes, large_seconds, small_seconds);
  }
  // Two ranks: 2 alpha + bytes beta, by each of the algorithms.
  return Link{small_seconds / 2, (large_seconds - small_seconds) / bytes};
}

}  // namespace lockstep::model
