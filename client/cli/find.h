// Names as people give them: whole, or as much as tells one from the others.
#ifndef LOCKSTEP_CLIENT_CLI_FIND_H_
#define LOCKSTEP_CLIENT_CLI_FIND_H_

#include <string>
#include <string_view>
#include <vector>

#include "client/lib/client.h"
#include "common/base/status.h"

namespace lockstep {

// The one of `names` that is `text` or, alone, begins with it. Pure. `what` is
// "job" or "node".
// InvalidArgument: several begin with it (lists them). NotFound: none does
// (names the nearest).
StatusOr<std::string> MatchName(std::string_view what, const std::string& text,
                                const std::vector<std::string>& names);

// The job or node of that name or prefix. Asks for the list only when there
// is none of exactly that name.
StatusOr<std::string> FindJob(Client* client, const std::string& text);
// NotFound for a command that wants the whole name: says which job might be
// meant, by its beginning, too.
Status NoSuchJob(Client* client, const std::string& text);
StatusOr<std::string> FindNode(Client* client, const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_FIND_H_
