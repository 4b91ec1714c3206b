// The parts of a screen of `lockstep top`. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_
#define LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_

#include <string>
#include <vector>

#include "client/cli/top.h"

namespace lockstep::cli {

// The cluster's name, time, counts, use and faults.
std::vector<std::string> TopHeading(const TopState& state, const TopView& view,
                                    WallTime now, const Style& style);
// The jobs that `view` selects, in its order.
std::vector<std::string> TopJobNames(const TopState& state,
                                     const TopView& view);
// The rows of TopJobNames. The phase bar takes the rest of `width`; on a narrow
// screen the least important columns are left out. Ended jobs are dim.
Table TopJobsTable(const TopState& state, const TopView& view, int width,
                   WallTime now, const Style& style);
// One row per node, followed by one per GPU.
Table TopNodesTable(const TopState& state, const TopView& view, WallTime now,
                    const Style& style);
// The ranks of the job that is looked at, below a row of headings.
std::string TopRanksText(const TopState& state, const TopView& view);
// `hidden`: the number of lines that do not fit the screen.
std::string TopKeys(const TopView& view, int hidden, const Style& style);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_
