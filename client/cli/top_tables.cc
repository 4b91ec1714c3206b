#include "client/cli/top_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "client/cli/describe_tasks.h"
#include "client/cli/job_view.h"
#include "client/cli/signs_text.h"
#include "client/lib/client.h"
#include "common/base/ascii.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

constexpr const char* kJobSorts[] = {"state", "name", "age", "speed"};
constexpr const char* kNodeSorts[] = {"name", "cpu", "gpu", "memory"};
constexpr int kSorts = 4;
constexpr int kGauge = 8;
constexpr int kLeastBar = 10;
constexpr int kMostBar = 40;

// Columns that a narrow screen has no room for, the first one first.
constexpr const char* kDropped[] = {"SAVED", "ETA", "RANKS", "LOSS",
                                    "SAMPLES/S"};

bool Contains(const std::string& text, const std::string& part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char a, char b) {
                       return AsciiLower(a) == AsciiLower(b);
                     }) != text.end();
}

// "ann" of "user/ann"; other kinds whole.
std::string OwnerText(const v1::Job& job) {
  constexpr std::string_view kUser = "user/";
  const std::string& owner = job.owner();
  if (owner.empty()) return "-";
  return Printable(owner.starts_with(kUser) ? owner.substr(kUser.size())
                                            : owner);
}

int SortOf(const TopView& view) {
  return ((view.sort % kSorts) + kSorts) % kSorts;
}

// "2 running, 1 queued".
template <typename Items>
std::string StateCounts(const Items& items) {
  std::map<int, std::pair<std::string, int>> counts;
  for (const auto& item : items) {
    auto& [name, count] = counts[item.state()];
    name = LowerCase(Text(item.state()));
    ++count;
  }
  std::string text;
  for (const auto& [state, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.second,
                        count.first);
  }
  return text.empty() ? "none" : text;
}

// The sums of capacity and use over the responding nodes.
struct Sums {
  double cpus = 0;
  double cpus_taken = 0;
  double cpus_busy = 0;
  int64_t memory = 0;
  int64_t memory_taken = 0;
  int gpus = 0;
  int gpus_taken = 0;
  double gpus_busy = 0;
  double watts = 0;
};

Sums SumNodes(const std::vector<v1::Node>& nodes) {
  Sums s;
  for (const v1::Node& node : nodes) {
    if (node.state() == v1::NODE_STATE_LOST) continue;
    s.cpus += node.capacity().cpus();
    s.cpus_taken += node.allocated().cpus();
    s.cpus_busy += node.cpu_utilization() * node.capacity().cpus();
    s.memory += node.capacity().memory_bytes();
    s.memory_taken += node.allocated().memory_bytes();
    s.gpus += node.capacity().gpus();
    s.gpus_taken += node.allocated().gpus();
    for (const v1::GpuUsage& gpu : node.gpu_usage()) {
      s.gpus_busy += gpu.utilization();
      s.watts += gpu.power_watts();
    }
  }
  return s;
}

int StateOrder(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_RUNNING:
      return 0;
    case v1::JOB_STATE_FINISHING:
      return 1;
    case v1::JOB_STATE_FORMING:
    case v1::JOB_STATE_PREPARING:
    case v1::JOB_STATE_PLACING:
      return 2;
    case v1::JOB_STATE_QUEUED:
      return 3;
    default:
      return 4;
  }
}

std::vector<const v1::Job*> SortedJobs(const TopState& state,
                                       const TopView& view) {
  std::vector<const v1::Job*> jobs;
  for (const v1::Job& job : state.sample().jobs) {
    if (Contains(job.name(), view.filter) ||
        Contains(OwnerText(job), view.filter) ||
        Contains(Text(job.state()), view.filter)) {
      jobs.push_back(&job);
    }
  }
  const int sort = SortOf(view);
  const auto speed = [](const v1::Job* job) {
    return IsFinalState(job->state()) ? 0
                                      : job->progress().samples_per_second();
  };
  std::stable_sort(
      jobs.begin(), jobs.end(), [&](const v1::Job* a, const v1::Job* b) {
        switch (sort) {
          case 1:
            return a->name() < b->name();
          case 2:
            return a->create_time().seconds() > b->create_time().seconds();
          case 3:
            return speed(a) > speed(b);
          default:
            return std::pair(StateOrder(*a), a->create_time().seconds()) <
                   std::pair(StateOrder(*b), b->create_time().seconds());
        }
      });
  if (view.reverse) std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

// The width of all columns but the last.
int WidthBeforeLast(const Table& table) {
  size_t used = 0;
  for (size_t i = 0; i + 1 < table.header.size(); ++i) {
    size_t column = table.header[i].size();
    for (const auto& row : table.rows) {
      column = std::max(column, VisibleWidth(row[i]));
    }
    used += column + 2;
  }
  return static_cast<int>(used);
}

void DropColumn(const std::string& name, Table* table) {
  const auto at = std::find(table->header.begin(), table->header.end(), name) -
                  table->header.begin();
  table->header.erase(table->header.begin() + at);
  for (auto& row : table->rows) row.erase(row.begin() + at);
}

double GpuBusy(const v1::Node& node) {
  double busy = 0;
  for (const v1::GpuUsage& gpu : node.gpu_usage()) busy += gpu.utilization();
  return node.gpu_usage_size() > 0 ? busy / node.gpu_usage_size() : 0;
}

double MemoryShare(const v1::Node& node) {
  const auto all = static_cast<double>(node.capacity().memory_bytes());
  return all > 0 ? static_cast<double>(node.allocated().memory_bytes()) / all
                 : 0;
}

std::vector<const v1::Node*> SortedNodes(const TopState& state,
                                         const TopView& view) {
  std::vector<const v1::Node*> nodes;
  for (const v1::Node& node : state.sample().nodes) {
    const bool runs = std::any_of(
        node.jobs().begin(), node.jobs().end(),
        [&](const std::string& job) { return Contains(job, view.filter); });
    if (runs || Contains(node.name(), view.filter) ||
        Contains(Text(node.state()), view.filter)) {
      nodes.push_back(&node);
    }
  }
  const int sort = SortOf(view);
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](const v1::Node* a, const v1::Node* b) {
                     switch (sort) {
                       case 1:
                         return a->cpu_utilization() > b->cpu_utilization();
                       case 2:
                         return GpuBusy(*a) > GpuBusy(*b);
                       case 3:
                         return MemoryShare(*a) > MemoryShare(*b);
                       default:
                         return a->name() < b->name();
                     }
                   });
  if (view.reverse) std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

// Returns how long it ran, as in `jobs list`; for a waiting job, how long it
// has been in this state.
std::string TimeOf(const v1::Job& job, WallTime now) {
  if (job.has_start_time() || IsFinalState(job.state())) {
    return RanText(job, now);
  }
  return job.has_state_time() ? Age(now - ToWallTime(job.state_time())) : "-";
}

std::string StepOf(const v1::Job& job) {
  const v1::RankProgress& chief = job.progress().chief();
  const int64_t step = std::max(job.committed_step(), chief.committed_step());
  if (const v1::ProgressSigns* signs = SignsOf(job);
      step <= 0 && signs != nullptr && signs->has_log_step()) {
    return signs->has_log_total()
               ? fmt::format("{}/{}", Grouped(signs->log_step()),
                             Grouped(signs->log_total()))
               : Grouped(signs->log_step());
  }
  if (step <= 0) return "-";
  if (chief.total_steps() <= 0) return Grouped(step);
  return fmt::format("{}/{}", Grouped(step), Grouped(chief.total_steps()));
}

std::vector<std::string> JobRow(const TopState& state, const v1::Job& job,
                                int bar, WallTime now, const Style& style) {
  const bool live = job.has_progress() && !IsFinalState(job.state());
  const v1::RankProgress& chief = job.progress().chief();
  std::string phases = PhaseBar(state.PhasesOf(job), bar);
  // A job without steps shows the reason instead, and a stalled one, too.
  const bool stalled = job.cause().reason() == v1::REASON_NO_PROGRESS;
  if (!live || stalled || phases.find_first_not_of(' ') == std::string::npos) {
    const v1::ProgressSigns* const signs = SignsOf(job);
    phases = job.state() != v1::JOB_STATE_RUNNING || stalled
                 ? CauseText(job, job.cause())
             : signs != nullptr ? "seen by " + SourceText(signs->source())
                                : "";
  } else if (const std::string problem = CauseText(job, job.cause());
             !problem.empty()) {
    phases += "  " + problem;
  }
  return {Printable(job.name()),
          OwnerText(job),
          style.State(job.state()),
          fmt::format("{}", RankCount(job.spec())),
          TimeOf(job, now),
          StepOf(job),
          live && job.progress().samples_per_second() > 0
              ? Number(job.progress().samples_per_second())
              : "-",
          live && chief.committed_step() > 0 && !job.details_hidden()
              ? Number(chief.loss())
              : "-",
          live && job.progress().has_eta()
              ? Age(ToDuration(job.progress().eta()))
              : "-",
          job.has_last_checkpoint() && job.last_checkpoint().has_time() &&
                  !IsFinalState(job.state())
              ? Age(now - ToWallTime(job.last_checkpoint().time()))
              : "-",
          phases};
}

std::vector<std::string> GpuRow(const v1::Node& node, const v1::Gpu& gpu,
                                const Style& style) {
  v1::GpuUsage usage;
  for (const v1::GpuUsage& each : node.gpu_usage()) {
    if (each.index() == gpu.index()) usage = each;
  }
  std::string memory = "-";
  if (usage.has_memory_used_bytes()) {
    memory = FormatBytes(usage.memory_used_bytes()) + "/" +
             FormatBytes(gpu.memory_bytes());
  }
  std::string text = Printable(gpu.job());
  if (usage.has_memory_access()) {
    text += fmt::format("{}memory access {:.0f} %", text.empty() ? "" : ", ",
                        usage.memory_access() * 100);
  }
  if (usage.has_power_watts()) {
    text += fmt::format("{}{:.0f} W", text.empty() ? "" : ", ",
                        usage.power_watts());
  }
  if (usage.has_temperature_celsius()) {
    text += fmt::format("{}{:.0f} C", text.empty() ? "" : ", ",
                        usage.temperature_celsius());
  }
  if (!gpu.fault().empty()) text = style.Red(Printable(gpu.fault()));
  return {fmt::format("  gpu {}", gpu.index()),
          Printable(gpu.model()),
          usage.has_utilization()
              ? fmt::format("{} {:3.0f} %", Gauge(usage.utilization(), kGauge),
                            usage.utilization() * 100)
              : "-",
          memory,
          "",
          text};
}

}  // namespace

std::vector<std::string> TopHeading(const TopState& state, const TopView& view,
                                    WallTime now, const Style& style) {
  std::string first = style.Bold("lockstep top");
  if (!view.address.empty()) first += "  " + view.address;
  std::string time = FormatWallTime(now);
  first += "  " + time.substr(11, 8) + " UTC";
  std::vector<std::string> lines;
  if (state.empty()) {
    lines.push_back(first);
    lines.push_back(state.trouble().empty()
                        ? "contacting the coordinator"
                        : style.Red(Printable(state.trouble())));
    lines.push_back("");
    return lines;
  }
  const TopSample& sample = state.sample();
  lines.push_back(fmt::format("{}  jobs: {}  nodes: {}", first,
                              StateCounts(sample.jobs),
                              StateCounts(sample.nodes)));
  const Sums s = SumNodes(sample.nodes);
  std::string second = fmt::format(
      "CPU {:g}/{:g} taken, {:.0f} % busy  memory {}/{} taken", s.cpus_taken,
      s.cpus, s.cpus > 0 ? s.cpus_busy / s.cpus * 100 : 0,
      FormatBytes(s.memory_taken), FormatBytes(s.memory));
  if (s.gpus > 0) {
    second +=
        fmt::format("  GPU {}/{} taken, {:.0f} % busy, {:.0f} W", s.gpus_taken,
                    s.gpus, s.gpus_busy / s.gpus * 100, s.watts);
  }
  lines.push_back(second);
  lines.push_back(
      state.trouble().empty()
          ? ""
          : style.Red(fmt::format("as of {} ago: {}", Age(now - sample.time),
                                  Printable(state.trouble()))));
  return lines;
}

std::vector<std::string> TopJobNames(const TopState& state,
                                     const TopView& view) {
  std::vector<std::string> names;
  for (const v1::Job* job : SortedJobs(state, view)) {
    names.push_back(job->name());
  }
  return names;
}

Table TopJobsTable(const TopState& state, const TopView& view, int width,
                   WallTime now, const Style& style) {
  Table table{{"JOB", "OWNER", "STATE", "RANKS", "TIME", "STEP", "SAMPLES/S",
               "LOSS", "ETA", "SAVED", "PHASES"},
              {}};
  const std::vector<const v1::Job*> jobs = SortedJobs(state, view);
  for (const v1::Job* job : jobs) {
    table.rows.push_back(JobRow(state, *job, 0, now, style));
  }
  // The bar takes the remaining width.
  int used = WidthBeforeLast(table);
  for (const char* column : kDropped) {
    if (used + kLeastBar <= width) break;
    DropColumn(column, &table);
    used = WidthBeforeLast(table);
  }
  const int bar = std::clamp(width - used, kLeastBar, kMostBar);
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::vector<std::string>& row = table.rows[i];
    row.back() = JobRow(state, *jobs[i], bar, now, style).back();
    if (!IsFinalState(jobs[i]->state())) continue;
    for (std::string& cell : row) cell = style.Dim(cell);
  }
  return table;
}

std::string TopRanksText(const TopState& state, const TopView& view) {
  const auto& focus = state.sample().focus;
  if (!focus || focus->name() != view.job) {
    return fmt::format("JOB {}\nno answer about it yet\n", Printable(view.job));
  }
  const std::string ranks = RanksTable(*focus);
  if (!ranks.empty()) return ranks;
  const std::string cause = CauseText(*focus, focus->cause());
  return fmt::format("JOB {}\nit has no ranks now: it is {}{}\n",
                     Printable(view.job), Text(focus->state()),
                     cause.empty() ? "" : ", " + Printable(cause));
}

Table TopNodesTable(const TopState& state, const TopView& view, WallTime now,
                    const Style& style) {
  Table table{{"NODE", "STATE", "BUSY", "MEMORY", "TAKEN", "JOBS"}, {}};
  for (const v1::Node* node : SortedNodes(state, view)) {
    std::string state_text = style.State(node->state());
    const bool silent = node->state() == v1::NODE_STATE_UNKNOWN ||
                        node->state() == v1::NODE_STATE_LOST;
    if (silent && node->has_last_heartbeat()) {
      state_text += " " + Age(now - ToWallTime(node->last_heartbeat()));
    }
    std::string taken = fmt::format(
        "{:g}/{:g} cpus, {}/{}", node->allocated().cpus(),
        node->capacity().cpus(), FormatBytes(node->allocated().memory_bytes()),
        FormatBytes(node->capacity().memory_bytes()));
    if (node->capacity().gpus() > 0) {
      taken += fmt::format(", {}/{} gpus", node->allocated().gpus(),
                           node->capacity().gpus());
    }
    table.rows.push_back(
        {Printable(node->name()), state_text,
         silent ? "-"
                : fmt::format("{} {:3.0f} %",
                              Gauge(node->cpu_utilization(), kGauge),
                              node->cpu_utilization() * 100),
         FormatBytes(node->memory_available_bytes()) + " free", taken,
         Printable(fmt::format("{}", fmt::join(node->jobs(), " ")))});
    for (const v1::Gpu& gpu : node->gpus()) {
      table.rows.push_back(GpuRow(*node, gpu, style));
    }
  }
  return table;
}

std::string TopKeys(const TopView& view, int hidden, const Style& style) {
  if (view.typing) {
    return fmt::format("/{}_  Enter ends, Ctrl-U clears",
                       Printable(view.filter));
  }
  const bool jobs = view.screen == TopScreen::kJobs;
  std::string text;
  if (view.screen == TopScreen::kRanks) {
    text = "q quit  Enter jobs  n nodes  ranks of " + Printable(view.job);
  } else {
    text = fmt::format(
        "q quit  {}  </> sort: {}{}  r reverse{}  / filter{}",
        jobs ? "n nodes" : "j jobs",
        jobs ? kJobSorts[SortOf(view)] : kNodeSorts[SortOf(view)],
        view.reverse ? " (reversed)" : "", jobs ? "  Enter ranks" : "",
        view.filter.empty() ? "" : ": " + Printable(view.filter));
  }
  if (hidden > 0) {
    text += fmt::format("  up/down scroll ({} above, {} below)", view.scroll,
                        hidden - view.scroll);
  }
  if (jobs) {
    text +=
        "  phases: c compute, r all-reduce, w wait, i input, o optimizer, "
        "k checkpoint, e evaluation, m compile";
  }
  return style.Dim(text);
}

}  // namespace lockstep::cli
