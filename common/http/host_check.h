// Checks the Host header, against DNS rebinding.
//
// A foreign web page may point its own name at this machine and read the
// answers of a server on loopback. The browser's Host header then carries the
// page's name. So a server on loopback accepts only addresses and the names of
// its machine. A server that other machines reach has TLS, whose certificate
// gives the same protection.
#ifndef LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_
#define LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep::http {

// The machine's name from gethostname(2), and its canonical name from the
// resolver. Empty if there is none.
std::string MachineName();
std::string FullMachineName();

// Thread-safe.
class HostCheck {
 public:
  // `listening` is the host part of the listening address. `full_name` may take
  // long; it is called at most once, for the first name that begins like the
  // machine's.
  HostCheck(std::string listening, std::string machine,
            std::function<std::string()> full_name);

  // `header` is the value as sent, with or without a port. A request without
  // one does not come from a browser and is admitted.
  bool Admits(std::string_view header);

 private:
  const std::string listening_;
  const std::string machine_;
  const std::function<std::string()> ask_full_name_;
  std::once_flag asked_;
  std::string full_name_;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_HOST_CHECK_H_
