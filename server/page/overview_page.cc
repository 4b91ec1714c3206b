#include "server/page/overview_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/ascii.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

// In the list of those who hold most GPUs.
constexpr size_t kOwnersShown = 8;

std::string NodesOfJob(const Job& job) {
  std::string nodes;
  size_t count = 0;
  for (const NodeName& node : NodesOf(job)) {
    if (++count > 4) continue;
    nodes += (nodes.empty() ? "" : ", ") + node;
  }
  return count > 4 ? fmt::format("{}, and {} more", nodes, count - 4) : nodes;
}

int GpusHeld(const Job& job) {
  size_t gpus = 0;
  for (const Hold& hold : job.holds) gpus += hold.gpus.size();
  return static_cast<int>(gpus);
}

// ", expected to start in 12 m 00 s".
std::string ExpectedText(const JobSnapshot& snapshot) {
  if (!snapshot.expected_start) return "";
  const Duration left = *snapshot.expected_start - snapshot.time;
  return left <= Duration{}
             ? std::string(", expected to start soon")
             : fmt::format(", expected to start in {}", FormatDuration(left));
}

void JobRow(const JobSnapshot& snapshot, int gpus, Html* html) {
  const Job& job = *snapshot.job;
  html->BeginRow().BeginCell().Link("/jobs", job.spec.name).Raw("</td>");
  html->Cell(job.owner);
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
  html->Cell(gpus > 0 ? std::to_string(gpus) : "", "n");
  html->Cell(NodesOfJob(job), "where");
  std::string why =
      WhyOf(job.state, snapshot.waiting ? *snapshot.waiting : job.cause);
  if (snapshot.queue_position > 0) {
    why = fmt::format("place {} of the queue{}{}{}", snapshot.queue_position,
                      ExpectedText(snapshot), why.empty() ? "" : ": ", why);
  }
  html->Cell(why).Raw("</tr>\n");
}

bool Contains(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char a, char b) {
                       return AsciiLower(a) == AsciiLower(b);
                     }) != text.end();
}

bool HasLabel(const JobSpec& spec, const std::string& label) {
  const size_t equals = label.find('=');
  const auto found = spec.labels.find(label.substr(0, equals));
  return found != spec.labels.end() &&
         (equals == std::string::npos ||
          found->second == label.substr(equals + 1));
}

bool HasState(JobState state, const std::string& wanted) {
  if (wanted == "active") return !IsFinal(state);
  if (wanted == "ended") return IsFinal(state);
  const std::string_view name = Name(state);
  return std::equal(name.begin(), name.end(), wanted.begin(), wanted.end(),
                    [](char a, char b) { return AsciiLower(a) == b; });
}

bool IsSelected(const JobReader& reader, const Job& job,
                const OverviewQuery& query) {
  const JobSpec& spec = job.spec;
  const bool sees = reader.Sees(job.owner);
  return (query.state.empty() || HasState(job.state, query.state)) &&
         (query.owner.empty() || Contains(job.owner, query.owner)) &&
         (query.label.empty() || (sees && HasLabel(spec, query.label))) &&
         (query.text.empty() || Contains(spec.name, query.text) ||
          (sees && Contains(spec.comment, query.text)));
}

double RateOf(const JobSnapshot& job) {
  return job.progress ? job.progress->samples_per_second : 0;
}

// Compares in the ascending order of a column. The default: unfinished ones
// first, then the newest.
bool IsBefore(const JobSnapshot& a, const JobSnapshot& b,
              const std::string& column) {
  if (column == "job") return a.job->spec.name < b.job->spec.name;
  if (column == "owner") return a.job->owner < b.job->owner;
  if (column == "state") return a.job->state < b.job->state;
  if (column == "since") return a.job->state_time > b.job->state_time;
  if (column == "rate") return RateOf(a) < RateOf(b);
  if (column == "gpus") return GpusHeld(*a.job) < GpusHeld(*b.job);
  const auto rank = [](const JobSnapshot& job) {
    return std::tuple(IsFinal(job.job->state),
                      -ToUnixNanos(job.job->create_time));
  };
  return rank(a) < rank(b);
}

// The address of the page with another order.
std::string LinkTo(const OverviewQuery& query, const std::string& sort) {
  std::string link = "/?";
  for (const auto& [name, value] :
       {std::pair("state", query.state), std::pair("owner", query.owner),
        std::pair("label", query.label), std::pair("text", query.text),
        std::pair("sort", sort)}) {
    if (value.empty()) continue;
    link += fmt::format("{}{}={}", link.back() == '?' ? "" : "&amp;", name,
                        EscapePath(value));
  }
  return link;
}

void HeadCell(const std::string& text, const std::string& column,
              const JobTableLinks& links, Html* html) {
  if (links.query == nullptr || column.empty()) {
    html->Element("th", text);
    return;
  }
  const std::string& sort = links.query->sort;
  const bool up = sort == column;
  const bool down = sort == "-" + column;
  html->Raw(fmt::format("<th><a href=\"{}\">{}{}</a></th>",
                        LinkTo(*links.query, up ? "-" + column : column), text,
                        up     ? " &#9650;"
                        : down ? " &#9660;"
                               : ""));
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

// The holder of each GPU, by node and index.
using Holders = std::map<std::pair<NodeName, int32_t>, const Job*>;

Holders HoldersOf(const CoordinatorView& view) {
  Holders holders;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    for (const Hold& hold : job.holds) {
      for (const int32_t gpu : hold.gpus) holders[{hold.node, gpu}] = &job;
    }
  }
  return holders;
}

void GpuCell(const Member& member, const Gpu& gpu, const Job* holder,
             Html* html) {
  std::string title = fmt::format("{} GPU {}", member.info.name, gpu.index);
  std::string colour = "idle";
  std::string sign;
  const std::string trouble = member.GpuTrouble(gpu);
  const GpuUsage* usage = nullptr;
  for (const GpuUsage& latest : member.readings.gpus) {
    if (latest.index == gpu.index) usage = &latest;
  }
  if (!trouble.empty()) {
    const GpuState state = member.StateOf(gpu);
    const bool passing =
        state == GpuState::kReclaim || state == GpuState::kChecking;
    colour = passing ? "reclaim" : "fault";
    sign = state == GpuState::kReclaim ? "r" : passing ? "c" : "x";
    title += ": " + trouble;
  } else if (!ReportsNow(member)) {
    colour = "silent";
    sign = "?";
    title += fmt::format(": the node is {}", Name(member.state));
  } else if (holder == nullptr && member.state != NodeState::kReady) {
    colour = "silent";
    sign = "-";
    title += fmt::format(": gets no work, the node is {}", Name(member.state));
  } else if (usage != nullptr && usage->utilization && holder != nullptr) {
    const double busy = *usage->utilization;
    colour =
        fmt::format("h{}", std::clamp(static_cast<int>(std::lround(busy * 9)),
                                      0, kHeatColours - 1));
    title += fmt::format(": busy {:.0f} %", busy * 100);
  } else {
    if (holder != nullptr) colour = "h0";
    title += holder == nullptr ? ": idle" : ": held";
  }
  if (holder != nullptr) {
    title += fmt::format(", {} ({})", holder->spec.name, holder->owner);
    html->Raw(fmt::format("<a class=\"g {}\" href=\"/jobs/{}\" title=\"",
                          colour, EscapePath(holder->spec.name)));
  } else {
    html->Raw(fmt::format("<a class=\"g {}\" href=\"/nodes/{}\" title=\"",
                          colour, EscapePath(member.info.name)));
  }
  html->Text(title).Raw("\">").Text(sign).Raw("</a>");
}

void GpuGrid(const CoordinatorView& view, Html* html) {
  const Holders holders = HoldersOf(view);
  size_t shown = 0;
  size_t all = 0;
  Html grid;
  for (const NodeSnapshot& node : view.nodes) {
    const Member& member = node.member;
    if (member.info.gpus.empty()) continue;
    all += member.info.gpus.size();
    if (shown >= kMaxGpusShown) continue;
    grid.Raw("<span class=\"box\">").Link("/nodes", member.info.name);
    for (const Gpu& gpu : member.info.gpus) {
      const auto holder = holders.find({member.info.name, gpu.index});
      GpuCell(member, gpu, holder == holders.end() ? nullptr : holder->second,
              &grid);
      ++shown;
    }
    grid.Raw("</span>\n");
  }
  if (all == 0) return;
  html->Element("h2", "GPUs")
      .Raw("<div class=\"grid\">\n" + grid.str() + "</div>\n");
  html->Raw("<div class=\"scale\"><a class=\"g idle\"></a> idle &nbsp; 0 ");
  for (int i = 0; i < kHeatColours; ++i) {
    html->Raw(fmt::format("<a class=\"g h{}\"></a>", i));
  }
  html->Raw(
      " 100 % busy &nbsp; <a class=\"g fault\">x</a> bad &nbsp; "
      "<a class=\"g reclaim\">r</a> reclaim &nbsp; "
      "<a class=\"g reclaim\">c</a> being checked &nbsp; "
      "<a class=\"g silent\">?</a> silent &nbsp; "
      "<a class=\"g silent\">-</a> gets no work");
  if (all > shown) {
    html->Text(fmt::format("; and {} more: lockstep nodes list", all - shown));
  }
  html->Raw("</div>\n");
}

std::string StateCounts(const CoordinatorView& view) {
  std::string text;
  for (const JobState state : kAllJobStates) {
    const auto count = view.jobs_by_state.find(state);
    if (count == view.jobs_by_state.end() || count->second == 0) continue;
    std::string name(Name(state));
    for (char& c : name) c = AsciiLower(c);
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", count->second, name);
  }
  return text.empty() ? "none" : text;
}

// "user/ann 12, user/bob 4".
std::string OwnersText(const CoordinatorView& view) {
  std::map<std::string, int> held;
  for (const auto& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    if (const int gpus = GpusHeld(job); gpus > 0) held[job.owner] += gpus;
  }
  std::vector<std::pair<int, std::string>> most;
  for (const auto& [owner, gpus] : held) most.emplace_back(-gpus, owner);
  std::sort(most.begin(), most.end());
  std::string text;
  for (size_t i = 0; i < std::min(most.size(), kOwnersShown); ++i) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", most[i].second,
                        -most[i].first);
  }
  if (most.size() > kOwnersShown) {
    text += fmt::format(", and {} more", most.size() - kOwnersShown);
  }
  return text;
}

void Totals(const CoordinatorView& view, Html* html) {
  Resources all, held;
  size_t ready = 0, gpus = 0;
  double busy = 0;
  int known = 0;
  for (const NodeSnapshot& node : view.nodes) {
    const Member& member = node.member;
    ready += static_cast<size_t>(member.state == NodeState::kReady);
    all.cpus += member.info.capacity.cpus;
    held.cpus += node.allocated.cpus;
    gpus += member.info.gpus.size();
    held.gpus += node.allocated.gpus;
    for (const GpuUsage& gpu : member.readings.gpus) {
      if (!gpu.utilization || !ReportsNow(member)) continue;
      busy += *gpu.utilization;
      ++known;
    }
  }
  html->Raw("<table class=\"facts\">\n");
  html->Fact("jobs", StateCounts(view));
  html->Fact("nodes", fmt::format("{} of {} ready", ready, view.nodes.size()));
  html->Fact("cores", fmt::format("{:g} of {:g} held", held.cpus, all.cpus));
  if (gpus > 0) {
    html->Fact("GPUs",
               fmt::format("{} of {} held{}", held.gpus, gpus,
                           known == 0 ? ""
                                      : fmt::format(", busy {:.0f} %",
                                                    busy / known * 100)));
    html->Fact("GPUs held by", OwnersText(view));
  }
  html->Raw("</table>\n");
}

void Field(const std::string& name, const std::string& value, Html* html) {
  html->Raw(fmt::format("<label>{0} <input name=\"{0}\" size=\"12\" value=\"",
                        name))
      .Text(value)
      .Raw("\"></label>");
}

void Form(const OverviewQuery& query, Html* html) {
  html->Raw("<form action=\"/\"><label>state <select name=\"state\">");
  for (const std::string_view state : kStateFilters) {
    html->Raw(fmt::format("<option value=\"{}\"{}>{}</option>", state,
                          state == query.state ? " selected" : "",
                          state.empty() ? "all" : state));
  }
  html->Raw("</select></label>");
  Field("owner", query.owner, html);
  Field("label", query.label, html);
  Field("text", query.text, html);
  if (!query.sort.empty()) {
    html->Raw("<input type=\"hidden\" name=\"sort\" value=\"")
        .Text(query.sort)
        .Raw("\">");
  }
  html->Raw("<button>show</button></form>\n");
}

}  // namespace

std::vector<const JobSnapshot*> SelectJobs(const JobReader& reader,
                                           const CoordinatorView& view,
                                           const OverviewQuery& query) {
  std::vector<const JobSnapshot*> jobs;
  for (const auto& entry : view.jobs) {
    if (IsSelected(reader, *entry.snapshot.job, query)) {
      jobs.push_back(&entry.snapshot);
    }
  }
  const bool down = query.sort.starts_with('-');
  const std::string column = query.sort.substr(down ? 1 : 0);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const JobSnapshot* a, const JobSnapshot* b) {
                     return down ? IsBefore(*b, *a, column)
                                 : IsBefore(*a, *b, column);
                   });
  return jobs;
}

void JobTable(const JobReader& reader,
              const std::vector<const JobSnapshot*>& jobs,
              const JobTableLinks& links, Html* html) {
  if (jobs.empty()) {
    html->Element("p", "none", "dim");
    return;
  }
  html->Raw("<div class=\"wide\"><table>\n");
  html->SetColumns({"job", "owner", "state", "since", "step", "samples/s",
                    "GPUs", "nodes", "why"});
  html->Raw("<tr>");
  for (const auto& [text, column] :
       {std::pair("job", "job"), std::pair("owner", "owner"),
        std::pair("state", "state"), std::pair("since", "since"),
        std::pair("step", ""), std::pair("samples/s", "rate"),
        std::pair("GPUs", "gpus"), std::pair("nodes", ""),
        std::pair("why", "")}) {
    HeadCell(text, column, links, html);
  }
  html->Raw("</tr>\n");
  for (size_t i = 0; i < std::min(jobs.size(), kMaxJobsShown); ++i) {
    JobRow(ShownTo(reader, *jobs[i]), GpusHeld(*jobs[i]->job), html);
  }
  html->Raw("</table></div>\n");
  if (jobs.size() > kMaxJobsShown) {
    html->Element("p",
                  fmt::format("and {} more: lockstep jobs list",
                              jobs.size() - kMaxJobsShown),
                  "dim");
  }
}

http::HttpResponse OverviewPage(const std::string& cluster,
                                const JobReader& reader,
                                const CoordinatorView& view,
                                const OverviewQuery& query) {
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
  Totals(view, &html);
  GpuGrid(view, &html);
  html.Element("h2", "Jobs");
  Form(query, &html);
  JobTable(reader, SelectJobs(reader, view, query), {&query}, &html);
  html.Element("h2", "Nodes");
  NodeTable(view.nodes, view.time.wall, &html);
  return HtmlPage(cluster, html.str());
}

}  // namespace lockstep::server
