#include "server/core/bill.h"

#include <algorithm>

namespace lockstep::server {
namespace {

double GpuHour(const Prices& prices, const std::string& model) {
  double price = prices.gpu_hour;
  size_t longest = 0;
  for (const auto& [name, of_name] : prices.gpu_hours) {
    if (model.empty() || name.size() < longest ||
        !GpuModelMatches(name, model)) {
      continue;
    }
    longest = name.size();
    price = of_name;
  }
  return price;
}

std::string AskedType(const Job& job, TaskType type) {
  for (const RoleSpec& role : job.spec.roles) {
    if (role.type == type) return role.resources.gpu_type;
  }
  return "";
}

// GPU hours and their cost.
struct GpuUse {
  double hours = 0;
  double cost = 0;
};

void Add(const Job& job, const std::vector<TaskStatus>& tasks, Duration held,
         const Prices& prices, const GpuModelOf& model_of, GpuUse* use) {
  // Counts at least a moment for a very short attempt.
  const double hours = std::max(ToSeconds(held), 1e-3) / 3600;
  for (const TaskStatus& task : tasks) {
    for (const int32_t gpu : task.gpus) {
      std::string model = model_of ? model_of(task.node, gpu) : "";
      if (model.empty()) model = AskedType(job, task.type);
      use->hours += hours;
      use->cost += hours * GpuHour(prices, model);
    }
  }
}

double MeanGpuHour(const Job& job, const Prices& prices, WallTime now,
                   const GpuModelOf& model_of) {
  GpuUse use;
  for (const Attempt& attempt : job.attempts) {
    Add(job, attempt.tasks, attempt.end_time - attempt.start_time, prices,
        model_of, &use);
  }
  if (job.attempts.empty() ||
      job.attempts.back().generation != job.generation) {
    Add(job, job.tasks, now - job.attempt_start, prices, model_of, &use);
  }
  if (use.hours > 0) return use.cost / use.hours;
  for (const RoleSpec& role : job.spec.roles) {
    if (role.resources.gpus > 0) {
      return GpuHour(prices, role.resources.gpu_type);
    }
  }
  return prices.gpu_hour;
}

bool HasMlUnits(const Job& job) {
  return !job.spec.roles.empty() &&
         std::all_of(job.spec.roles.begin(), job.spec.roles.end(),
                     [](const RoleSpec& role) {
                       return role.machine && role.machine->ml_units_per_hour;
                     });
}

// Returns the cores that one task is billed for.
double BilledCpus(const RoleSpec& role) {
  return role.machine ? role.machine->nominal.cpus : role.resources.cpus;
}

// The ratio of billed to reserved cores, because holds are in reserved cores. A
// gang holds all of its cores or none.
double BilledPart(const JobSpec& spec) {
  double billed = 0;
  double reserved = 0;
  for (const RoleSpec& role : spec.roles) {
    billed += role.count * BilledCpus(role);
    reserved += role.count * role.resources.cpus;
  }
  return reserved > 0 ? billed / reserved : 1;
}

}  // namespace

double CostPerHour(const JobSpec& spec, const Prices& prices) {
  double cost = 0;
  for (const RoleSpec& role : spec.roles) {
    cost += role.count *
            (BilledCpus(role) * prices.core_hour +
             role.resources.gpus * GpuHour(prices, role.resources.gpu_type));
  }
  return cost;
}

std::optional<double> MlUnitsPerHour(const JobSpec& spec) {
  double units = 0;
  for (const RoleSpec& role : spec.roles) {
    if (!role.machine || !role.machine->ml_units_per_hour) return std::nullopt;
    units += role.count * *role.machine->ml_units_per_hour;
  }
  return units;
}

std::optional<double> MlUnitsOf(const Job& job, const Hold& hold,
                                Duration held) {
  if (!HasMlUnits(job)) return std::nullopt;
  double per_hour = 0;
  for (const TaskStatus& task : job.tasks) {
    if (task.node != hold.node) continue;
    for (const RoleSpec& role : job.spec.roles) {
      if (role.type == task.type) per_hour += *role.machine->ml_units_per_hour;
    }
  }
  return per_hour * ToSeconds(std::max(Duration{}, held)) / 3600;
}

Bill BillAt(const Job& job, const Prices& prices, WallTime now,
            const GpuModelOf& model_of, const UsedUntil& until) {
  Bill bill = job.bill;
  // An ended job keeps the price of its end.
  if (IsFinal(job.state) && !bill.currency.empty()) return bill;
  if (HasMlUnits(job) && !bill.ml_units) bill.ml_units = 0;
  for (const Hold& hold : job.holds) {
    const WallTime end = until ? std::min(now, until(hold.node)) : now;
    const Duration held = std::max(Duration{}, end - hold.since);
    const double seconds = ToSeconds(held);
    bill.core_seconds += hold.resources.cpus * seconds;
    bill.gpu_seconds += static_cast<double>(hold.gpus.size()) * seconds;
    if (const auto units = MlUnitsOf(job, hold, held)) *bill.ml_units += *units;
  }
  bill.cost =
      bill.core_seconds / 3600 * BilledPart(job.spec) * prices.core_hour +
      bill.gpu_seconds / 3600 * MeanGpuHour(job, prices, now, model_of);
  bill.currency = prices.currency;
  return bill;
}

void ReleaseHolds(Job* job, const std::map<NodeName, Release>& over) {
  std::erase_if(job->holds, [&](const Hold& hold) {
    const auto it = over.find(hold.node);
    if (it == over.end() || hold.generation > it->second.generation) {
      return false;
    }
    const Duration held = std::max(Duration{}, it->second.until - hold.since);
    const double seconds = ToSeconds(held);
    job->bill.core_seconds += hold.resources.cpus * seconds;
    job->bill.gpu_seconds += static_cast<double>(hold.gpus.size()) * seconds;
    if (const auto units = MlUnitsOf(*job, hold, held)) {
      job->bill.ml_units = job->bill.ml_units.value_or(0) + *units;
    }
    return true;
  });
}

}  // namespace lockstep::server
