// The parts of a screen of `lockstep top`. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_
#define LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_

#include <string>
#include <vector>

#include "client/cli/top.h"

namespace lockstep {

// Who, when, how many of what, what is used; and what is wrong.
std::vector<std::string> TopHeading(const TopState& state, const TopView& view,
                                    WallTime now, const Style& style);
// Sorted as `view` says; the bar of phases takes what `width` leaves.
Table TopJobsTable(const TopState& state, const TopView& view, int width,
                   WallTime now, const Style& style);
// A row each node, then one for each of its GPUs.
Table TopNodesTable(const TopState& state, const TopView& view, WallTime now,
                    const Style& style);
// `hidden`: lines that do not fit the screen.
std::string TopKeys(const TopView& view, int hidden, const Style& style);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_TOP_TABLES_H_
