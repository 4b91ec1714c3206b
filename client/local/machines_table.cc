#include "client/local/machines_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/crc32c.h"
#include "common/training/machines.h"

namespace lockstep::cli {

namespace {

// The first line, which identifies the text after it.
std::string Head(const std::string& rest) {
  return fmt::format("# Written by `lockstep local up` ({:08x}),\n",
                     Crc32c(rest));
}

}  // namespace

std::string LocalMachinesFile(double cpus, int64_t memory_bytes) {
  // Rounded to hundredths, so that four of them do not exceed the total.
  const double most_cpus =
      std::max(0.01, std::floor(100 * cpus / kTasksPerWorker) / 100);
  const int64_t most_memory = memory_bytes / kTasksPerWorker;
  std::string text =
      "# at each start of the coordinator: machine types keep their\n"
      "# names and reserve what fits this machine. After a change it "
      "stays\n"
      "# as it is; remove it to have it written again. For other entries\n"
      "# (runtimes, images, tiers ...) see the packaged machines.yaml.\n"
      "#runtimes:\n"
      "#  tf2: {python: /opt/tf2/bin/python3, versions: [\"2.*\"]}\n"
      "# A cluster on one machine for one user hides nothing, also not on its\n"
      "# pages.\n"
      "visibility: cluster\n"
      "defaults: true\nmachines:\n";
  for (const auto& [name, machine] : DefaultMachineTable().machines) {
    text += fmt::format("  {}: {{request: {{cpus: {:g}, memory: {}}}}}\n", name,
                        std::min(machine.nominal.cpus, most_cpus),
                        std::min(machine.nominal.memory_bytes, most_memory));
  }
  return Head(text) + text;
}

bool IsOwnMachinesFile(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return false;
  const std::string rest = text.substr(end + 1);
  return text.substr(0, end + 1) == Head(rest);
}

}  // namespace lockstep::cli
