// The coordinator's status pages: read-only, without script. Pure. `reader`
// sees jobs as query/visibility.h allows.
#ifndef LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/http/server.h"
#include "server/coordinator/snapshot.h"
#include "server/history/history_plot.h"
#include "server/logs/log_tail.h"
#include "server/page/html.h"
#include "server/query/visibility.h"

namespace lockstep::server {

// What a job's page shows beside its record.
struct JobExtras {
  // The rank that the others waited for lately.
  std::optional<int32_t> late_rank;
  // Of the time that the reader chose; empty if nothing is known.
  HistoryPlot history;
  // The chosen time, a name of kSpans.
  std::string span = "all";
  // Of a failed job: the last lines of the rank that failed first.
  std::optional<LogTail> last_lines;
  // One sentence about each GPU of a running task that gets no new work.
  std::vector<std::string> bad_gpus = {};
  // The address of its dashboard in Grafana; empty if there is none.
  std::string grafana = {};
};
http::HttpResponse JobPage(const std::string& cluster, const JobReader& reader,
                           const JobSnapshot& job, const JobExtras& extras);
// `jobs`: those with resources on the node.
http::HttpResponse NodePage(const std::string& cluster, const JobReader& reader,
                            const NodeSnapshot& node,
                            const std::vector<JobSnapshot>& jobs, WallTime now);
// Shows the fault of the request.
http::HttpResponse ErrorPage(const std::string& cluster, const Status& status);

// ---- Shared by the pages ----
// Newest first. Adds nothing if there are none.
void EventTable(const std::vector<Event>& events, Html* html);
// Shows the committed steps, with a bar if their total is known.
void AddSteps(const RankProgress& progress, Html* html);
// The head of every page.
std::string PageHead(const std::string& cluster, const std::string& title);
// Adds lines as they are, with their rank if there are several.
void AddLogLines(const std::vector<TailLine>& lines, Html* html);
// The rank whose failure ended the job, with the generation of its log; nullopt
// if there is none.
std::optional<LogKey> FailedLogOf(const Job& job);
// Returns the node's problem, or "".
std::string NoteOf(const Member& member, WallTime now);
// The node's readings are of now.
bool ReportsNow(const Member& member);
// Returns the cause's sentence, or its reason. Empty if that only repeats the
// state.
std::string WhyOf(const JobState& state, const Cause& cause);
// Returns the time since `then`, or "" if it is not set.
std::string Ago(WallTime then, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_STATUS_PAGE_H_
