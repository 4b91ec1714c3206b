// Metrics of sessions in ranks: lockstep_sessions_*.
#ifndef LOCKSTEP_SERVER_METRICS_SESSION_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_SESSION_METRICS_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::server {

// Of one kind of session.
struct SessionFigures {
  std::string kind;
  int64_t open = 0;
  // By result.
  std::vector<std::pair<std::string, uint64_t>> ended;
};

// Thread-safe.
class SessionMetrics final : public prometheus::Collectable {
 public:
  // `figures` is called on other threads; what it uses outlives this object.
  explicit SessionMetrics(std::function<std::vector<SessionFigures>()> figures)
      : figures_(std::move(figures)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<std::vector<SessionFigures>()> figures_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_SESSION_METRICS_H_
