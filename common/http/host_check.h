// Who a browser may say that it talks to: against DNS rebinding.
//
// A page from elsewhere may point its own name at this machine and then read
// what a server on loopback answers. The browser tells: its Host header has
// that page's name, which is none of ours. So a server that only its machine
// reaches answers to addresses and to the names of its machine, and to nothing
// else. One that others reach has TLS, whose certificate does the same.
#ifndef LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_
#define LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

// The machine's names, as gethostname(2) and, asking the resolver, the
// canonical one; empty where there is none.
std::string MachineName();
std::string FullMachineName();

// Thread-safe.
class HostCheck {
 public:
  // `listening` is the host part of the address that is listened on.
  // `full_name` may take long: called at most once, when somebody asks for a
  // name that begins like the machine's.
  HostCheck(std::string listening, std::string machine,
            std::function<std::string()> full_name);

  // `header` as sent, with a port or without; a request without one is no
  // browser's.
  bool Admits(std::string_view header);

 private:
  const std::string listening_;
  const std::string machine_;
  const std::function<std::string()> ask_full_name_;
  std::once_flag asked_;
  std::string full_name_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_
