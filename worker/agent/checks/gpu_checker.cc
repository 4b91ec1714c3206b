#include "worker/agent/checks/gpu_checker.h"

#include <unistd.h>

#include <utility>

#include "common/base/file.h"
#include "common/base/logging.h"

namespace lockstep::worker::agent {
namespace {

// The coordinator has fewer under way on one node.
constexpr size_t kMostRuns = 64;
constexpr Duration kDefaultTime = std::chrono::seconds(60);

}  // namespace

StatusOr<std::string> FindGpuCheck(const std::string& flag,
                                   const std::string& shim) {
  if (flag == "none") return std::string();
  if (flag == "auto") {
    std::string path =
        JoinPath(shim.substr(0, shim.rfind('/')), "lockstep-gpu-check");
    return access(path.c_str(), X_OK) == 0 ? path : std::string();
  }
  if (!flag.starts_with('/') || access(flag.c_str(), X_OK) != 0) {
    return InvalidArgument(
        "--gpu-check {}: is no program: give the absolute path of "
        "lockstep-gpu-check, auto or none",
        flag);
  }
  return flag;
}

GpuChecker::~GpuChecker() { Cancel(); }

void GpuChecker::Cancel() {
  for (auto& [number, run] : runs_) run->cancelled = true;
}

StatusOr<GpuCheckPlan> GpuChecker::PlanOf(const GpuCheckOrder& order) const {
  const NodeInfo& node = parts_.setup->node;
  if (parts_.program.empty()) {
    return Unimplemented("this daemon has no lockstep-gpu-check");
  }
  if (order.gpus.empty() || runs_.size() >= kMostRuns) {
    return InvalidArgument("a check of {} GPUs, {} are under way",
                           order.gpus.size(), runs_.size());
  }
  const std::map<int32_t, JobName> held = parts_.held();
  const auto target = [&](int32_t index) -> StatusOr<GpuCheckTarget> {
    if (const auto holder = held.find(index); holder != held.end()) {
      return FailedPrecondition("a rank of job {} holds GPU {}", holder->second,
                                index);
    }
    for (const Gpu& gpu : node.gpus) {
      if (gpu.index == index) return GpuCheckTarget{index, gpu.uuid};
    }
    return InvalidArgument("this node offers no GPU {}", index);
  };
  GpuCheckPlan plan;
  plan.program = parts_.program;
  for (const auto& [name, value] : parts_.setup->environment) {
    plan.environment.push_back(name + "=" + value);
  }
  // NCCL's sockets are for its own process, and none is for others.
  plan.environment.push_back("NCCL_SOCKET_IFNAME=lo");
  plan.environment.push_back("NCCL_RAS_ENABLE=0");
  plan.within = order.within > Duration{} ? order.within : kDefaultTime;
  for (const int32_t index : order.gpus) {
    LOCKSTEP_ASSIGN_OR_RETURN(GpuCheckTarget gpu, target(index));
    plan.gpus.push_back(std::move(gpu));
  }
  if (order.partner) {
    LOCKSTEP_ASSIGN_OR_RETURN(plan.partner, target(*order.partner));
  }
  return plan;
}

void GpuChecker::OnOrder(uint64_t stream, const GpuCheckOrder& order) {
  auto plan = PlanOf(order);
  if (!plan.ok()) {
    return parts_.answer(stream, {order.id, plan.status()});
  }
  const uint64_t number = next_++;
  Run* const run = (runs_[number] = std::make_unique<Run>()).get();
  LOG_INFO("a check of {} GPUs begins", order.gpus.size());
  const auto done =
      lifetime_.Guard([this, stream, number](const GpuCheckAnswer& answer) {
        if (!runs_.at(number)->cancelled) parts_.answer(stream, answer);
        runs_.erase(number);
      });
  run->thread.Add(
      [loop = parts_.loop, run, done, id = order.id, plan = *std::move(plan)] {
        GpuCheckAnswer answer = RunChecks(plan, run->cancelled);
        answer.id = id;
        loop->Post([done, answer] { done(answer); });
      });
}

}  // namespace lockstep::worker::agent
