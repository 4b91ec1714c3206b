// Finds names from a full name or a unique prefix.
#ifndef LOCKSTEP_CLIENT_CLI_FIND_H_
#define LOCKSTEP_CLIENT_CLI_FIND_H_

#include <string>
#include <string_view>
#include <vector>

#include "client/lib/client.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Returns the one of `names` that equals `text`, or the only one with that
// prefix. Pure. `what` is "job" or "node". InvalidArgument lists the names if
// several have the prefix. NotFound names the nearest.
StatusOr<std::string> MatchName(std::string_view what, const std::string& text,
                                const std::vector<std::string>& names);

// Returns the job or node of that name or prefix. Lists them only if there is
// none with exactly that name.
StatusOr<std::string> FindJob(Client* client, const std::string& text);
// Returns NotFound for a command that requires the full name. Suggests a job,
// also by prefix.
Status NoSuchJob(Client* client, const std::string& text);
StatusOr<std::string> FindNode(Client* client, const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_FIND_H_
