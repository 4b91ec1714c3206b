#include "client/local/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/base/fd.h"
#include "common/base/random.h"

namespace lockstep::cli {
namespace {

constexpr uint16_t kFirst = 20000;
constexpr uint16_t kCount = 12000;
constexpr int kTries = 1000;

}  // namespace

bool PortIsFree(uint16_t port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  // Like servers, ignore connections in TIME_WAIT.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0 &&
         listen(fd.get(), 1) == 0;
}

StatusOr<std::vector<uint16_t>> ChoosePorts(int count) {
  std::vector<uint16_t> ports;
  for (int i = 0; i < kTries && static_cast<int>(ports.size()) < count; ++i) {
    const auto port = static_cast<uint16_t>(kFirst + RandomUint64() % kCount);
    if (std::find(ports.begin(), ports.end(), port) == ports.end() &&
        PortIsFree(port)) {
      ports.push_back(port);
    }
  }
  if (static_cast<int>(ports.size()) < count) {
    return ResourceExhausted("found only {} of {} free ports on 127.0.0.1",
                             ports.size(), count);
  }
  return ports;
}

}  // namespace lockstep::cli
