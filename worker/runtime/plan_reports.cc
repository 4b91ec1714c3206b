#include "worker/runtime/plan_reports.h"

#include <string_view>
#include <utility>

namespace lockstep::worker::runtime {
namespace {

// "shm: each of ..." after "backend shm: ..." says it twice.
std::string_view WithoutName(std::string_view plan, std::string_view backend) {
  if (plan.starts_with(backend) && plan.substr(backend.size(), 2) == ": ") {
    plan.remove_prefix(backend.size() + 2);
  }
  return plan;
}

}  // namespace

std::string PlanReports::TakeChoice(
    const collective::Communicator* communicator, const std::string& buckets) {
  std::string choice = std::exchange(choice_, "");
  if (choice.empty()) return choice;
  if (communicator != nullptr) {
    const std::string_view backend = communicator->backend();
    const std::string plan = communicator->Plan();
    const std::string_view before = WithoutName(formed_plan_, backend);
    if (plan != formed_plan_ && choice.ends_with(before)) {
      choice.resize(choice.size() - before.size());
      choice += WithoutName(plan, backend);
    }
  }
  if (!buckets.empty()) choice += "; " + buckets;
  return choice;
}

bool PlanReports::Changes(const std::string& text) {
  if (text.empty() || text == reported_plan_) return false;
  reported_plan_ = text;
  return true;
}

}  // namespace lockstep::worker::runtime
