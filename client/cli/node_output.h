// A Node in the format that was asked for.
#ifndef LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_

#include "client/cli/cli.h"

namespace lockstep {

// All of it; tables are FormatNode's.
Status WriteNode(const Cli& cli, const v1::Node& node);
// After a change: as a table one line, "host-a DRAINING: new disk".
Status WriteNodeState(const Cli& cli, const v1::Node& node);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_
