// Prints a Node in the selected format.
#ifndef LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_

#include "client/cli/cli.h"

namespace lockstep::cli {

// All fields. FormatNode makes the table.
Status WriteNode(const Cli& cli, const v1::Node& node);
// After a change. The table is one line: "host-a DRAINING: new disk".
Status WriteNodeState(const Cli& cli, const v1::Node& node);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_NODE_OUTPUT_H_
