// Single-use links that log a browser in. Any holder of a daemon's HTTP token
// can make one without contacting the daemon. Users link OpenSSL::Crypto.
//
//   http://HOST:PORT/-/login?expires=UNIX_SECONDS&nonce=HEX&mac=HEX
//
// mac is HMAC-SHA256 with the token as key, so a link does not reveal the
// token.
#ifndef LOCKSTEP_COMMON_BASE_LOGIN_LINK_H_
#define LOCKSTEP_COMMON_BASE_LOGIN_LINK_H_

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/hex.h"
#include "common/base/random.h"
#include "common/base/sha256.h"

namespace lockstep {

inline constexpr char kLoginPath[] = "/-/login";
inline constexpr std::chrono::seconds kLoginLinkLife{60};

inline int64_t UnixSeconds(WallTime time) {
  return ToUnixNanos(time) / 1'000'000'000;
}

// Hexadecimal.
inline std::string TokenMac(std::string_view token, std::string_view text) {
  const Sha256Mac mac = HmacSha256(token, text);
  return ToHex({reinterpret_cast<const char*>(mac.data()), mac.size()});
}

// Returns the text that a link's mac signs.
inline std::string LoginText(std::string_view expires, std::string_view nonce) {
  return fmt::format("lockstep login\n{}\n{}", expires, nonce);
}

// Returns the part of the link after the port.
inline std::string LoginTarget(std::string_view token, WallTime now) {
  const std::string expires =
      std::to_string(UnixSeconds(now) + kLoginLinkLife.count());
  const std::string nonce = RandomHex(16);
  return fmt::format("{}?expires={}&nonce={}&mac={}", kLoginPath, expires,
                     nonce, TokenMac(token, LoginText(expires, nonce)));
}

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_LOGIN_LINK_H_
