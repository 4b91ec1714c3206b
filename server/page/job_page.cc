// The page of one job.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "server/core/rescale.h"
#include "server/core/verdict.h"
#include "server/page/html.h"
#include "server/page/job_curves.h"
#include "server/page/page_query.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

constexpr size_t kEventsShown = 100;
constexpr size_t kRanksShown = 256;

RankStatus Newest(const JobSnapshot& snapshot, const RankStatus& stored) {
  const auto live = snapshot.live.find(stored.rank);
  // The stored state of an ended rank is final.
  return live == snapshot.live.end() || stored.exit ? stored : live->second;
}

std::string GpuList(const std::vector<int32_t>& gpus) {
  return fmt::format("{}", fmt::join(gpus, " "));
}

std::string BareStateText(const RankStatus& rank) {
  if (rank.exit) return Describe(*rank.exit);
  switch (rank.state) {
    case RankState::kPrepared:
      return "prepared";
    case RankState::kStarted:
      return "started";
    case RankState::kJoined:
      return rank.progress.phase.empty() ? "joined"
                                         : "in " + rank.progress.phase;
    case RankState::kExited:
      break;
  }
  return "exited";
}

std::string StateText(const RankStatus& rank) {
  std::string text = BareStateText(rank);
  if (rank.restarts > 0) {
    text += fmt::format(", {} restart{}", rank.restarts,
                        rank.restarts == 1 ? "" : "s");
  }
  if (rank.away) text += ", away";
  return text;
}

void Facts(const JobSnapshot& snapshot, Html* html) {
  const Job& job = *snapshot.job;
  html->Raw("<table class=\"facts\">\n<tr>").Element("th", "state");
  html->Element("td",
                fmt::format("{}{}", Name(job.state),
                            job.failing ? " (being stopped)" : ""),
                StateClass(Name(job.state)))
      .Raw("</tr>\n");
  // A failed job's page begins with it.
  if (job.state != JobState::kFailed) {
    html->Fact("why", WhyOf(job.state, job.cause));
  }
  if (snapshot.waiting) html->Fact("now", snapshot.waiting->message);
  html->Fact("since", fmt::format("{} ({})", Ago(job.state_time, snapshot.time),
                                  FormatWallTime(job.state_time)));
  html->Fact("owner", job.owner).Fact("comment", job.spec.comment);
  html->Fact("submitted", FormatWallTime(job.create_time));
  html->Fact("attempt", fmt::format("{}, {} restarts, {} recoveries",
                                    job.attempt, job.restarts, job.recoveries));
  if (job.spec.rescale) {
    html->Fact("size", fmt::format("{} of {} tasks; may run with {} to {}",
                                   SizeOf(job), SizeOf(job.spec),
                                   LeastSize(job.spec), SizeOf(job.spec)));
  }
  if (IsFinal(job.state))
    html->Fact("exit code", std::to_string(job.exit_code));
  html->Fact("output", job.spec.output_directory);
  if (job.last_checkpoint) {
    const Checkpoint& c = *job.last_checkpoint;
    html->Fact("checkpoint",
               fmt::format("step {}, {}, {} ago{}{}", c.step,
                           FormatBytes(c.bytes), Ago(c.time, snapshot.time),
                           c.path.empty() ? "" : ", ", c.path));
  }
  html->Fact("used", fmt::format("{:.2f} core hours, {:.2f} GPU hours",
                                 snapshot.bill.core_seconds / 3600,
                                 snapshot.bill.gpu_seconds / 3600));
  html->Fact("cost", fmt::format("{:.4f} {}", snapshot.bill.cost,
                                 snapshot.bill.currency));
  if (snapshot.details_hidden) {
    html->Fact("not shown",
               "messages, arguments, environment, labels and paths: they are "
               "for the owner and admins (lockstep jobs describe), unless the "
               "site sets visibility: cluster");
  }
  html->Raw("</table>\n");
}

// A program need not report one.
bool MayHaveLoss(const JobSnapshot& snapshot) {
  return snapshot.job->spec.kind == JobKind::kNative ||
         snapshot.progress->chief.loss != 0;
}

// The signs of the rank that speaks for a program: of the best source, and of
// those the newest.
const ProgressSigns* SignsOf(const JobSnapshot& snapshot) {
  const ProgressSigns* best = nullptr;
  for (const auto& [number, rank] : snapshot.live) {
    if (rank.exit || !rank.progress.signs) continue;
    const ProgressSigns& signs = *rank.progress.signs;
    if (best == nullptr || signs.source > best->source ||
        (signs.source == best->source && signs.still < best->still)) {
      best = &signs;
    }
  }
  return best;
}

void Signs(const JobSnapshot& snapshot, Html* html) {
  const ProgressSigns* const signs = SignsOf(snapshot);
  if (signs == nullptr || snapshot.job->state != JobState::kRunning) return;
  html->Element("h2", "Signs of progress").Raw("<table class=\"facts\">\n");
  html->Fact("seen by", std::string(Name(signs->source)));
  if (signs->log_step) {
    html->Fact("step in the log",
               signs->log_total ? fmt::format("{} of {}", *signs->log_step,
                                              *signs->log_total)
                                : std::to_string(*signs->log_step));
  }
  html->Fact("last sign", FormatDuration(signs->still) + " ago");
  html->Fact("stalled after", FormatDuration(signs->limit));
  html->Raw("</table>\n");
}

void Speed(const JobSnapshot& snapshot, std::optional<int32_t> late_rank,
           Html* html) {
  if (!snapshot.progress) return;
  const JobProgressInfo& progress = *snapshot.progress;
  const RankProgress& chief = progress.chief;
  if (chief.committed_step < 0) return;
  html->Element("h2", "Progress").Raw("<table class=\"facts\">\n<tr>");
  html->Element("th", "step").Raw("<td>");
  AddSteps(chief, html);
  html->Raw("</td></tr>\n");
  html->Fact("speed", fmt::format("{:.1f} samples/s, {:.2f} steps/s",
                                  progress.samples_per_second,
                                  progress.steps_per_second));
  if (progress.eta) html->Fact("left", FormatDuration(*progress.eta));
  html->Fact("epoch", fmt::format("{:.0f}", chief.epoch));
  if (!snapshot.details_hidden && MayHaveLoss(snapshot)) {
    html->Fact("loss", fmt::format("{:.6g}", chief.loss));
  }
  if (late_rank) {
    html->Fact("slowest", RankLabel(*snapshot.job, *late_rank) +
                              ": the others wait for it");
  }
  html->Raw("</table>\n");
}

void StepPhases(const JobSnapshot& snapshot, Html* html) {
  const bool any = std::any_of(
      snapshot.live.begin(), snapshot.live.end(),
      [](const auto& entry) { return entry.second.progress.phases.Sum() > 0; });
  if (!any) return;
  html->Element("h2", "Time of each rank")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"rank", "input", "compute", "all-reduce", "waiting for others",
                "optimizer", "checkpoint", "evaluation", "compile", "other"});
  size_t shown = 0;
  for (const auto& [number, rank] : snapshot.live) {
    if (++shown > kRanksShown) break;
    const PhaseSeconds& p = rank.progress.phases;
    const double sum = p.Sum();
    if (sum <= 0) continue;
    html->BeginRow().Cell(std::to_string(number), "n");
    for (const double seconds :
         {p.input, p.compute, p.allreduce, p.straggler_wait, p.optimizer,
          p.checkpoint, p.evaluation, p.compile, p.other}) {
      html->Cell(fmt::format("{:.1f} %", seconds / sum * 100), "n");
    }
    html->Raw("</tr>\n");
  }
  html->Raw("</table></div>\n");
}

void Links(const Job& job, const std::string& grafana, Html* html) {
  const std::string path = "/jobs/" + EscapePath(job.spec.name);
  html->Raw("<nav>");
  for (const auto& [page, text] :
       {std::pair("logs", "logs"), std::pair("why", "why it is so")}) {
    html->Raw(fmt::format("<a href=\"{}/{}\">{}</a>", path, page, text));
  }
  html->Raw(fmt::format("<a href=\"/compare?job={}\">compare</a>",
                        EscapePath(job.spec.name)));
  if (!grafana.empty()) {
    html->Raw(fmt::format("<a href=\"{}\">Grafana</a>", EscapeHtml(grafana)));
  }
  html->Raw("</nav>\n");
}

// The cause and the last lines: the first thing to know about a failed job.
void Failed(const JobSnapshot& snapshot, const JobExtras& extras, Html* html) {
  const Job& job = *snapshot.job;
  html->Raw("<div class=\"alarm\">");
  const std::string why = WhyOf(job.state, job.cause);
  html->Element("p", why.empty() ? "It failed." : "It failed: " + why, "bad");
  if (!snapshot.details_hidden && extras.last_lines) {
    const auto log = FailedLogOf(job);
    if (log) {
      html->Element("p",
                    "The last lines of " + RankLabel(job, log->rank) + ":");
    }
    AddLogLines(extras.last_lines->lines, html);
  }
  html->Raw("</div>\n");
}

void Curves(const JobSnapshot& snapshot, const JobExtras& extras, Html* html) {
  const Job& job = *snapshot.job;
  html->Element("h2", "History");
  if (snapshot.details_hidden) {
    html->Element("p",
                  "Curves and logs are for the owner and admins, unless the "
                  "site sets visibility: cluster.",
                  "dim");
    return;
  }
  html->Raw("<nav>");
  for (const NamedSpan& span : kSpans) {
    if (span.name == extras.span) {
      html->Element("b", span.text);
    } else {
      html->Raw(fmt::format("<a href=\"/jobs/{}?span={}\">{}</a>",
                            EscapePath(job.spec.name), span.name, span.text));
    }
  }
  html->Raw("</nav>\n");
  if (extras.history.empty()) {
    html->Element("p",
                  job.start_time ? "There are no curves of this time."
                                 : "There are no curves before its start.",
                  "dim");
    return;
  }
  AddJobCurves(job, extras.history, html);
}

std::string Joined(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& argument : argv) {
    const bool plain =
        !argument.empty() &&
        argument.find_first_of(" \t\n\"'\\$&|;<>()*?`#~") == std::string::npos;
    text += (text.empty() ? "" : " ") +
            (plain ? argument : fmt::format("\"{}\"", argument));
  }
  return text;
}

// The command, resources, images and packages.
void Program(const JobSpec& spec, Html* html) {
  html->Element("h2", "Program").Raw("<table class=\"facts\">\n");
  html->Fact("kind", Name(spec.kind));
  html->Fact("command", Joined(spec.argv.get()));
  for (const RoleSpec& role : spec.roles.get()) {
    std::string text =
        fmt::format("{} of {}", role.count, Describe(role.resources));
    if (role.ranks_per_task > 1) {
      text += fmt::format(", {} ranks each", role.ranks_per_task);
    }
    if (role.container) text += ", image " + role.container->image;
    if (!role.argv.empty()) text += ": " + Joined(role.argv);
    html->Fact(Name(role.type), text);
  }
  html->Fact("pool", spec.pool).Fact("directory", spec.working_directory);
  html->Fact("runtime", spec.runtime.name);
  std::string packages;
  for (const Package& package : spec.packages) {
    packages +=
        fmt::format("{}{} ({}, {})", packages.empty() ? "" : ", ",
                    package.file_name.empty() ? "code" : package.file_name,
                    package.digest.substr(0, 19), FormatBytes(package.bytes));
  }
  html->Fact("packages", packages);
  std::string labels;
  for (const auto& [name, value] : spec.labels) {
    labels += fmt::format("{}{}={}", labels.empty() ? "" : ", ", name, value);
  }
  html->Fact("labels", labels).Raw("</table>\n");
}

void Phases(const JobSnapshot& snapshot, Html* html) {
  const Job& job = *snapshot.job;
  if (job.phase_durations.empty() && job.state_time == WallTime{}) return;
  html->Element("h2", "Phases").Raw("<table class=\"facts\">\n");
  for (const JobState state : kAllJobStates) {
    const Duration time = PhaseDuration(job, state, snapshot.time);
    if (time > Duration{} && !PhaseName(state).empty()) {
      html->Fact(PhaseName(state), FormatDuration(time));
    }
  }
  html->Raw("</table>\n");
}

void Tasks(const JobSnapshot& snapshot, Html* html) {
  const Job& job = *snapshot.job;
  if (job.tasks.empty()) return;
  html->Element("h2", "Tasks")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"task", "node", "GPUs", "rank", "state", "pid", "CPU time",
                "memory"});
  size_t shown = 0;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& stored : task.ranks) {
      if (++shown > kRanksShown) break;
      const RankStatus rank = Newest(snapshot, stored);
      html->BeginRow().Cell(TaskName(task.type, task.index));
      html->BeginCell().Link("/nodes", task.node).Raw("</td>");
      html->Cell(GpuList(task.gpus), "n");
      html->Cell(std::to_string(rank.rank), "n");
      html->Cell(StateText(rank));
      html->Cell(rank.pid > 0 ? std::to_string(rank.pid) : "", "n");
      html->Cell(FormatDuration(Seconds(rank.usage.cpu_seconds)), "n");
      // An ended rank holds no memory.
      html->Cell(rank.exit ? FormatBytes(rank.usage.memory_peak_bytes) + " peak"
                           : FormatBytes(rank.usage.memory_bytes),
                 "n");
      html->Raw("</tr>\n");
    }
  }
  html->Raw("</table></div>\n");
  if (shown > kRanksShown) {
    html->Element("p", "first ranks only; all: lockstep jobs describe", "dim");
  }
}

void Attempts(const Job& job, Html* html) {
  if (job.attempts.empty()) return;
  html->Element("h2", "Ended attempts")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"attempt", "began", "lasted", "resumed at", "cause"});
  for (auto it = job.attempts.rbegin(); it != job.attempts.rend(); ++it) {
    html->Row({std::to_string(it->ordinal), FormatWallTime(it->start_time),
               FormatDuration(it->end_time - it->start_time),
               it->resumed_step ? std::to_string(*it->resumed_step) : "",
               it->end_cause.message.empty()
                   ? std::string(Name(it->end_cause.reason))
                   : it->end_cause.message});
  }
  html->Raw("</table></div>\n");
}

std::string RanksText(const std::vector<int32_t>& ranks) {
  return fmt::format("{}", fmt::join(ranks, ", "));
}

void Recoveries(const Job& job, Html* html) {
  if (job.in_place_recoveries.empty()) return;
  html->Element("h2", "Recoveries in place")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"generation", "recovery", "began", "took", "after step",
                "new ranks", "away", "back", "cause"});
  const auto& all = job.in_place_recoveries;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    html->Row(
        {std::to_string(it->generation), std::to_string(it->number),
         FormatWallTime(it->start_time),
         it->end_time ? FormatDuration(*it->end_time - it->start_time) : "",
         it->step ? std::to_string(*it->step) : "",
         RanksText(it->replaced_ranks), RanksText(it->away_ranks),
         RanksText(it->returned_ranks),
         it->cause.message.empty() ? std::string(Name(it->cause.reason))
                                   : it->cause.message});
  }
  html->Raw("</table></div>\n");
}

}  // namespace

void EventTable(const std::vector<Event>& events, Html* html) {
  if (events.empty()) return;
  html->Element("h2", "Events")
      .Raw("<div class=\"wide\"><table>\n")
      .HeadRow({"time", "reason", "what"});
  size_t shown = 0;
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    if (++shown > kEventsShown) break;
    html->BeginRow()
        .Cell(FormatWallTime(it->time), "n")
        .Cell(it->reason == Reason::kNone ? "" : Name(it->reason))
        .Cell(it->message)
        .Raw("</tr>\n");
  }
  html->Raw("</table></div>\n");
}

std::optional<LogKey> FailedLogOf(const Job& job) {
  const auto failure = FirstFailure(job);
  if (!failure || failure->rank < 0) return std::nullopt;
  int32_t moves = 0;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (rank.rank != failure->rank) continue;
      moves = static_cast<int32_t>(task.former_nodes.size());
    }
  }
  return LogKey{job.uid, job.generation, failure->rank, moves};
}

http::HttpResponse JobPage(const std::string& cluster, const JobReader& reader,
                           const JobSnapshot& all, const JobExtras& extras) {
  const JobSnapshot snapshot = ShownTo(reader, all);
  const Job& job = *snapshot.job;
  Html html;
  html.Raw(PageHead(cluster, job.spec.name));
  Links(job, extras.grafana, &html);
  if (job.state == JobState::kFailed) Failed(snapshot, extras, &html);
  for (const std::string& bad : extras.bad_gpus) {
    html.Element("p", bad, "bad");
  }
  Facts(snapshot, &html);
  Signs(snapshot, &html);
  Speed(snapshot, extras.late_rank, &html);
  Curves(snapshot, extras, &html);
  StepPhases(snapshot, &html);
  if (!snapshot.details_hidden) Program(job.spec, &html);
  Phases(snapshot, &html);
  Tasks(snapshot, &html);
  Recoveries(job, &html);
  Attempts(job, &html);
  EventTable(job.events, &html);
  return HtmlPage(job.spec.name + " - " + cluster, html.str(), 200,
                  IsFinal(job.state) ? Refresh::kNever : Refresh::kOften);
}

}  // namespace lockstep::server
