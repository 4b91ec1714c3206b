#include "client/cli/find.h"

#include "client/cli/text.h"
#include "common/model/names.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMostListed = 10;

}  // namespace

StatusOr<std::string> MatchName(std::string_view what, const std::string& text,
                                const std::vector<std::string>& names) {
  std::vector<std::string> matches;
  for (const std::string& name : names) {
    if (name == text) return name;
    if (name.compare(0, text.size(), text) == 0) matches.push_back(name);
  }
  if (matches.size() == 1 && !text.empty()) return matches[0];
  if (matches.empty() || text.empty()) {
    const std::string near = Nearest(text, names);
    return NotFound("there is no {} {}{}", what, Printable(text),
                    near.empty() ? "" : "; did you mean " + near + "?");
  }
  std::string list;
  for (size_t i = 0; i < matches.size() && i < kMostListed; ++i) {
    list += (i > 0 ? ", " : "") + matches[i];
  }
  if (matches.size() > kMostListed) {
    list += " and " +
            Count(static_cast<int64_t>(matches.size() - kMostListed), "other");
  }
  return InvalidArgument("{} {}s begin with {}: {}", matches.size(), what,
                         Printable(text), list);
}

StatusOr<std::string> FindJob(Client* client, const std::string& text) {
  const auto job = client->GetJob(text);
  if (job.ok()) return text;
  if (job.status().code() != StatusCode::kNotFound) return job.status();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                            client->ListJobs());
  std::vector<std::string> names;
  for (const v1::Job& each : jobs) names.push_back(each.name());
  return MatchName("job", text, names);
}

Status NoSuchJob(Client* client, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                            client->ListJobs());
  std::vector<std::string> names;
  std::string near;
  for (const v1::Job& each : jobs) {
    names.push_back(each.name());
    if (near.empty() && each.name().starts_with(text)) near = each.name();
  }
  if (near.empty()) near = Nearest(text, names);
  return NotFound("no job {}{}", Printable(text),
                  near.empty() ? "" : "; did you mean " + near + "?");
}

StatusOr<std::string> FindNode(Client* client, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<v1::Node> nodes,
                            client->ListNodes());
  std::vector<std::string> names;
  for (const v1::Node& node : nodes) names.push_back(node.name());
  return MatchName("node", text, names);
}

}  // namespace lockstep::cli
