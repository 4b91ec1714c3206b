#include "server/metrics/session_metrics.h"

#include "server/metrics/metric_families.h"

namespace lockstep::server {

std::vector<prometheus::MetricFamily> SessionMetrics::Collect() const {
  MetricFamilies out;
  for (const SessionFigures& kind : figures_()) {
    out.Gauge("lockstep_sessions_open",
              "Open sessions in ranks by kind: command, terminal, port, "
              "profile.",
              static_cast<double>(kind.open), {{"kind", kind.kind}});
    for (const auto& [result, count] : kind.ended) {
      out.Counter("lockstep_sessions_total",
                  "Sessions in ranks that have ended, by kind and result: "
                  "ended, by themselves; client_gone; refused; broken, the "
                  "node did not answer or its connection broke.",
                  static_cast<double>(count),
                  {{"kind", kind.kind}, {"result", result}});
    }
  }
  return out.Take();
}

}  // namespace lockstep::server
