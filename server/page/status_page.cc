#include "server/page/status_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/version.h"
#include "server/metrics/discovery.h"
#include "server/page/html.h"
#include "server/page/overview_page.h"

namespace lockstep::server {
namespace {

std::string CertificateText(const NodeInfo& info, WallTime now) {
  if (!info.certificate_end_time) return "";
  const Duration left = *info.certificate_end_time - now;
  return left > Duration{} ? fmt::format("expires in {}", FormatDuration(left))
                           : "has expired";
}

void GpuTable(const Member& member, Html* html) {
  if (member.info.gpus.empty()) return;
  html->Element("h2", "GPUs")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"GPU", "model", "busy", "memory access", "memory used", "power",
                "temperature", "state"});
  for (const Gpu& gpu : member.info.gpus) {
    GpuUsage usage;
    for (const GpuUsage& latest : member.readings.gpus) {
      if (latest.index == gpu.index && ReportsNow(member)) usage = latest;
    }
    html->BeginRow().Cell(std::to_string(gpu.index), "n");
    html->Cell(gpu.model).BeginCell("n");
    if (usage.utilization) html->Bar(*usage.utilization);
    html->Raw("</td>").BeginCell("n");
    if (usage.memory_access) html->Bar(*usage.memory_access);
    html->Raw("</td>");
    html->Cell(
        usage.memory_used_bytes
            ? fmt::format("{} of {}", FormatBytes(*usage.memory_used_bytes),
                          FormatBytes(gpu.memory_bytes))
            : FormatBytes(gpu.memory_bytes),
        "n");
    html->Cell(
        usage.power_watts ? fmt::format("{:.0f} W", *usage.power_watts) : "",
        "n");
    html->Cell(usage.temperature_celsius
                   ? fmt::format("{:.0f} C", *usage.temperature_celsius)
                   : "",
               "n");
    const std::string trouble = member.GpuTrouble(gpu);
    html->Cell(trouble.empty() ? "ok" : trouble, trouble.empty() ? "" : "bad");
    html->Raw("</tr>\n");
  }
  html->Raw("</table></div>\n");
}

}  // namespace

std::string NoteOf(const Member& member, WallTime now) {
  std::string note = member.message;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) note += (note.empty() ? "" : "; ") + text;
  };
  add(WaitingForApproval(member.Record()));
  if (const size_t lost = member.LostGpus(); lost > 0) {
    add(fmt::format("{} GPU{} missing", lost, lost == 1 ? "" : "s"));
  }
  const size_t withheld = static_cast<size_t>(
      std::count_if(member.info.gpus.begin(), member.info.gpus.end(),
                    [](const Gpu& gpu) { return !gpu.fault.empty(); }));
  if (withheld > 0) {
    add(fmt::format("{} GPU{} withheld", withheld, withheld == 1 ? "" : "s"));
  }
  if (const size_t open = member.checking.open.size(); open > 0) {
    add(fmt::format("{} GPU{} being checked", open, open == 1 ? "" : "s"));
  }
  if (const size_t held = member.readings.reclaims.size(); held > 0) {
    add(fmt::format("{} GPU{} in reclaim", held, held == 1 ? "" : "s"));
  }
  for (const HeldProcess& process : member.readings.stuck_processes) {
    add("SIGKILL does not end " + Describe(process));
    break;
  }
  add(UnreachableHttp(member.info));
  const auto& end = member.info.certificate_end_time;
  if (end && *end - now < kCertificateWarning) {
    add("its certificate " + CertificateText(member.info, now));
  }
  return note;
}

bool ReportsNow(const Member& member) {
  return member.state != NodeState::kUnknown &&
         member.state != NodeState::kLost;
}

void AddSteps(const RankProgress& progress, Html* html) {
  if (progress.total_steps <= 0) {
    html->Text(std::to_string(progress.committed_step));
    return;
  }
  html->Bar(static_cast<double>(progress.committed_step) /
            static_cast<double>(progress.total_steps));
  html->Text(
      fmt::format(", {} of {}", progress.committed_step, progress.total_steps));
}

std::string WhyOf(const JobState& state, const Cause& cause) {
  if (!cause.message.empty()) return cause.message;
  const std::string_view reason = Name(cause.reason);
  return reason == Name(state) || cause.reason == Reason::kNone
             ? std::string()
             : std::string(reason);
}

std::string Ago(WallTime then, WallTime now) {
  if (then == WallTime{}) return "";
  return FormatDuration(std::max(Duration{}, now - then));
}

std::string PageHead(const std::string& cluster, const std::string& title) {
  Html html;
  html.Raw("<header>").Element("h1", title);
  if (title != cluster) html.Raw("<a href=\"/\">").Text(cluster).Raw("</a>");
  html.Element("span", std::string("lockstep ") + kVersion, "dim");
  return html.Raw("</header>\n").str();
}

http::HttpResponse NodePage(const std::string& cluster, const JobReader& reader,
                            const NodeSnapshot& node,
                            const std::vector<JobSnapshot>& jobs,
                            WallTime now) {
  const Member& member = node.member;
  const NodeInfo& info = member.info;
  Html html;
  html.Raw(PageHead(cluster, info.name));
  html.Raw("<table class=\"facts\">\n<tr>").Element("th", "state");
  html.Element("td", Name(member.state), StateClass(Name(member.state)))
      .Raw("</tr>\n");
  html.Fact("why", NoteOf(member, now));
  html.Fact("apart from", fmt::format("{}", fmt::join(node.apart_from, ", ")));
  html.Fact("heard of", member.last_beat_wall == WallTime{}
                            ? "not since the coordinator's start"
                            : Ago(member.last_beat_wall, now) + " ago");
  html.Fact("host", info.hostname)
      .Fact("address", info.address)
      .Fact("pool", info.pool)
      .Fact("has", Describe(info.capacity))
      .Fact("held by jobs", Describe(node.allocated));
  if (ReportsNow(member)) {
    html.Raw("<tr><th>CPU</th><td>")
        .Bar(member.readings.cpu_utilization)
        .Raw("</td></tr>\n");
    html.Fact("memory free",
              FormatBytes(member.readings.memory_available_bytes));
  }
  html.Fact("version", info.version);
  html.Fact("limits",
            info.limits_enforced
                ? "enforced for each task"
                : "not enforced: " + (info.limits_message.empty()
                                          ? std::string("tasks share the host")
                                          : info.limits_message));
  html.Fact("certificate", CertificateText(info, now));
  for (const Gpu& gpu : member.missing_gpus) {
    html.Fact("missing", GpuLabel(gpu));
  }
  html.Raw("</table>\n");
  GpuTable(member, &html);
  std::vector<const JobSnapshot*> list;
  for (const JobSnapshot& job : jobs) list.push_back(&job);
  html.Element("h2", "Jobs");
  JobTable(reader, list, {}, &html);
  EventTable(member.events, &html);
  return HtmlPage(info.name + " - " + cluster, html.str());
}

http::HttpResponse ErrorPage(const std::string& cluster, const Status& status) {
  std::string title = "Bad request";
  int code = 400;
  if (status.code() == StatusCode::kNotFound) {
    title = "Not found";
    code = 404;
  } else if (status.code() == StatusCode::kPermissionDenied) {
    title = "Not shown";
    code = 403;
  }
  Html html;
  html.Raw(PageHead(cluster, title)).Element("p", Message(status));
  return HtmlPage(title + " - " + cluster, html.str(), code, Refresh::kNever);
}

}  // namespace lockstep::server
