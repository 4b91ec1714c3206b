#include "client/cli/external.h"

#include <unistd.h>

#include <algorithm>

#include "common/model/names.h"

namespace lockstep::cli {

void RunExternal(const std::string& dir, const std::vector<std::string>& args,
                 size_t index) {
  // Options before NAME would be lost.
  if (dir.empty() || index != 0 || args.empty() || !IsNodeName(args[0])) return;
  const std::string path = dir + "/lockstep-" + args[0];
  if (access(path.c_str(), X_OK) != 0) return;
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (size_t i = 1; i < args.size(); ++i) {
    argv.push_back(const_cast<char*>(args[i].c_str()));
  }
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
}

}  // namespace lockstep::cli
