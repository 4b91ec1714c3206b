// The curves of a job's page and of a comparison. Pure.
#ifndef LOCKSTEP_SERVER_PAGE_JOB_CURVES_H_
#define LOCKSTEP_SERVER_PAGE_JOB_CURVES_H_

#include <map>
#include <string>
#include <vector>

#include "server/core/job.h"
#include "server/history/history_plot.h"
#include "server/page/chart.h"
#include "server/page/html.h"

namespace lockstep::server {

// Restarts, stalls and checkpoints.
std::vector<ChartMark> MarksOf(const Job& job, const HistoryPlot& plot);

// Loss and reported values, speed, the time of a step with its phases, and CPU,
// GPUs and memory of each rank, as far as they are known.
void AddJobCurves(const Job& job, const HistoryPlot& plot, Html* html);

// The curves of several jobs in one chart for each series, from the start of
// each. All plots have equal steps and numbers of points.
void AddComparedCurves(const std::map<std::string, HistoryPlot>& plots,
                       Html* html);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_JOB_CURVES_H_
