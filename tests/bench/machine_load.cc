#include "tests/bench/machine_load.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

constexpr int kKthreadd = 2;

double TickSeconds() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

double Seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

double OwnSeconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    sum += Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  return sum;
}

struct ProcessTicks {
  long parent = 0;
  double own = 0;       // utime + stime, of all its threads
  double children = 0;  // of its children that it has waited for
};

ProcessTicks TicksOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  ProcessTicks ticks;
  std::string state;
  rest >> state >> ticks.parent;
  long skip = 0;
  for (int i = 0; i < 9; ++i) rest >> skip;
  double user = 0, system = 0, children_user = 0, children_system = 0;
  rest >> user >> system >> children_user >> children_system;
  ticks.own = user + system;
  ticks.children = children_user + children_system;
  return ticks;
}

double KernelTicks(const std::string& pid) {
  const ProcessTicks ticks = TicksOf(pid);
  return ticks.parent == kKthreadd ? ticks.own : 0;
}

double KernelSeconds() {
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return 0;
  double ticks = 0;
  while (const dirent* entry = readdir(proc)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) {
      ticks += KernelTicks(entry->d_name);
    }
  }
  closedir(proc);
  return ticks * TickSeconds();
}

}  // namespace

CpuReading ReadCpu(const std::vector<pid_t>& running) {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
  CpuReading reading;
  file >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >>
      reading.stolen;
  const double tick = TickSeconds();
  reading.stolen *= tick;
  reading.busy = (user + nice + system + irq + soft) * tick;
  reading.total = reading.busy + (idle + wait) * tick + reading.stolen;
  reading.own = OwnSeconds();
  for (const pid_t pid : running) {
    const ProcessTicks ticks = TicksOf(std::to_string(pid));
    reading.own += (ticks.own + ticks.children) * tick;
  }
  reading.kernel = KernelSeconds();
  return reading;
}

CpuShares SharesBetween(const CpuReading& before, const CpuReading& after) {
  const double total = after.total - before.total;
  if (total <= 0) return {};
  const double foreign = (after.busy - before.busy) - (after.own - before.own) -
                         (after.kernel - before.kernel);
  return {std::max(0.0, foreign / total),
          (after.stolen - before.stolen) / total};
}

bool IsBusy(const CpuShares& shares) {
  return shares.foreign > 0.03 || shares.stolen > 0.01;
}

}  // namespace lockstep
