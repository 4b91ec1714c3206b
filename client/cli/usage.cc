#include "client/cli/usage.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/cli.h"
#include "client/cli/job_view.h"
#include "client/cli/listing.h"
#include "client/cli/output.h"
#include "client/cli/parse.h"
#include "client/lib/client.h"

namespace lockstep::cli {
namespace {

constexpr double kHour = 3600;

struct UsageFlags {
  std::string by = "user";
  std::string since = "30d";
};

UsageBy ByOf(const std::string& text) {
  if (text == "job") return UsageBy::kJob;
  return text == "pool" ? UsageBy::kPool : UsageBy::kUser;
}

std::string KeyOf(const v1::Job& job, UsageBy by) {
  switch (by) {
    case UsageBy::kJob:
      return job.name();
    case UsageBy::kPool:
      return job.spec().pool().empty() ? "any" : job.spec().pool();
    case UsageBy::kUser:
      break;
  }
  return job.owner();
}

std::string HoursText(double seconds) {
  return fmt::format("{:.2f}", seconds / kHour);
}

std::string ShareText(double used, double held) {
  return held > 0 ? fmt::format("{:.0f} %", 100 * used / held) : "-";
}

std::string CostText(const UsageSum& sum) {
  std::string text;
  for (const auto& [currency, cost] : sum.cost) {
    if (currency.empty()) continue;
    text += fmt::format("{}{:.2f} {}", text.empty() ? "" : ", ", cost,
                        Printable(currency));
  }
  return text.empty() ? "-" : text;
}

std::vector<std::string> RowOf(const std::string& name, const UsageSum& sum) {
  return {name,
          fmt::format("{}", sum.jobs),
          HoursText(sum.held_core_seconds),
          HoursText(sum.used_core_seconds),
          ShareText(sum.used_core_seconds, sum.held_core_seconds),
          HoursText(sum.held_gpu_seconds),
          HoursText(sum.used_gpu_seconds),
          ShareText(sum.used_gpu_seconds, sum.held_gpu_seconds),
          CostText(sum)};
}

nlohmann::ordered_json JsonOf(const std::string& name, const UsageSum& sum) {
  nlohmann::ordered_json cost = nlohmann::ordered_json::object();
  for (const auto& [currency, amount] : sum.cost) {
    if (!currency.empty()) cost[currency] = amount;
  }
  return {{"name", name},
          {"jobs", sum.jobs},
          {"heldCoreHours", sum.held_core_seconds / kHour},
          {"usedCoreHours", sum.used_core_seconds / kHour},
          {"heldGpuHours", sum.held_gpu_seconds / kHour},
          {"usedGpuHours", sum.used_gpu_seconds / kHour},
          {"cost", cost}};
}

bool EndedBefore(const v1::Job& job, WallTime since) {
  return job.has_end_time() && ToWallTime(job.end_time()) < since;
}

StatusOr<int> RunUsage(const Cli& cli, const UsageFlags& flags) {
  const auto since = ParseSince(flags.since, cli.env->clock->Now().wall);
  if (!since.ok()) return Annotate(since.status(), "--since");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<v1::Job> jobs, client->ListJobs());
  for (v1::Job& job : jobs) {
    if (EndedBefore(job, *since)) continue;
    // A list has no ranks, which know what was used.
    auto whole = client->GetJob(job.name());
    if (whole.status().code() == StatusCode::kNotFound) continue;
    if (!whole.ok()) return whole.status();
    job = *std::move(whole);
  }
  const UsageBy by = ByOf(flags.by);
  const std::map<std::string, UsageSum> sums = SumUsage(jobs, by, *since);
  Listing listing;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const auto& [name, sum] : sums) {
    all.push_back(JsonOf(name, sum));
    listing.json_lines.push_back(DumpLine(all.back()));
    listing.names.push_back(name);
  }
  listing.json = Dump({{"usage", all}});
  listing.table = [&](bool, const Style&) { return UsageTable(sums, by); };
  LOCKSTEP_RETURN_IF_ERROR(WriteListing(cli, listing));
  return 0;
}

}  // namespace

void UsageSum::Add(const v1::Job& job) {
  ++jobs;
  held_core_seconds += job.bill().core_seconds();
  held_gpu_seconds += job.bill().gpu_seconds();
  cost[job.bill().currency()] += job.bill().cost();
  for (const RankView& view : AllRanks(job)) {
    const v1::Usage& usage = view.rank->usage();
    used_core_seconds += usage.cpu_seconds();
    // The ranks of a task share its GPUs.
    used_gpu_seconds += usage.gpu_utilization() * usage.seconds() *
                        view.task->gpus_size() /
                        std::max(1, view.task->ranks_size());
  }
}

std::map<std::string, UsageSum> SumUsage(const std::vector<v1::Job>& jobs,
                                         UsageBy by, WallTime since) {
  std::map<std::string, UsageSum> sums;
  for (const v1::Job& job : jobs) {
    if (!EndedBefore(job, since)) sums[KeyOf(job, by)].Add(job);
  }
  return sums;
}

Table UsageTable(const std::map<std::string, UsageSum>& sums, UsageBy by) {
  const char* const first = by == UsageBy::kJob    ? "JOB"
                            : by == UsageBy::kPool ? "POOL"
                                                   : "USER";
  Table table{{first, "JOBS", "CORE-H HELD", "CORE-H USED", "USED",
               "GPU-H HELD", "GPU-H USED", "GPU USED", "COST"},
              {}};
  std::vector<std::pair<std::string, UsageSum>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.held_gpu_seconds, a.second.held_core_seconds) >
           std::pair(b.second.held_gpu_seconds, b.second.held_core_seconds);
  });
  UsageSum total;
  for (const auto& [name, sum] : rows) {
    table.rows.push_back(RowOf(Printable(name), sum));
    total.jobs += sum.jobs;
    total.held_core_seconds += sum.held_core_seconds;
    total.used_core_seconds += sum.used_core_seconds;
    total.held_gpu_seconds += sum.held_gpu_seconds;
    total.used_gpu_seconds += sum.used_gpu_seconds;
    for (const auto& [currency, cost] : sum.cost) total.cost[currency] += cost;
  }
  if (rows.size() > 1) table.rows.push_back(RowOf("total", total));
  return table;
}

Command UsageCommand(Cli* cli) {
  const auto flags = std::make_shared<UsageFlags>();
  Command command = LeafCommand(
      "usage", "Show what jobs held, what they used of it, and its cost",
      "  lockstep usage --by user --since 30d\n"
      "  lockstep usage --by job -o json\n\n"
      "Held is reserved, used or not; used is what the ranks' processes and\n"
      "GPUs were busy. A job that ran within the time counts as a whole.\n"
      "Deleted jobs are not known any more.");
  command.Add("--by", &flags->by, "user, job or pool",
              OneOf({"user", "job", "pool"}), ShowDefault);
  command.Add("--since TIME", &flags->since,
              "Leave out jobs that ended before, as 30d (ago) or "
              "2026-01-31T12:00:00Z",
              ShowDefault);
  AddListOptions(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunUsage(*cli, *flags); };
  return command;
}

}  // namespace lockstep::cli
