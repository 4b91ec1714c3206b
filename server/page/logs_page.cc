#include "server/page/logs_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "server/page/html.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

// Removes colours and other sequences for terminals.
std::string WithoutEscapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b' || i + 1 >= text.size() || text[i + 1] != '[') {
      out += text[i];
      continue;
    }
    i += 2;
    while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
  }
  return out;
}

void Field(const std::string& name, const std::string& value, int size,
           Html* html) {
  html->Raw(fmt::format("<label>{0} <input name=\"{0}\" size=\"{1}\" value=\"",
                        name, size))
      .Text(value)
      .Raw("\"></label>");
}

void Form(const Job& job, const LogsQuery& query, Html* html) {
  html->Raw(fmt::format("<form action=\"/jobs/{}/logs\">",
                        EscapePath(job.spec.name)));
  Field("grep", query.selection.grep, 24, html);
  Field("filter", query.filter, 40, html);
  Field("rank", query.rank ? std::to_string(*query.rank) : "", 5, html);
  Field("attempt", query.attempt > 0 ? std::to_string(query.attempt) : "", 4,
        html);
  html->Raw("<label>severity <select name=\"severity\">");
  for (const std::string_view name :
       {"", "debug", "info", "warning", "error", "critical"}) {
    html->Raw(fmt::format("<option value=\"{}\"{}>{}</option>", name,
                          name == query.severity ? " selected" : "",
                          name.empty() ? "all" : name));
  }
  html->Raw("</select></label>");
  Field("tail", std::to_string(query.tail), 5, html);
  html->Raw(
      fmt::format("<label>follow <input type=\"checkbox\" "
                  "name=\"follow\" value=\"1\"{}></label>",
                  query.follow ? " checked" : ""));
  html->Raw("<button>show</button></form>\n");
}

struct ShownAttempt {
  int32_t ordinal = 0;
  Generation generation = 0;
  const std::vector<TaskStatus>* tasks = nullptr;
};

// `ordinal` 0: the newest one.
StatusOr<ShownAttempt> AttemptOf(const Job& job, int32_t ordinal) {
  if (ordinal == 0 && job.tasks.empty() && !job.attempts.empty()) {
    // It waits for its next attempt.
    const Attempt& last = job.attempts.back();
    return ShownAttempt{last.ordinal, last.generation, &last.tasks};
  }
  if (ordinal == 0 || ordinal == job.attempt) {
    return ShownAttempt{job.attempt, job.generation, &job.tasks};
  }
  for (const Attempt& ended : job.attempts) {
    if (ended.ordinal != ordinal) continue;
    return ShownAttempt{ended.ordinal, ended.generation, &ended.tasks};
  }
  return InvalidArgument("attempt: job {} has {} so far, not {}", job.spec.name,
                         job.attempt, ordinal);
}

}  // namespace

LineSelector::LineSelector(const Job& job, const LogsQuery& query,
                           LogFilter filter)
    : job_(job.spec.name), query_(query.query), filter_(std::move(filter)) {
  const auto attempt = AttemptOf(job, query.attempt);
  if (!attempt.ok()) return;
  attempt_ = attempt->ordinal;
  for (const TaskStatus& task : *attempt->tasks) {
    for (const RankStatus& rank : task.ranks) {
      tasks_[rank.rank] = ReplicaName(task.type, task.index);
    }
  }
}

bool LineSelector::Wants(const TailLine& line) const {
  if (!filter_.Wants(line.unix_nanos, line.severity, line.text)) return false;
  const auto task = tasks_.find(line.rank);
  return query_.Matches(
      {.job = job_,
       .task = task == tasks_.end() ? std::string_view() : task->second,
       .text = line.text,
       .stream = line.is_stderr ? "stderr" : "stdout",
       .severity = static_cast<int>(line.severity),
       .unix_nanos = line.unix_nanos,
       .rank = line.rank,
       .attempt = attempt_});
}

StatusOr<std::vector<LogKey>> SelectLogs(const Job& job,
                                         const LogsQuery& query) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ShownAttempt attempt,
                            AttemptOf(job, query.attempt));
  std::vector<LogKey> keys;
  for (const TaskStatus& task : *attempt.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (query.rank && *query.rank != rank.rank) continue;
      for (size_t move = 0; move <= task.former_nodes.size(); ++move) {
        keys.push_back({job.uid, attempt.generation, rank.rank,
                        static_cast<int32_t>(move)});
      }
    }
  }
  if (query.rank && keys.empty() && !job.tasks.empty()) {
    return InvalidArgument("rank: job {} has no rank {}", job.spec.name,
                           *query.rank);
  }
  return keys;
}

void AddLogLines(const std::vector<TailLine>& lines, Html* html) {
  if (lines.empty()) {
    html->Element("p", "no lines", "dim");
    return;
  }
  const bool many = std::any_of(
      lines.begin(), lines.end(),
      [&](const TailLine& line) { return line.rank != lines[0].rank; });
  html->Raw("<pre>");
  for (const TailLine& line : lines) {
    std::string text;
    if (line.unix_nanos > 0) {
      text = FormatWallTime(FromUnixNanos(line.unix_nanos)).substr(11, 8) + " ";
    }
    if (many) text += fmt::format("[{}] ", line.rank);
    text += WithoutEscapes(line.text);
    if (line.severity >= Severity::kError) {
      html->Element("span", text, "e");
    } else if (line.severity == Severity::kWarning) {
      html->Element("span", text, "w");
    } else {
      html->Text(text);
    }
    html->Raw("\n");
  }
  html->Raw("</pre>\n");
}

http::HttpResponse LogsPage(const std::string& cluster, const Job& job,
                            const LogsQuery& query, const LogTail& tail) {
  Html html;
  html.Raw(PageHead(cluster, job.spec.name + ": logs"));
  html.Raw("<nav>").Link("/jobs", job.spec.name).Raw("</nav>\n");
  Form(job, query, &html);
  AddLogLines(tail.lines, &html);
  if (tail.cut) {
    html.Element("p",
                 fmt::format("Earlier lines are not shown: lockstep jobs logs "
                             "{} has all of them.",
                             job.spec.name),
                 "dim");
  }
  return HtmlPage(job.spec.name + ": logs - " + cluster, html.str(), 200,
                  query.follow ? Refresh::kOften : Refresh::kNever);
}

}  // namespace lockstep::server
