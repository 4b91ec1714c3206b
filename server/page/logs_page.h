// The page of a job's logs: the newest lines of its ranks.
#ifndef LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/server.h"
#include "common/logs/log_query.h"
#include "server/core/job.h"
#include "server/logs/log_filter.h"
#include "server/logs/log_tail.h"
#include "server/page/page_query.h"
#include "server/query/visibility.h"

namespace lockstep::server {

// The logs that `query` selects: those of the newest attempt, or of the asked
// one. InvalidArgument if the job does not have it.
StatusOr<std::vector<LogKey>> SelectLogs(const Job& job,
                                         const LogsQuery& query);

// Which lines of these logs a query selects.
class LineSelector {
 public:
  // `filter` is made of query.selection.
  LineSelector(const Job& job, const LogsQuery& query, LogFilter filter);
  bool Wants(const TailLine& line) const;

 private:
  const std::string job_;
  const LogQuery query_;
  const LogFilter filter_;
  int32_t attempt_ = 0;
  // "worker-replica-1", by rank.
  std::map<int32_t, std::string> tasks_;
};

// `tail`: the selected lines. REQUIRES: the reader may see the job's logs.
http::HttpResponse LogsPage(const std::string& cluster, const Job& job,
                            const LogsQuery& query, const LogTail& tail);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_
