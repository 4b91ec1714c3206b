#include "common/http/host_check.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace lockstep::http {
namespace {

// Normalises a name: lower case, without the root's dot.
std::string Plain(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return plain;
}

std::string_view FirstLabel(std::string_view name) {
  return name.substr(0, name.find('.'));
}

bool IsAddress(int family, const std::string& text) {
  in6_addr ignored;  // Fits either kind.
  return ::inet_pton(family, text.c_str(), &ignored) == 1;
}

}  // namespace

std::string MachineName() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string FullMachineName() {
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(MachineName().c_str(), nullptr, &hints, &found) != 0) {
    return "";
  }
  const std::string name =
      found->ai_canonname == nullptr ? "" : found->ai_canonname;
  ::freeaddrinfo(found);
  return name;
}

HostCheck::HostCheck(std::string listening, std::string machine,
                     std::function<std::string()> full_name)
    : listening_(Plain(listening)),
      machine_(Plain(machine)),
      ask_full_name_(std::move(full_name)) {}

bool HostCheck::Admits(std::string_view header) {
  if (header.empty()) return true;
  if (header.starts_with('[')) {
    const size_t end = header.find(']');
    return end != std::string_view::npos &&
           IsAddress(AF_INET6, std::string(header.substr(1, end - 1)));
  }
  const std::string host = Plain(header.substr(0, header.find(':')));
  if (IsAddress(AF_INET, host) || host == "localhost" || host == listening_) {
    return true;
  }
  if (machine_.empty()) return false;
  if (host == machine_) return true;
  if (FirstLabel(host) != FirstLabel(machine_)) return false;
  std::call_once(asked_, [this] { full_name_ = Plain(ask_full_name_()); });
  return host == full_name_;
}

}  // namespace lockstep::http
