#include "client/cli/lost_logs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "client/cli/text.h"

namespace lockstep::cli {
namespace {

// "worker-replica-1", like LogLine.task.
std::string ReplicaText(const v1::TaskStatus& task) {
  const bool first = task.type() == v1::TASK_TYPE_CHIEF;
  return fmt::format("{}-replica-{}", first ? "master" : Text(task.type()),
                     task.index());
}

bool Selects(const LogOptions& options, const v1::TaskStatus& task,
             int32_t rank) {
  const auto has = [](const auto& all, const auto& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (!options.ranks.empty() && !has(options.ranks, rank)) return false;
  if (options.tasks.empty()) return true;
  return has(options.tasks, ReplicaText(task)) ||
         (task.type() == v1::TASK_TYPE_CHIEF &&
          has(options.tasks, "chief-replica-0"));
}

using OnOpenLog = std::function<void(
    const v1::TaskStatus& task, const v1::RankStatus& rank, int32_t attempt)>;

void ForOpenLogs(const google::protobuf::RepeatedPtrField<v1::TaskStatus>& all,
                 int32_t attempt, const LogOptions& options,
                 const OnOpenLog& found) {
  if (options.attempt != 0 && options.attempt != attempt) return;
  for (const v1::TaskStatus& task : all) {
    for (const v1::RankStatus& rank : task.ranks()) {
      const bool runs = rank.state() >= v1::RANK_STATE_STARTED;
      if (runs && !rank.has_exit() && Selects(options, task, rank.rank())) {
        found(task, rank, attempt);
      }
    }
  }
}

void ForOpenLogs(const v1::Job& job, const LogOptions& options,
                 const OnOpenLog& found) {
  bool current_ended = false;
  for (const v1::Attempt& attempt : job.attempts()) {
    current_ended = current_ended || attempt.generation() == job.generation();
    ForOpenLogs(attempt.tasks(), attempt.ordinal(), options, found);
  }
  // An ended job's last attempt is in the list.
  if (!current_ended) ForOpenLogs(job.tasks(), job.attempt(), options, found);
}

// Returns why a node sends nothing, or "" if it is not silent.
std::string Silence(const std::string& name,
                    const std::vector<v1::Node>& nodes) {
  const auto node =
      std::find_if(nodes.begin(), nodes.end(),
                   [&](const v1::Node& each) { return each.name() == name; });
  if (node == nodes.end()) {
    return fmt::format("node {} is no longer in the cluster", Printable(name));
  }
  if (node->state() != v1::NODE_STATE_UNKNOWN &&
      node->state() != v1::NODE_STATE_LOST) {
    return "";
  }
  const bool has_heartbeat = node->has_last_heartbeat();
  return fmt::format(
      "node {} has been silent since {}", Printable(name),
      TimeText(has_heartbeat || node->has_state_time(),
               has_heartbeat ? node->last_heartbeat() : node->state_time()));
}

}  // namespace

bool HasOpenLogs(const v1::Job& job, const LogOptions& options) {
  bool found = false;
  ForOpenLogs(job, options,
              [&](const auto&, const auto&, int32_t) { found = true; });
  return found;
}

std::vector<std::string> LostLogs(const v1::Job& job,
                                  const std::vector<v1::Node>& nodes,
                                  const LogOptions& options) {
  std::vector<std::string> sentences;
  ForOpenLogs(
      job, options,
      [&](const v1::TaskStatus& task, const v1::RankStatus& rank,
          int32_t attempt) {
        const std::string silence = Silence(task.node(), nodes);
        if (silence.empty()) return;
        sentences.push_back(fmt::format(
            "the log of rank {}{} ends here: {}; later lines are on it",
            rank.rank(),
            job.attempt() > 1 ? fmt::format(" in attempt {}", attempt) : "",
            silence));
      });
  return sentences;
}

}  // namespace lockstep::cli
