#include <fmt/format.h>

#include <algorithm>

#include "client/cli/describe.h"
#include "client/cli/job_view.h"

namespace lockstep::cli {
namespace {

std::string StepsText(const v1::Job& job) {
  int64_t step = std::max<int64_t>(0, job.committed_step());
  int64_t total = 0;
  if (job.has_progress()) {
    step = std::max(step, job.progress().chief().committed_step());
    total = job.progress().chief().total_steps();
  }
  if (step == 0 && total == 0) return "-";
  return total > 0 ? fmt::format("{}/{}", Grouped(step), Grouped(total))
                   : Grouped(step);
}

}  // namespace

Table JobsTable(const std::vector<v1::Job>& jobs, bool wide, WallTime now,
                const Style& style) {
  std::vector<std::string> header = {"NAME", "STATE", "TASKS",
                                     "STEP", "RAN",   "AGE"};
  if (wide) {
    header.insert(header.end(), {"KIND", "RANKS", "PRIORITY", "RESTARTS",
                                 "RECOVERIES", "OWNER"});
  }
  header.push_back("WHY");
  std::vector<std::vector<std::string>> rows;
  for (const v1::Job& job : jobs) {
    std::vector<std::string> row = {
        Printable(job.name()),
        style.State(job.state()),
        fmt::format("{}", TaskCount(job.spec())),
        StepsText(job),
        RanText(job, now),
        job.has_create_time() ? Age(now - ToWallTime(job.create_time())) : "-"};
    if (wide) {
      row.push_back(Text(job.spec().kind()));
      row.push_back(fmt::format("{}", RankCount(job.spec())));
      row.push_back(fmt::format("{}", job.spec().priority()));
      row.push_back(fmt::format("{}", job.restarts()));
      row.push_back(fmt::format("{}", job.recoveries()));
      row.push_back(Printable(job.owner()));
    }
    // A running job has a cause only if there is a problem.
    const bool has_cause = job.state() != v1::JOB_STATE_SUCCEEDED;
    row.push_back(has_cause ? CauseText(job, job.cause()) : "");
    rows.push_back(std::move(row));
  }
  return {header, rows};
}

}  // namespace lockstep::cli
