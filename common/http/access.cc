#include "common/http/access.h"

#include <utility>

#include "common/base/login_link.h"

namespace lockstep::http {
namespace {

bool RequiresCertificate(const WebConfig& web) {
  return web.tls && web.tls->client_auth == ClientAuth::kRequireAndVerify;
}

}  // namespace

Access::Access(const WebConfig& web, std::shared_ptr<AccessToken> token)
    : token_(std::move(token)),
      login_(token_ == nullptr
                 ? nullptr
                 : std::make_unique<Login>(token_, web.tls.has_value())),
      basic_(web.users),
      by_head_(token_ != nullptr || basic_.enabled()),
      by_tls_(RequiresCertificate(web)),
      certificate_suffices_(token_ != nullptr && web.tls &&
                            Verifies(web.tls->client_auth) &&
                            !(by_tls_ && basic_.enabled())) {}

bool Access::Admits(const HttpHead& head) {
  if (!by_head_) return true;
  if (certificate_suffices_ && head.certified) return true;
  if (token_ != nullptr && token_->Admits(head.authorization)) return true;
  if (login_ != nullptr && login_->Admits(head.cookie)) return true;
  return basic_.enabled() && basic_.Admits(head.authorization);
}

bool Access::IsLogin(const HttpHead& head, std::string_view path) const {
  return login_ != nullptr && head.method == "GET" && path == kLoginPath;
}

HttpResponse Access::LogIn(const HttpTarget& target) {
  HttpResponse response = login_->Answer(target);
  if (response.status == 403) ++refused_;
  return response;
}

HttpResponse Access::Refuse() {
  ++refused_;
  if (token_ == nullptr) {
    return {.status = 401,
            .body = "a name and password are required\n",
            .headers = {{"WWW-Authenticate", "Basic realm=\"lockstep\""}}};
  }
  // Browsers use the first of the two.
  return {.status = 401,
          .body =
              "the token of this daemon's http_token_file is required: as a "
              "bearer token, or as the password of the user \"token\"\n",
          .headers = {{"WWW-Authenticate",
                       "Basic realm=\"lockstep\", Bearer "
                       "realm=\"lockstep\""}}};
}

}  // namespace lockstep::http
