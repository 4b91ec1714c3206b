#include "sdk/mpi/place.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "common/base/fd.h"
#include "sdk/mpi/fail.h"

namespace lockstep::mpi {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int32_t Required(const char* name, std::string* value, lockstep_error* error) {
  *value = Variable(name);
  if (!value->empty()) return LOCKSTEP_OK;
  return Fail(error, LOCKSTEP_FAILED_PRECONDITION,
              "the variable %s is not set; lockstep sets RANK, WORLD_SIZE, "
              "MASTER_ADDR and MASTER_PORT for the ranks of a job, and so does "
              "torchrun",
              name);
}

int32_t Number(const char* name, int least, int most, int* number,
               lockstep_error* error) {
  std::string text;
  if (const int32_t code = Required(name, &text, error)) return code;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, *number);
  if (read.ec == std::errc() && read.ptr == end && *number >= least &&
      *number <= most) {
    return LOCKSTEP_OK;
  }
  return Fail(error, LOCKSTEP_INVALID_ARGUMENT,
              "the variable %s is \"%s\", not a number from %d to %d", name,
              text.c_str(), least, most);
}

std::string InDigits(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return getnameinfo(address, size, text, sizeof(text), nullptr, 0,
                     NI_NUMERICHOST) == 0
             ? text
             : "";
}

int32_t AddressOf(const std::string& interface, std::string* address,
                  lockstep_error* error) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return FailErrno(error, errno, "the interfaces of this host");
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list,
                                                               &freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (interface == one->ifa_name && one->ifa_addr != nullptr &&
        one->ifa_addr->sa_family == AF_INET) {
      *address = InDigits(one->ifa_addr, sizeof(sockaddr_in));
      return LOCKSTEP_OK;
    }
  }
  return Fail(error, LOCKSTEP_INVALID_ARGUMENT,
              "GLOO_SOCKET_IFNAME names the interface \"%s\", which has no "
              "IPv4 address here",
              interface.c_str());
}

// Connecting a datagram socket sends nothing: the kernel picks the address.
std::string RouteTo(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list,
                                                                 &freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const Fd fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    auto* address = reinterpret_cast<sockaddr*>(&local);
    if (fd && connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(fd.get(), address, &size) == 0) {
      return InDigits(address, size);
    }
  }
  return "";
}

int32_t FindBindAddress(Place* place, lockstep_error* error) {
  const std::string interfaces = Variable("GLOO_SOCKET_IFNAME");
  const std::string first = interfaces.substr(0, interfaces.find(','));
  if (!first.empty()) return AddressOf(first, &place->bind_address, error);
  if (Variable("LOCAL_WORLD_SIZE") == std::to_string(place->size)) {
    return LOCKSTEP_OK;
  }
  place->bind_address = RouteTo(place->host, place->port);
  // The host of rank 0 may call itself 127.0.1.1, which others cannot reach.
  if (place->bind_address.starts_with("127.") || place->bind_address == "::1") {
    place->bind_address = Variable("LOCAL_WORLD_SIZE").empty()
                              ? ""
                              : RouteTo("192.0.2.1", place->port);
  }
  return LOCKSTEP_OK;
}

}  // namespace

int32_t ReadPlace(Place* place, lockstep_error* error) {
  constexpr int kMostRanks = 1 << 20;
  int port = 0;
  int32_t code = Number("WORLD_SIZE", 1, kMostRanks, &place->size, error);
  if (code == 0) code = Number("RANK", 0, place->size - 1, &place->rank, error);
  if (code == 0) code = Required("MASTER_ADDR", &place->host, error);
  if (code == 0) code = Number("MASTER_PORT", 1, 65535, &port, error);
  if (code != 0) return code;
  place->port = std::to_string(port);
  place->job = Variable("LOCKSTEP_JOB") + "/" +
               Variable("LOCKSTEP_GENERATION") + "/" +
               Variable("TORCHELASTIC_RUN_ID") + "/" +
               std::to_string(place->size) + " ranks";
  return FindBindAddress(place, error);
}

}  // namespace lockstep::mpi
