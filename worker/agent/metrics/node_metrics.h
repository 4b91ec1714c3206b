// /metrics/node: this host under node_exporter's names, for sites without it.
#ifndef LOCKSTEP_WORKER_AGENT_METRICS_NODE_METRICS_H_
#define LOCKSTEP_WORKER_AGENT_METRICS_NODE_METRICS_H_

#include <prometheus/collectable.h>

#include <string>
#include <vector>

namespace lockstep::worker::agent {

// Reads /proc, /sys and file systems on local disks at each request. Safe from
// any thread.
class NodeMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_METRICS_NODE_METRICS_H_
