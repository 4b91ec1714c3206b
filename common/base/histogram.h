// Classic Prometheus histograms. All histograms of one kind of time use the
// same buckets, so that they can be added. Pure values.
#ifndef LOCKSTEP_COMMON_BASE_HISTOGRAM_H_
#define LOCKSTEP_COMMON_BASE_HISTOGRAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Seconds, each about sqrt(10) times the last.
// For calls, passes and commits: 100 us to 10 s.
inline constexpr double kShortBuckets[] = {
    0.0001, 0.000316, 0.001, 0.00316, 0.01, 0.0316, 0.1, 0.316, 1, 3.16, 10};
// For waits of users: 10 ms to 1 h.
inline constexpr double kLongBuckets[] = {0.01, 0.0316, 0.1, 0.316, 1,    3.16,
                                          10,   31.6,   100, 316,   1000, 3600};

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(double value) {
    value = std::max(value, 0.0);
    const auto bucket =
        std::lower_bound(bounds_.begin(), bounds_.end(), value) -
        bounds_.begin();
    ++counts_[static_cast<size_t>(bucket)];
    sum_ += value;
  }
  // The last bucket holds all larger values and has no bound.
  std::span<const double> bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::span<const double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_HISTOGRAM_H_
