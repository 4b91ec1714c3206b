#include "worker/collective/factory/host_identity.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <fstream>

namespace lockstep::worker::collective {
namespace {

// "net:[4026531840]", or empty.
std::string Namespace(const char* path) {
  char target[128];
  const ssize_t size = readlink(path, target, sizeof(target));
  return size > 0 ? std::string(target, size) : std::string();
}

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string network = Namespace("/proc/self/ns/net");
  const std::string users = Namespace("/proc/self/ns/user");
  if (boot.empty() || network.empty() || users.empty()) return "";
  return fmt::format("{} {} {} {}", boot, network, users, geteuid());
}

std::string HostName(const std::string& bind_address) {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
    return bind_address;
  }
  return fmt::format("{} ({})", name, bind_address);
}

}  // namespace lockstep::worker::collective
