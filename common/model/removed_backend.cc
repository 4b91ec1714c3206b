#include "common/model/removed_backend.h"

#include <string_view>

namespace lockstep {
namespace {

// Returns how often `argv` asks for gloo, and writes auto where `replace`.
size_t VisitCommand(std::vector<std::string>* argv, bool replace) {
  if (argv->empty()) return 0;
  const std::string_view path = (*argv)[0];
  const std::string_view program = path.substr(path.rfind('/') + 1);
  if (program != "lockstep-train" && program != "lockstep-bench") return 0;
  size_t found = 0;
  for (size_t i = 1; i < argv->size(); ++i) {
    std::string& word = (*argv)[i];
    const bool apart = word == "gloo" && (*argv)[i - 1] == "--backend";
    if (!apart && word != "--backend=gloo") continue;
    ++found;
    if (replace) word = apart ? "auto" : "--backend=auto";
  }
  return found;
}

size_t VisitCommands(JobSpec* spec, bool replace) {
  size_t found = VisitCommand(&spec->argv, replace);
  for (RoleSpec& role : spec->roles) found += VisitCommand(&role.argv, replace);
  return found;
}

}  // namespace

bool AsksForGloo(const JobSpec& spec) {
  JobSpec copy = spec;
  return VisitCommands(&copy, /*replace=*/false) > 0;
}

bool ReplaceGloo(JobSpec* spec) {
  if (VisitCommands(spec, /*replace=*/true) == 0) return false;
  spec->reduction_plan.clear();
  return true;
}

}  // namespace lockstep
