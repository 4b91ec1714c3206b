#include "common/model/removed_backend.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

bool IsOurs(const std::vector<std::string>& argv) {
  if (argv.empty()) return false;
  const std::string_view path = argv[0];
  const std::string_view program = path.substr(path.rfind('/') + 1);
  return program == "lockstep-train" || program == "lockstep-bench";
}

// True if the word at `i` asks for gloo: "gloo" after --backend, or in one
// word.
bool Asks(const std::vector<std::string>& argv, size_t i) {
  return argv[i] == "--backend=gloo" ||
         (argv[i] == "gloo" && argv[i - 1] == "--backend");
}

bool Asks(const std::vector<std::string>& argv) {
  for (size_t i = 1; i < argv.size(); ++i) {
    if (Asks(argv, i)) return IsOurs(argv);
  }
  return false;
}

void Replace(std::vector<std::string>* argv) {
  for (size_t i = 1; i < argv->size(); ++i) {
    if (!Asks(*argv, i)) continue;
    (*argv)[i] = (*argv)[i] == "gloo" ? "auto" : "--backend=auto";
  }
}

}  // namespace

bool AsksForGloo(const JobSpec& spec) {
  return Asks(spec.argv) ||
         std::any_of(spec.roles.begin(), spec.roles.end(),
                     [](const RoleSpec& role) { return Asks(role.argv); });
}

bool ReplaceGloo(JobSpec* spec) {
  if (!AsksForGloo(*spec)) return false;
  if (Asks(spec->argv)) Replace(&spec->argv.Edit());
  for (RoleSpec& role : spec->roles.Edit()) {
    if (Asks(role.argv)) Replace(&role.argv);
  }
  spec->reduction_plan.clear();
  return true;
}

}  // namespace lockstep
