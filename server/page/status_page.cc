#include "server/page/status_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/version.h"
#include "server/metrics/discovery.h"
#include "server/page/html.h"

namespace lockstep::server {
namespace {

std::string NodesOfJob(const Job& job) {
  std::string nodes;
  size_t count = 0;
  for (const NodeName& node : NodesOf(job)) {
    if (++count > 4) continue;
    nodes += (nodes.empty() ? "" : ", ") + node;
  }
  return count > 4 ? fmt::format("{}, and {} more", nodes, count - 4) : nodes;
}

void JobRow(const JobSnapshot& snapshot, Html* html) {
  const Job& job = *snapshot.job;
  html->BeginRow().BeginCell().Link("/jobs", job.spec.name).Raw("</td>");
  html->Cell(Name(job.state), StateClass(Name(job.state)));
  html->Cell(Ago(job.state_time, snapshot.time), "n");
  std::string rate;
  html->BeginCell("n");
  if (snapshot.progress && snapshot.progress->chief.committed_step >= 0) {
    const RankProgress& chief = snapshot.progress->chief;
    AddSteps(chief, html);
    rate = fmt::format("{:.0f}", snapshot.progress->samples_per_second);
  }
  html->Raw("</td>").Cell(rate, "n");
  html->Cell(NodesOfJob(job));
  html->Cell(WhyOf(job.state, snapshot.waiting ? *snapshot.waiting : job.cause))
      .Raw("</tr>\n");
}

void JobTable(const JobReader& reader, std::vector<const JobSnapshot*> jobs,
              Html* html) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const JobSnapshot* a, const JobSnapshot* b) {
                     const bool a_over = IsFinal(a->job->state);
                     const bool b_over = IsFinal(b->job->state);
                     if (a_over != b_over) return b_over;
                     return a->job->create_time > b->job->create_time;
                   });
  if (jobs.empty()) {
    html->Element("p", "none", "dim");
    return;
  }
  html->Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"job", "state", "since", "step", "samples/s", "nodes", "why"});
  for (size_t i = 0; i < std::min(jobs.size(), kMaxJobsShown); ++i) {
    JobRow(ShownTo(reader, *jobs[i]), html);
  }
  html->Raw("</table></div>\n");
  if (jobs.size() > kMaxJobsShown) {
    html->Element("p",
                  fmt::format("and {} more: lockstep jobs list",
                              jobs.size() - kMaxJobsShown),
                  "dim");
  }
}

// Returns the nodes that refuse this coordinator and the remedy, or "".
std::string OutdatedText(const CoordinatorView& view) {
  if (view.refused_by.empty()) return "";
  const auto& [node, obeyed] = *view.refused_by.begin();
  const size_t count = view.refused_by.size();
  return fmt::format(
      "{} refuse{} this coordinator: it has epoch {}, but {} has obeyed one "
      "of {}. Either another coordinator runs, or this one's store is an "
      "old copy: see LockstepCoordinatorOutdated in the runbook.",
      count == 1 ? "A node" : fmt::format("{} nodes", count),
      count == 1 ? "s" : "", view.epoch, node, obeyed);
}

std::string CertificateText(const NodeInfo& info, WallTime now) {
  if (!info.certificate_end_time) return "";
  const Duration left = *info.certificate_end_time - now;
  return left > Duration{} ? fmt::format("expires in {}", FormatDuration(left))
                           : "has expired";
}

// Returns the node's problem.
std::string NoteOf(const Member& member, WallTime now) {
  std::string note = member.message;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) note += (note.empty() ? "" : "; ") + text;
  };
  add(WaitingForApproval(member.Record()));
  if (const size_t lost = member.LostGpus(); lost > 0) {
    add(fmt::format("{} GPU{} missing", lost, lost == 1 ? "" : "s"));
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

// "3 of 8, busy 72 %".
std::string GpuText(const NodeSnapshot& node) {
  const size_t gpus = node.member.info.gpus.size();
  if (gpus == 0) return "none";
  std::string text = fmt::format("{} of {}", node.allocated.gpus, gpus);
  double sum = 0;
  int known = 0;
  for (const GpuUsage& gpu : node.member.readings.gpus) {
    if (!gpu.utilization) continue;
    sum += *gpu.utilization;
    ++known;
  }
  if (known > 0 && ReportsNow(node.member)) {
    text += fmt::format(", busy {:.0f} %", sum / known * 100);
  }
  return text;
}

void NodeTable(const std::vector<NodeSnapshot>& nodes, WallTime now,
               Html* html) {
  if (nodes.empty()) {
    html->Element("p", "no node has registered yet", "dim");
    return;
  }
  html->Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"node", "state", "pool", "CPU", "cores held", "GPUs held",
                "jobs", "heard of", "note"});
  for (const NodeSnapshot& node : nodes) {
    const Member& member = node.member;
    html->BeginRow().BeginCell().Link("/nodes", member.info.name).Raw("</td>");
    html->Cell(Name(member.state), StateClass(Name(member.state)));
    html->Cell(member.info.pool).BeginCell("n");
    if (ReportsNow(member)) html->Bar(member.readings.cpu_utilization);
    html->Raw("</td>").Cell(fmt::format("{:g} of {:g}", node.allocated.cpus,
                                        member.info.capacity.cpus),
                            "n");
    html->Cell(GpuText(node), "n").BeginCell();
    for (const JobName& job : node.jobs) html->Link("/jobs", job).Raw(" ");
    html->Raw("</td>").Cell(Ago(member.last_beat_wall, now), "n");
    html->Cell(NoteOf(member, now)).Raw("</tr>\n");
  }
  html->Raw("</table></div>\n");
}

void GpuTable(const Member& member, Html* html) {
  if (member.info.gpus.empty()) return;
  html->Element("h2", "GPUs")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"GPU", "model", "busy", "memory access", "memory used", "power",
                "temperature"});
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
    html->Raw("</tr>\n");
  }
  html->Raw("</table></div>\n");
}

}  // namespace

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

http::HttpResponse OverviewPage(const std::string& cluster,
                                const JobReader& reader,
                                const CoordinatorView& view) {
  Html html;
  html.Raw(PageHead(cluster, cluster));
  if (!view.store_healthy) {
    html.Element("p",
                 "The store cannot write: commands are rejected, running jobs "
                 "go on.",
                 "bad");
  }
  if (const std::string outdated = OutdatedText(view); !outdated.empty()) {
    html.Element("p", outdated, "bad");
  }
  std::vector<const JobSnapshot*> jobs;
  for (const auto& entry : view.jobs) jobs.push_back(&entry.snapshot);
  html.Element("h2", "Jobs");
  JobTable(reader, std::move(jobs), &html);
  html.Element("h2", "Nodes");
  NodeTable(view.nodes, view.time.wall, &html);
  return HtmlPage(cluster, html.str());
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
  JobTable(reader, std::move(list), &html);
  EventTable(member.events, &html);
  return HtmlPage(info.name + " - " + cluster, html.str());
}

http::HttpResponse ErrorPage(const std::string& cluster, const Status& status) {
  Html html;
  html.Raw(PageHead(cluster, "Not found")).Element("p", Message(status));
  return HtmlPage("Not found - " + cluster, html.str(),
                  status.code() == StatusCode::kNotFound ? 404 : 400);
}

}  // namespace lockstep::server
