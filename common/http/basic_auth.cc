#include "common/http/basic_auth.h"

#include <crypt.h>
#include <openssl/crypto.h>

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "common/base/sha256.h"

namespace lockstep::http {
namespace {

// One entry per user and its few valid passwords.
constexpr size_t kMaxKnown = 64;
// bcrypt reads 72 bytes of a password.
constexpr size_t kMaxCredentials = 1024;
// Matches no password. Unknown users are compared with it.
constexpr char kUnknownUserHash[] =
    "$2b$10$abcdefghijklmnopqrstuuAuYa7vKpTFtLZ5ISmAtz2lQ5s7rBGKi";

bool Matches(const std::string& password, const std::string& hash) {
  // 32 KiB: too much for some stacks.
  const auto data = std::make_unique<crypt_data>();
  const char* const got = crypt_r(password.c_str(), hash.c_str(), data.get());
  return got != nullptr && std::string_view(got).size() == hash.size() &&
         CRYPTO_memcmp(got, hash.data(), hash.size()) == 0;
}

}  // namespace

BasicAuth::BasicAuth(std::map<std::string, std::string> users)
    : users_(std::move(users)) {}

bool BasicAuth::Admits(std::string_view header) {
  if (!enabled()) return true;
  static constexpr std::string_view kScheme = "basic ";
  if (header.size() < kScheme.size() || header.size() > kMaxCredentials) {
    return false;
  }
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i];
    if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != kScheme[i]) return false;
  }
  header.remove_prefix(kScheme.size());
  std::string pair;
  if (!absl::Base64Unescape({header.data(), header.size()}, &pair)) {
    return false;
  }
  const size_t colon = pair.find(':');
  // crypt(3) stops at a zero byte, so a password with one is invalid.
  if (colon == std::string::npos || pair.find('\0') != std::string::npos) {
    return false;
  }
  const auto user = users_.find(pair.substr(0, colon));
  const std::string digest = Sha256(pair);
  if (user != users_.end()) {
    MutexLock lock(&mu_);
    if (known_.contains(digest)) return true;
  }
  const bool right = Matches(
      pair.substr(colon + 1),
      user == users_.end() ? std::string(kUnknownUserHash) : user->second);
  if (!right || user == users_.end()) return false;
  MutexLock lock(&mu_);
  if (known_.size() < kMaxKnown) known_.insert(digest);
  return true;
}

}  // namespace lockstep::http
