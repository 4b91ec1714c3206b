#include "tests/bench/versions.h"

#include <fmt/format.h>

#include <cstdio>

#include "common/base/version.h"

namespace lockstep {
namespace {

// The first line that a command says, or "none".
std::string Said(const std::string& command) {
  FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return "none";
  char line[256] = "";
  if (std::fgets(line, sizeof(line), pipe) == nullptr) line[0] = '\0';
  char rest[256];
  while (std::fgets(rest, sizeof(rest), pipe) != nullptr) {
  }
  pclose(pipe);
  std::string text = line;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.pop_back();
  }
  return text.empty() ? "none" : text;
}

// Debian's, with its revision.
std::string PackageVersion(const std::string& package) {
  return Said("dpkg-query -W -f '${Version}\\n' " + package);
}

}  // namespace

std::map<std::string, std::string> EngineVersions() {
  return {
      {"lockstep", kVersion},
      {"compiler", __VERSION__},
      {"openmpi", fmt::format("{}; package {}", Said("mpirun --version"),
                              PackageVersion("openmpi-bin"))},
      // Its headers tell no version.
      {"gloo", fmt::format("package {}", PackageVersion("libgloo0"))},
  };
}

void PrintFields(const std::map<std::string, std::string>& fields) {
  for (const auto& [name, value] : fields) fmt::print("{}: {}\n", name, value);
}

}  // namespace lockstep
