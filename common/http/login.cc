#include "common/http/login.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <charconv>
#include <utility>

#include "common/base/login_link.h"

namespace lockstep::http {
namespace {

using lockstep::Seconds;

constexpr std::chrono::seconds kSessionLife = std::chrono::hours(12);
// How far the clock of a link's creator may be ahead.
constexpr int64_t kClockSeconds = 5;

bool Equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// Returns 0 if it is not a time.
int64_t Seconds(std::string_view text) {
  int64_t seconds = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && end == text.data() + text.size() ? seconds : 0;
}

std::string SessionText(std::string_view expires) {
  return fmt::format("lockstep session\n{}", expires);
}

std::string Field(const HttpTarget& target, const char* name) {
  const auto found = target.query.find(name);
  return found == target.query.end() ? "" : found->second;
}

}  // namespace

Login::Login(std::shared_ptr<AccessToken> token, bool secure)
    : token_(std::move(token)),
      secure_(secure),
      started_(UnixSeconds(token_->clock()->Now().wall)) {}

std::string Login::CookieName() const {
  return "lockstep_" + token_->Mac("lockstep cookie").substr(0, 8);
}

bool Login::Uses(const HttpTarget& target) {
  const std::string expires = Field(target, "expires");
  const std::string nonce = Field(target, "nonce");
  const int64_t now = UnixSeconds(token_->clock()->Now().wall);
  const int64_t end = Seconds(expires);
  const int64_t life = kLoginLinkLife.count();
  if (!Equal(Field(target, "mac"), token_->Mac(LoginText(expires, nonce))) ||
      end <= now || end > now + life + kClockSeconds || end < started_ + life) {
    return false;
  }
  MutexLock lock(&mu_);
  std::erase_if(used_, [&](const auto& one) { return one.second <= now; });
  return used_.emplace(nonce, end).second;
}

HttpResponse Login::Answer(const HttpTarget& target) {
  if (!Uses(target)) {
    return {.status = 403,
            .body =
                "this link was used, is older than a minute or than "
                "this daemon's start, or has another token: `lockstep "
                "ui` prints a new one\n",
            .headers = {}};
  }
  const std::string expires = std::to_string(
      UnixSeconds(token_->clock()->Now().wall) + kSessionLife.count());
  return {
      .status = 303,
      .body = "",
      .headers = {
          {"Location", "/"},
          {"Referrer-Policy", "no-referrer"},
          {"Set-Cookie",
           fmt::format("{}={}.{}; Path=/; Max-Age={}; HttpOnly; "
                       "SameSite=Strict{}",
                       CookieName(), expires, token_->Mac(SessionText(expires)),
                       kSessionLife.count(), secure_ ? "; Secure" : "")}}};
}

bool Login::Admits(std::string_view cookie) {
  if (cookie.empty()) return false;
  const std::string start = CookieName() + "=";
  while (!cookie.empty()) {
    const size_t end = cookie.find(';');
    std::string_view one = cookie.substr(0, end);
    cookie = end == cookie.npos ? "" : cookie.substr(end + 1);
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (!one.starts_with(start)) continue;
    one.remove_prefix(start.size());
    const size_t dot = one.find('.');
    if (dot == one.npos) continue;
    const std::string_view expires = one.substr(0, dot);
    if (Equal(one.substr(dot + 1), token_->Mac(SessionText(expires))) &&
        Seconds(expires) > UnixSeconds(token_->clock()->Now().wall)) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::http
