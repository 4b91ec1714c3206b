// The page of a job's logs: the newest lines of its ranks.
#ifndef LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_
#define LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/server.h"
#include "server/core/job.h"
#include "server/logs/log_tail.h"
#include "server/page/page_query.h"
#include "server/query/visibility.h"

namespace lockstep::server {

// The logs that `query` selects: those of the newest attempt, or of the asked
// one. InvalidArgument if the job does not have it.
StatusOr<std::vector<LogKey>> SelectLogs(const Job& job,
                                         const LogsQuery& query);

// `tail`: the selected lines. REQUIRES: the reader may see the job's logs.
http::HttpResponse LogsPage(const std::string& cluster, const Job& job,
                            const LogsQuery& query, const LogTail& tail);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_LOGS_PAGE_H_
