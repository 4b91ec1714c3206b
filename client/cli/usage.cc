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

std::string HoursText(double seconds, bool estimated) {
  return fmt::format("{}{:.2f}", estimated ? "~" : "", seconds / kHour);
}

std::string ShareText(double used, double held) {
  return held > 0 ? fmt::format("{:.0f} %", 100 * used / held) : "-";
}

// `mark`: "~" of an estimate, ">" of what is at least so much.
std::string CostText(const std::map<std::string, double>& costs,
                     std::string_view mark) {
  std::string text;
  for (const auto& [currency, cost] : costs) {
    if (currency.empty()) continue;
    text += fmt::format("{}{}{:.2f} {}", text.empty() ? "" : ", ", mark, cost,
                        Printable(currency));
  }
  return text.empty() ? "-" : text;
}

std::string_view HeldMark(const UsageSum& sum) {
  return sum.held_estimated ? "~" : "";
}

std::string_view UsedMark(const UsageSum& sum) {
  if (sum.unread_gpu_seconds > 0) return ">";
  return sum.held_estimated || sum.used_estimated ? "~" : "";
}

// Nothing is known where no GPU has readings.
bool IsUnread(const UsageSum& sum) {
  return sum.unread_gpu_seconds > 0 && sum.used_gpu_seconds <= 0;
}

std::string GpuHoursText(const UsageSum& sum) {
  if (IsUnread(sum)) return "?";
  return sum.unread_gpu_seconds > 0
             ? fmt::format(">{:.2f}", sum.used_gpu_seconds / kHour)
             : HoursText(sum.used_gpu_seconds, sum.used_estimated);
}

std::string GpuShareText(const UsageSum& sum) {
  if (IsUnread(sum)) return "?";
  return ShareText(sum.used_gpu_seconds,
                   sum.held_gpu_seconds - sum.unread_gpu_seconds);
}

// What the job used of what it held, of GPUs or else of cores.
double UsedPart(const UsageSum& job) {
  const bool gpus = job.held_gpu_seconds > 0;
  const double held = gpus ? job.held_gpu_seconds : job.held_core_seconds;
  const double used = gpus ? job.used_gpu_seconds : job.used_core_seconds;
  return held > 0 ? std::clamp(used / held, 0.0, 1.0) : 0;
}

std::vector<std::string> RowOf(const std::string& name, const UsageSum& sum) {
  return {name,
          fmt::format("{}", sum.jobs),
          HoursText(sum.held_core_seconds, sum.held_estimated),
          HoursText(sum.used_core_seconds, sum.used_estimated),
          ShareText(sum.used_core_seconds, sum.held_core_seconds),
          HoursText(sum.held_gpu_seconds, sum.held_estimated),
          GpuHoursText(sum),
          GpuShareText(sum),
          CostText(sum.cost, HeldMark(sum)),
          CostText(sum.used_cost, UsedMark(sum))};
}

nlohmann::ordered_json CostJson(const std::map<std::string, double>& costs) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [currency, amount] : costs) {
    if (!currency.empty()) json[currency] = amount;
  }
  return json;
}

nlohmann::ordered_json JsonOf(const std::string& name, const UsageSum& sum) {
  return {{"name", name},
          {"jobs", sum.jobs},
          {"heldCoreHours", sum.held_core_seconds / kHour},
          {"usedCoreHours", sum.used_core_seconds / kHour},
          {"heldGpuHours", sum.held_gpu_seconds / kHour},
          {"usedGpuHours", sum.used_gpu_seconds / kHour},
          {"unreadGpuHours", sum.unread_gpu_seconds / kHour},
          {"cost", CostJson(sum.cost)},
          {"usedCost", CostJson(sum.used_cost)},
          {"heldEstimated", sum.held_estimated},
          {"usedEstimated", sum.used_estimated}};
}

bool EndedBefore(const v1::Job& job, WallTime since) {
  return job.has_end_time() && ToWallTime(job.end_time()) < since;
}

// An attempt, or the time of those that are not kept.
struct Span {
  int32_t attempt = 0;  // 0 for those.
  WallTime start{};
  WallTime end{};
};

std::vector<Span> SpansOf(const v1::Job& job, WallTime now) {
  std::vector<Span> spans;
  for (const v1::Attempt& attempt : job.attempts()) {
    if (!attempt.has_start_time() || !attempt.has_end_time()) continue;
    spans.push_back({attempt.ordinal(), ToWallTime(attempt.start_time()),
                     ToWallTime(attempt.end_time())});
  }
  if (AttemptGoesOn(job)) {
    const auto start = CurrentStart(job);
    if (start) spans.push_back({job.attempt(), ToWallTime(*start), now});
  }
  const bool all = !spans.empty() && spans.front().attempt <= 1;
  if (!all && job.attempt() > 0 && job.has_create_time()) {
    const WallTime end = !spans.empty()       ? spans.front().start
                         : job.has_end_time() ? ToWallTime(job.end_time())
                                              : now;
    spans.insert(spans.begin(), {0, ToWallTime(job.create_time()), end});
  }
  return spans;
}

// The part of the span within the window, 0..1.
double ShareWithin(const Span& span, WallTime since) {
  if (span.start >= since) return 1;
  if (span.end <= since) return 0;
  return ToSeconds(span.end - since) / ToSeconds(span.end - span.start);
}

UsageSum UsageOf(const v1::Job& job, const UsageWindow& window) {
  UsageSum sum;
  sum.jobs = 1;
  std::map<int32_t, double> shares;
  double all = 0;
  double within = 0;
  for (const Span& span : SpansOf(job, window.now)) {
    const double share = ShareWithin(span, window.since);
    const double seconds = std::max(0.0, ToSeconds(span.end - span.start));
    shares[span.attempt] = share;
    all += seconds;
    within += share * seconds;
    if (span.attempt == 0) sum.held_estimated = sum.held_estimated || share < 1;
  }
  const double held = all > 0 ? within / all : 1;
  sum.held_core_seconds = held * job.bill().core_seconds();
  sum.held_gpu_seconds = held * job.bill().gpu_seconds();
  for (const RankView& view : AllRanks(job)) {
    const v1::Usage& usage = view.rank->usage();
    const auto known = shares.find(view.attempt);
    const double share = known == shares.end() ? held : known->second;
    sum.used_estimated = sum.used_estimated || (share > 0 && share < 1);
    sum.used_core_seconds += share * usage.cpu_seconds();
    // The ranks of a task share its GPUs.
    const double gpu_seconds = share * usage.seconds() *
                               view.task->gpus_size() /
                               std::max(1, view.task->ranks_size());
    if (usage.has_gpu_utilization()) {
      sum.used_gpu_seconds += usage.gpu_utilization() * gpu_seconds;
    } else {
      sum.unread_gpu_seconds += gpu_seconds;
    }
  }
  const double cost = held * job.bill().cost();
  sum.cost[job.bill().currency()] = cost;
  sum.used_cost[job.bill().currency()] = cost * UsedPart(sum);
  return sum;
}

StatusOr<int> RunUsage(const Cli& cli, const UsageFlags& flags) {
  const WallTime now = cli.env->clock->Now().wall;
  const auto since = ParseSince(flags.since, now);
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
  const std::map<std::string, UsageSum> sums =
      SumUsage(jobs, by, {*since, now});
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

void UsageSum::Add(const v1::Job& job, const UsageWindow& window) {
  Add(UsageOf(job, window));
}

void UsageSum::Add(const UsageSum& other) {
  jobs += other.jobs;
  held_core_seconds += other.held_core_seconds;
  used_core_seconds += other.used_core_seconds;
  held_gpu_seconds += other.held_gpu_seconds;
  used_gpu_seconds += other.used_gpu_seconds;
  unread_gpu_seconds += other.unread_gpu_seconds;
  for (const auto& [currency, amount] : other.cost) cost[currency] += amount;
  for (const auto& [currency, amount] : other.used_cost) {
    used_cost[currency] += amount;
  }
  held_estimated = held_estimated || other.held_estimated;
  used_estimated = used_estimated || other.used_estimated;
}

std::map<std::string, UsageSum> SumUsage(const std::vector<v1::Job>& jobs,
                                         UsageBy by,
                                         const UsageWindow& window) {
  std::map<std::string, UsageSum> sums;
  for (const v1::Job& job : jobs) {
    if (!EndedBefore(job, window.since)) sums[KeyOf(job, by)].Add(job, window);
  }
  return sums;
}

Table UsageTable(const std::map<std::string, UsageSum>& sums, UsageBy by) {
  const char* const first = by == UsageBy::kJob    ? "JOB"
                            : by == UsageBy::kPool ? "POOL"
                                                   : "USER";
  Table table{{first, "JOBS", "CORE-H HELD", "CORE-H USED", "USED",
               "GPU-H HELD", "GPU-H USED", "GPU USED", "COST", "COST USED"},
              {}};
  std::vector<std::pair<std::string, UsageSum>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.held_gpu_seconds, a.second.held_core_seconds) >
           std::pair(b.second.held_gpu_seconds, b.second.held_core_seconds);
  });
  UsageSum total;
  for (const auto& [name, sum] : rows) {
    table.rows.push_back(RowOf(Printable(name), sum));
    total.Add(sum);
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
      "GPUs were busy. Only the time since --since counts: what was held and "
      "its\n"
      "cost are clipped by the times of each attempt. A rank reports only the "
      "sum\n"
      "of what it used, so an attempt that began before counts by the share "
      "of\n"
      "its time, as if its use had been even: \"~\" marks such estimates. "
      "Deleted\n"
      "jobs are not known any more. COST USED is the used part of a job's "
      "cost:\n"
      "of its GPU time or, without GPUs, of its core time. \">\" and \"?\" "
      "mark\n"
      "jobs with GPUs that have no readings.");
  command.Add("--by", &flags->by, "user, job or pool",
              OneOf({"user", "job", "pool"}), ShowDefault);
  command.Add("--since TIME", &flags->since,
              "Count only what came after, as 30d (ago) or "
              "2026-01-31T12:00:00Z",
              ShowDefault);
  AddListOptions(&command, cli);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunUsage(*cli, *flags); };
  return command;
}

}  // namespace lockstep::cli
