#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "client/cli/describe.h"
#include "common/model/resources.h"
#include "common/model/scrape_address.h"

namespace lockstep::cli {
namespace {

std::string Heartbeat(const v1::Node& node, WallTime now) {
  if (!node.has_last_heartbeat()) return "-";
  return Age(now - ToWallTime(node.last_heartbeat())) + " ago";
}

// "1.5/4": allocated and total.
std::string Cpus(const v1::Node& node) {
  return fmt::format("{:g}/{:g}", node.allocated().cpus(),
                     node.capacity().cpus());
}
std::string Memory(const v1::Node& node) {
  return fmt::format("{}/{}", FormatBytes(node.allocated().memory_bytes()),
                     FormatBytes(node.capacity().memory_bytes()));
}
// Those that get no new work for a while.
int CountGpus(const v1::Node& node, v1::GpuState state) {
  return static_cast<int>(
      std::count_if(node.gpus().begin(), node.gpus().end(),
                    [&](const v1::Gpu& gpu) { return gpu.state() == state; }));
}
// The others that get none.
int CountBad(const v1::Node& node) {
  return static_cast<int>(std::count_if(
      node.gpus().begin(), node.gpus().end(), [](const v1::Gpu& gpu) {
        return !gpu.fault().empty() && gpu.state() != v1::GPU_STATE_RECLAIM &&
               gpu.state() != v1::GPU_STATE_CHECKING;
      }));
}

// "3/8, 1 bad, 1 in reclaim, 1 in check, 1 missing".
std::string Gpus(const v1::Node& node, const Style& style) {
  std::string text =
      fmt::format("{}/{}", node.allocated().gpus(), node.capacity().gpus());
  if (const int bad = CountBad(node); bad > 0) {
    text += style.Red(fmt::format(", {} bad", bad));
  }
  if (const int reclaim = CountGpus(node, v1::GPU_STATE_RECLAIM); reclaim > 0) {
    text += style.Red(fmt::format(", {} in reclaim", reclaim));
  }
  if (const int checking = CountGpus(node, v1::GPU_STATE_CHECKING);
      checking > 0) {
    text += fmt::format(", {} in check", checking);
  }
  if (const int missing = node.missing_gpus_size(); missing > 0) {
    text += style.Red(fmt::format(", {} missing", missing));
  }
  return text;
}

// "by user/ann 5m ago: new disk; what still runs is killed in 25s".
std::string DrainText(const v1::Node& node, WallTime now) {
  if (!node.has_drain()) return "";
  const v1::Drain& drain = node.drain();
  std::string text =
      "by " + (drain.requester().empty() ? std::string("an unknown user")
                                         : Printable(drain.requester()));
  if (drain.has_time()) {
    text += fmt::format(", {} ago", Age(now - ToWallTime(drain.time())));
  }
  if (!drain.reason().empty()) text += ": " + Printable(drain.reason());
  if (node.state() != v1::NODE_STATE_DRAINING) return text;
  if (!drain.has_deadline()) return text + "; its jobs run to their end";
  const Duration left = ToWallTime(drain.deadline()) - now;
  return text +
         (left > Duration::zero()
              ? fmt::format("; what still runs is killed in {}", Age(left))
              : "; what still runs is being killed");
}

std::string KnownPercent(bool known, double ratio) {
  return known ? fmt::format("{:.0f} %", ratio * 100) : "-";
}

// Older GPUs and drivers cannot measure it, although they answer.
std::string Activity(const v1::GpuUsage& usage, bool known, double ratio) {
  return !known && usage.has_utilization() ? "unsupported"
                                           : KnownPercent(known, ratio);
}

std::string GpuTable(const v1::Node& node, const Style& style) {
  Table table{{"GPU", "MODEL", "STATE", "BUSY", "SM", "TENSOR", "MEMORY ACCESS",
               "MEMORY", "POWER", "TEMPERATURE", "UUID"},
              {}};
  for (const v1::Gpu& gpu : node.gpus()) {
    v1::GpuUsage usage;
    for (const v1::GpuUsage& each : node.gpu_usage()) {
      if (each.index() == gpu.index()) usage = each;
    }
    table.rows.push_back(
        {fmt::format("{}", gpu.index()), Printable(gpu.model()),
         gpu.fault().empty() ? "ok" : style.Red(Printable(gpu.fault())),
         KnownPercent(usage.has_utilization(), usage.utilization()),
         Activity(usage, usage.has_sm_activity(), usage.sm_activity()),
         Activity(usage, usage.has_tensor_activity(), usage.tensor_activity()),
         KnownPercent(usage.has_memory_access(), usage.memory_access()),
         usage.has_memory_used_bytes()
             ? FormatBytes(usage.memory_used_bytes()) + "/" +
                   FormatBytes(gpu.memory_bytes())
             : FormatBytes(gpu.memory_bytes()),
         usage.has_power_watts() ? fmt::format("{:.0f} W", usage.power_watts())
                                 : "-",
         usage.has_temperature_celsius()
             ? fmt::format("{:.0f} C", usage.temperature_celsius())
             : "-",
         Printable(gpu.uuid())});
  }
  return table.rows.empty() ? "" : RenderTable(table);
}

void AddHeld(const std::string& gpu, const v1::HeldProcess& process,
             WallTime now, Table* table) {
  const auto known = [](const std::string& text) {
    return text.empty() ? std::string("-") : Printable(text);
  };
  table->rows.push_back(
      {fmt::format("{}", process.pid()), gpu, known(process.user()),
       known(process.command()), known(process.state()),
       known(process.wait_channel()), known(process.job()),
       process.has_gpu_memory_bytes() ? FormatBytes(process.gpu_memory_bytes())
                                      : "-",
       Age(now - ToWallTime(process.since()))});
}

// What should have ended with its rank and has not.
std::string HeldProcesses(const v1::Node& node, WallTime now) {
  Table table{{"PID", "GPU", "USER", "COMMAND", "STATE", "WAITS IN", "JOB",
               "GPU MEMORY", "SINCE"},
              {}};
  std::set<int64_t> shown;
  for (const v1::Gpu& gpu : node.gpus()) {
    for (const v1::HeldProcess& process : gpu.reclaim().processes()) {
      shown.insert(process.pid());
      AddHeld(fmt::format("{}", gpu.index()), process, now, &table);
    }
  }
  for (const v1::HeldProcess& process : node.stuck_processes()) {
    if (!shown.contains(process.pid())) AddHeld("-", process, now, &table);
  }
  return table.rows.empty() ? "" : RenderTable(table);
}

// The newest check of each GPU that was checked.
std::string GpuChecks(const v1::Node& node, WallTime now, const Style& style) {
  Table table{{"GPU", "AGO", "TOOK", "RESULT", "PARTS"}, {}};
  for (const v1::GpuCheck& check : node.gpu_checks()) {
    std::string parts;
    for (const v1::GpuCheckPart& part : check.parts()) {
      if (!part.failure().empty()) continue;  // The result says it.
      parts += fmt::format(
          "{}{} {}", parts.empty() ? "" : ", ", Printable(part.name()),
          part.unit().empty()
              ? "skipped"
              : fmt::format("{:.4g} {}", part.value(), Printable(part.unit())));
    }
    table.rows.push_back(
        {fmt::format("{}", check.index()), Age(now - ToWallTime(check.time())),
         fmt::format("{} s", check.took().seconds()),
         check.failure().empty() ? "passed"
                                 : style.Red(Printable(check.failure())),
         parts});
  }
  return table.rows.empty() ? "" : RenderTable(table);
}

std::string MissingGpus(const v1::Node& node) {
  Table table{{"GPU", "MODEL", "UUID"}, {}};
  for (const v1::Gpu& gpu : node.missing_gpus()) {
    table.rows.push_back({fmt::format("{}", gpu.index()),
                          Printable(gpu.model()), Printable(gpu.uuid())});
  }
  return table.rows.empty() ? "" : RenderTable(table);
}

std::string UnknownGangs(const v1::Node& node) {
  Table table{{"JOB", "UID", "GENERATION"}, {}};
  for (const v1::UnknownGang& gang : node.unknown_gangs()) {
    table.rows.push_back({Printable(gang.job()), Printable(gang.job_uid()),
                          fmt::format("{}", gang.generation())});
  }
  if (table.rows.empty()) return "";
  return RenderTable(table) +
         "The coordinator's store is older than these. They run "
         "until they end;\nto end them: lockstep nodes drain " +
         Printable(node.name()) + " --grace 30s\n";
}

// "64 cpus, 1 TiB, of which 32 cpus, 1 TiB may be used: ..."; empty if no
// approval is pending.
std::string OffersText(const v1::Node& node) {
  if (!node.has_offered()) return "";
  return fmt::format(
      "{}, of which {} may be used: the rest waits for `lockstep nodes approve "
      "{}`",
      Text(node.offered()), Text(node.capacity()), Printable(node.name()));
}

// For a list: only the worst problem.
std::string WhyOf(const v1::Node& node) {
  if (!node.message().empty()) return node.message();
  for (const v1::Gpu& gpu : node.gpus()) {
    if (gpu.fault().empty()) continue;
    return fmt::format("GPU {} gets no new work: {}", gpu.index(), gpu.fault());
  }
  if (node.stuck_processes_size() > 0) {
    return fmt::format("SIGKILL does not end process {} of an ended rank",
                       node.stuck_processes(0).pid());
  }
  if (node.has_offered()) return "offers " + OffersText(node);
  if (const int missing = node.missing_gpus_size(); missing > 0) {
    return fmt::format("{} of {} GPUs {} missing", missing,
                       node.gpus_size() + missing, missing == 1 ? "is" : "are");
  }
  return node.drain().reason();
}

std::string LimitsText(const v1::Node& node) {
  if (node.limits_enforced()) return "enforced by cgroups";
  std::string text = "not enforced: a task may exceed its request";
  if (!node.limits_message().empty()) {
    text += fmt::format(" ({})", Printable(node.limits_message()));
  }
  return text;
}

// Empty if the daemon has none.
std::string CertificateText(const v1::Node& node, WallTime now) {
  if (!node.has_certificate_end_time()) return "";
  const WallTime end = ToWallTime(node.certificate_end_time());
  const std::string when = TimeText(true, node.certificate_end_time());
  return end > now ? fmt::format("expires {} (in {})", when, Age(end - now))
                   : fmt::format("expired {}", when);
}

// "until 2026-01-31T12:00:00Z (for another 40s)".
std::string CoolDownText(const v1::Node& node, WallTime now) {
  if (!node.has_cool_down_end()) return "";
  const WallTime end = ToWallTime(node.cool_down_end());
  return fmt::format(
      "until {}{}", TimeText(true, node.cool_down_end()),
      end > now ? fmt::format(" (for another {})", Age(end - now)) : "");
}

}  // namespace

Table NodesTable(const std::vector<v1::Node>& nodes, bool wide, WallTime now,
                 const Style& style) {
  std::vector<std::string> header = {"NAME", "STATE", "CPUS",     "MEMORY",
                                     "GPUS", "JOBS",  "HEARTBEAT"};
  if (wide) {
    header.insert(header.end(), {"BUSY", "FREE", "POOL", "ADDRESS", "HTTP",
                                 "VERSION", "GPU MODEL"});
  }
  header.push_back("WHY");
  std::vector<std::vector<std::string>> rows;
  for (const v1::Node& node : nodes) {
    std::vector<std::string> row = {Printable(node.name()),
                                    style.State(node.state()),
                                    Cpus(node),
                                    Memory(node),
                                    Gpus(node, style),
                                    fmt::format("{}", node.jobs_size()),
                                    Heartbeat(node, now)};
    if (wide) {
      row.push_back(fmt::format("{:.0f} %", node.cpu_utilization() * 100));
      row.push_back(FormatBytes(node.memory_available_bytes()));
      row.push_back(Printable(node.pool()));
      row.push_back(node.address());
      row.push_back(node.http_address());
      row.push_back(node.version());
      row.push_back(node.gpus_size() > 0 ? Printable(node.gpus(0).model())
                                         : "-");
    }
    row.push_back(Printable(WhyOf(node)));
    rows.push_back(std::move(row));
  }
  return {header, rows};
}

std::string FormatNode(const v1::Node& node, WallTime now, const Style& style) {
  std::string text = DescribeRow("node", style.Bold(Printable(node.name())));
  text += DescribeRow("state", style.State(node.state()));
  text += DescribeRow("why", Printable(node.message()));
  if (node.has_state_time()) {
    text += DescribeRow(
        "since", fmt::format("{} ({} ago)", TimeText(true, node.state_time()),
                             Age(now - ToWallTime(node.state_time()))));
  }
  text += DescribeRow("drain", DrainText(node, now));
  text += DescribeRow("cools down", CoolDownText(node, now));
  text += DescribeRow(
      "apart from",
      Printable(fmt::format("{}", fmt::join(node.apart_from(), ", "))));
  text += DescribeRow("heartbeat", Heartbeat(node, now));
  text += DescribeRow("host", Printable(node.hostname()));
  text += DescribeRow("pool", Printable(node.pool()));
  text += DescribeRow("address", Printable(node.address()));
  text += DescribeRow("http", Printable(node.http_address()));
  text += DescribeRow(
      "metrics", Printable(WhyNotScraped(node.http_address(), node.address())));
  text += DescribeRow("version", Printable(node.version()));
  text += DescribeRow("start", fmt::format("{} (boot {})", node.incarnation(),
                                           Printable(node.boot_id())));
  text += DescribeRow("cpus", Cpus(node) + " taken");
  text += DescribeRow("memory", Memory(node) + " taken");
  text += DescribeRow("gpus", Gpus(node, style) + " taken");
  text += DescribeRow("offers", OffersText(node));
  text += DescribeRow("load",
                      fmt::format("CPU {:.0f} % busy, {} memory available",
                                  node.cpu_utilization() * 100,
                                  FormatBytes(node.memory_available_bytes())));
  text += DescribeRow("limits", LimitsText(node));
  text += DescribeRow("certificate", CertificateText(node, now));
  if (!node.container_engine().empty()) {
    text +=
        DescribeRow("containers", "by " + Printable(node.container_engine()));
  }
  text += DescribeRow(
      "jobs", Printable(fmt::format("{}", fmt::join(node.jobs(), ", "))));
  text += DescribeSection("GPUs", GpuTable(node, style), style);
  text +=
      DescribeSection("Checks of its GPUs", GpuChecks(node, now, style), style);
  text += DescribeSection("Processes of ended ranks", HeldProcesses(node, now),
                          style);
  text += DescribeSection("GPUs that it no longer offers", MissingGpus(node),
                          style);
  text += DescribeSection("Runs unknown to the coordinator", UnknownGangs(node),
                          style);
  return text + DescribeSection("What happened",
                                FormatEvents(node.events(), false), style);
}

}  // namespace lockstep::cli
