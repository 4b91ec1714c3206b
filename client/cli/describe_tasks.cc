#include "client/cli/describe_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "client/cli/describe.h"
#include "client/cli/job_view.h"
#include "client/cli/text.h"
#include "client/lib/client.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

// "allreduce, waits for rank 1"; "compute, not responsive" where its process is
// stopped, or gets no processor.
std::string PhaseText(const v1::RankProgress& progress) {
  std::string text = Printable(progress.phase());
  if (!progress.has_collective_wait()) return text;
  const v1::CollectiveWait& wait = progress.collective_wait();
  if (!wait.responsive() && progress.phase() != "finished") {
    return text + ", not responsive";
  }
  // A communicator's thread may wait while the rank computes.
  const bool waits = progress.phase() == "allreduce";
  if (waits && wait.waiting() && wait.has_peer()) {
    text += fmt::format(", waits for rank {}", wait.peer());
  }
  return text;
}

std::string RankStateText(const v1::RankStatus& rank) {
  if (rank.has_exit()) return DescribeExit(rank.exit());
  std::string text = Text(rank.state());
  if (!rank.progress().phase().empty()) {
    text += " (" + PhaseText(rank.progress()) + ")";
  }
  if (rank.restarts() > 0) text += ", " + Count(rank.restarts(), "restart");
  if (rank.away()) text += ", away";
  return text;
}

// Current memory, or the peak after the end.
std::string MemoryText(const v1::Usage& usage) {
  const int64_t bytes = usage.memory_bytes() > 0 ? usage.memory_bytes()
                                                 : usage.memory_peak_bytes();
  return bytes > 0 ? FormatBytes(bytes) : "-";
}

// Returns the tasks of the current or last attempt, once each.
std::vector<const v1::TaskStatus*> LastTasks(const v1::Job& job) {
  std::vector<const v1::TaskStatus*> tasks;
  for (const RankView& view : LastRanks(job)) {
    if (tasks.empty() || tasks.back() != view.task) tasks.push_back(view.task);
  }
  return tasks;
}

constexpr const char* kParts[] = {"fetch", "ports", "preflight", "exec"};
// "output" takes long if hosts see different output directories.
constexpr const char* kAllParts[] = {"fetch", "ports", "preflight", "output",
                                     "exec"};
constexpr int kWorkTasks = 5;
constexpr int kWorkNames = 10;

Duration PartOf(const v1::TaskPreparation& preparation,
                const std::string& part) {
  Duration sum{};
  for (const v1::PhaseDuration& each : preparation.parts()) {
    if (each.phase() == part) sum += ToDuration(each.duration());
  }
  return sum;
}
Duration TotalOf(const v1::TaskPreparation& preparation) {
  Duration sum{};
  for (const v1::PhaseDuration& each : preparation.parts()) {
    sum += ToDuration(each.duration());
  }
  return sum;
}

// "worker 1 on host-b took longest: 12.3 s, 11 s of it for fetch".
std::string SlowestText(const std::vector<const v1::TaskStatus*>& tasks) {
  const auto slowest = std::max_element(
      tasks.begin(), tasks.end(), [](const auto* a, const auto* b) {
        return TotalOf(a->preparation()) < TotalOf(b->preparation());
      });
  const v1::TaskPreparation& preparation = (*slowest)->preparation();
  std::string part;
  for (const char* each : kAllParts) {
    if (part.empty() || PartOf(preparation, each) > PartOf(preparation, part)) {
      part = each;
    }
  }
  return fmt::format("{} on {} took longest: {}, {} of it for {}\n",
                     TaskText(**slowest), Printable((*slowest)->node()),
                     FormatDuration(TotalOf(preparation)),
                     FormatDuration(PartOf(preparation, part)), part);
}

// Sums over the ranks of a task.
struct TaskUse {
  double cores = 0;
  std::optional<double> peak_cores;
  int64_t memory = 0;
  int64_t peak_memory = 0;
  double seconds = 0;
  double gpu_seconds = 0;
  double gpu_busy = 0;
  std::optional<double> gpu_peak;
  std::optional<int64_t> gpu_memory;
  std::optional<int64_t> sent;
  std::optional<int64_t> received;

  void Add(const v1::Usage& usage) {
    if (usage.seconds() > 0) cores += usage.cpu_seconds() / usage.seconds();
    if (usage.has_cpu_peak_cores()) {
      peak_cores = peak_cores.value_or(0) + usage.cpu_peak_cores();
    }
    memory += usage.memory_bytes();
    peak_memory += usage.memory_peak_bytes();
    seconds = std::max(seconds, usage.seconds());
    if (usage.has_gpu_utilization()) {
      gpu_seconds += usage.seconds();
      gpu_busy += usage.gpu_utilization() * usage.seconds();
    }
    if (usage.has_gpu_utilization_peak()) {
      gpu_peak = std::max(gpu_peak.value_or(0), usage.gpu_utilization_peak());
    }
    if (usage.has_gpu_memory_peak_bytes()) {
      gpu_memory = gpu_memory.value_or(0) + usage.gpu_memory_peak_bytes();
    }
    if (usage.has_network_sent_bytes()) {
      sent = sent.value_or(0) + usage.network_sent_bytes();
      received = received.value_or(0) + usage.network_received_bytes();
    }
  }
};

// "1.2 GiB", "-": unknown.
std::string KnownBytes(const std::optional<int64_t>& bytes) {
  return bytes ? FormatBytes(*bytes) : "-";
}

// "1.2 GiB out, 300 MiB in", "-": unknown.
std::string NetworkText(const v1::Usage& usage) {
  if (!usage.has_network_sent_bytes()) return "-";
  return fmt::format("{} out, {} in", FormatBytes(usage.network_sent_bytes()),
                     FormatBytes(usage.network_received_bytes()));
}

// "snapshot.pt 20 MiB, wandb/".
std::string EntriesText(const v1::WorkDirectory& work) {
  std::vector<std::string> names;
  for (const v1::WorkFile& file : work.entries()) {
    if (names.size() == kWorkNames) {
      names.push_back("...");
      break;
    }
    names.push_back(file.directory() ? Printable(file.path()) + "/"
                                     : Printable(file.path()) + " " +
                                           FormatBytes(file.bytes()));
  }
  return names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", "));
}

// "c (before: a, b)".
std::string NodeText(const v1::TaskStatus& task) {
  std::string text = Printable(task.node());
  if (task.former_nodes().empty()) return text;
  std::vector<std::string> before;
  for (const std::string& node : task.former_nodes()) {
    before.push_back(Printable(node));
  }
  return text + fmt::format(" (before: {})", fmt::join(before, ", "));
}

std::string Percent(double share) {
  return fmt::format("{:.0f} %", share * 100);
}

}  // namespace

std::string RanksTable(const v1::Job& job) {
  std::vector<std::vector<std::string>> rows;
  for (const RankView& view : LastRanks(job)) {
    const v1::Usage& usage = view.rank->usage();
    rows.push_back(
        {fmt::format("{}", view.rank->rank()), TaskText(*view.task),
         NodeText(*view.task), RankStateText(*view.rank),
         view.rank->progress().committed_step() > 0
             ? Grouped(view.rank->progress().committed_step())
             : "-",
         usage.seconds() > 0 ? fmt::format("{:.2f} cores", usage.cpu_seconds() /
                                                               usage.seconds())
                             : "-",
         MemoryText(usage), NetworkText(usage),
         view.task->gpus().empty()
             ? "-"
             : fmt::format("{}", fmt::join(view.task->gpus(), ","))});
  }
  if (rows.empty()) {
    return job.tasks().empty() ? "" : FormatPlacement(job.tasks());
  }
  return RenderTable({"RANK", "TASK", "NODE", "STATE", "STEP", "CPU", "MEMORY",
                      "NETWORK", "GPUS"},
                     rows);
}

std::string PreparationTable(const v1::Job& job) {
  std::vector<const v1::TaskStatus*> tasks;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.preparation().parts_size() > 0 ||
        !task.preparation().current().empty()) {
      tasks.push_back(&task);
    }
  }
  if (tasks.empty()) return "";
  Table table{{"TASK", "NODE", "FETCH", "PORTS", "PREFLIGHT", "EXEC", "NOW"},
              {}};
  bool all_ready = true;
  for (const v1::TaskStatus* task : tasks) {
    const v1::TaskPreparation& preparation = task->preparation();
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {TaskText(*task), Printable(task->node())};
    for (const char* part : kParts) {
      const Duration took = PartOf(preparation, part);
      row.push_back(took > Duration::zero() ? FormatDuration(took) : "-");
    }
    std::string now = Printable(preparation.current());
    if (!preparation.detail().empty()) {
      now += (now.empty() ? "" : ": ") + Printable(preparation.detail());
    }
    all_ready = all_ready && preparation.current().empty();
    row.push_back(now);
  }
  std::string text = RenderTable(table);
  if (tasks.size() > 1 || !all_ready) text += SlowestText(tasks);
  return text;
}

std::string UseTable(const v1::Job& job) {
  Table table{{"TASK", "CPU", "CPU PEAK", "MEMORY", "MEMORY PEAK", "SENT",
               "RECEIVED", "GPU", "GPU PEAK", "GPU MEMORY PEAK"},
              {}};
  bool any_gpu = false;
  bool any_network = false;
  for (const v1::TaskStatus* task : LastTasks(job)) {
    TaskUse use;
    for (const v1::RankStatus& rank : task->ranks()) use.Add(rank.usage());
    if (use.seconds <= 0) continue;
    any_network = any_network || use.sent.has_value();
    any_gpu = any_gpu || use.gpu_seconds > 0 || use.gpu_memory.has_value();
    table.rows.push_back(
        {TaskText(*task), fmt::format("{:.2f} cores", use.cores),
         use.peak_cores ? fmt::format("{:.2f} cores", *use.peak_cores) : "-",
         use.memory > 0 ? FormatBytes(use.memory) : "-",
         use.peak_memory > 0 ? FormatBytes(use.peak_memory) : "-",
         KnownBytes(use.sent), KnownBytes(use.received),
         use.gpu_seconds > 0 ? Percent(use.gpu_busy / use.gpu_seconds) : "-",
         use.gpu_peak ? Percent(*use.gpu_peak) : "-",
         KnownBytes(use.gpu_memory)});
  }
  if (table.rows.empty()) return "";
  if (!any_gpu) {
    table.header.resize(7);
    for (auto& row : table.rows) row.resize(7);
  }
  if (!any_network) {
    const auto drop = [](std::vector<std::string>* row) {
      row->erase(row->begin() + 5, row->begin() + 7);
    };
    drop(&table.header);
    for (auto& row : table.rows) drop(&row);
  }
  return RenderTable(table);
}

std::vector<std::string> BadGpusOf(const v1::Job& job,
                                   const std::vector<v1::Node>& nodes) {
  std::vector<std::string> lines;
  if (IsFinalState(job.state())) return lines;
  std::map<std::string, const v1::Node*> by_name;
  for (const v1::Node& node : nodes) by_name[node.name()] = &node;
  for (const v1::TaskStatus& task : job.tasks()) {
    const auto node = by_name.find(task.node());
    if (node == by_name.end()) continue;
    const auto add = [&](const v1::Gpu& gpu, const std::string& trouble) {
      const auto& used = task.gpus();
      if (trouble.empty() ||
          std::find(used.begin(), used.end(), gpu.index()) == used.end()) {
        return;
      }
      lines.push_back(fmt::format("{} uses GPU {} of node {}: {}",
                                  TaskText(task), gpu.index(),
                                  Printable(task.node()), Printable(trouble)));
    };
    for (const v1::Gpu& gpu : node->second->gpus()) add(gpu, gpu.fault());
    for (const v1::Gpu& gpu : node->second->missing_gpus()) {
      add(gpu, "the node no longer offers it");
    }
  }
  return lines;
}

std::string WorkText(const v1::Job& job) {
  std::string text;
  int shown = 0;
  int more = 0;
  // Ended attempts keep only the sums.
  for (const v1::TaskStatus& task : job.tasks()) {
    const v1::WorkDirectory& work = task.work();
    if (work.files() == 0 && !work.truncated()) continue;
    if (++shown > kWorkTasks) {
      ++more;
      continue;
    }
    text += fmt::format("{}: {}{} in its working directory on node {}, {}{}\n",
                        TaskText(task), work.truncated() ? "over " : "",
                        Count(work.files(), "file"), Printable(task.node()),
                        FormatBytes(work.bytes()), EntriesText(work));
  }
  if (text.empty()) return text;
  if (more > 0) text += "and " + Count(more, "other task") + "\n";
  return text + fmt::format("`lockstep jobs files {}` lists them\n",
                            Printable(job.name()));
}

}  // namespace lockstep::cli
