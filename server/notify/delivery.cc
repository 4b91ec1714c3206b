#include "server/notify/delivery.h"

#include <absl/strings/escaping.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "common/base/fd.h"
#include "common/base/sha256.h"
#include "common/os/process.h"

namespace lockstep::server {
namespace {

// How often a program that runs is looked at.
constexpr Duration kLookInterval = std::chrono::milliseconds(200);

using Curl = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

class CurlList {
 public:
  CurlList() = default;
  ~CurlList() { curl_slist_free_all(list_); }
  CurlList(const CurlList&) = delete;
  CurlList& operator=(const CurlList&) = delete;
  void Add(const std::string& text) {
    list_ = curl_slist_append(list_, text.c_str());
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// libcurl calls it about once a second; not 0 ends the transfer.
int IsStopped(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(stop)->load() ? 1 : 0;
}

Curl NewCurl(const char* protocols, const std::atomic<bool>& stop) {
  // Once, before the first handle.
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  Curl curl(global == CURLE_OK ? curl_easy_init() : nullptr,
            &curl_easy_cleanup);
  if (curl == nullptr) return curl;
  const auto ms = [](Duration d) {
    return static_cast<long>(d / std::chrono::milliseconds(1));
  };
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, ms(kDeliveryTime));
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT_MS,
                   ms(kDeliveryTime / 3));
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, protocols);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, &IsStopped);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA,
                   const_cast<std::atomic<bool>*>(&stop));
  return curl;
}

size_t DropAnswer(char*, size_t size, size_t count, void*) {
  return size * count;
}

// A peer's word about itself (5xx) may pass, and so may "too many requests".
Status StatusOfHttp(long code) {
  if (code >= 200 && code < 300) return OkStatus();
  if (code >= 500 || code == 408 || code == 425 || code == 429) {
    return Unavailable("the receiver answers with HTTP status {}", code);
  }
  return FailedPrecondition("the receiver answers with HTTP status {}", code);
}

Status Post(const std::string& url, const std::string& body,
            const CurlList& headers, const std::atomic<bool>& stop) {
  const Curl curl = NewCurl("http,https", stop);
  if (curl == nullptr) return Unavailable("libcurl does not start");
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, body.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &DropAnswer);
  const CURLcode result = curl_easy_perform(curl.get());
  if (result != CURLE_OK) {
    return Unavailable("the receiver is not reached: {}",
                       curl_easy_strerror(result));
  }
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  return StatusOfHttp(code);
}

Status SendWebhook(const WebhookReceiver& receiver, const Notification& n,
                   WallTime now, const std::atomic<bool>& stop) {
  const std::string body = ToJson(n);
  const int64_t seconds = ToUnixNanos(now) / 1'000'000'000;
  CurlList headers;
  headers.Add("Content-Type: application/json");
  headers.Add("User-Agent: lockstep");
  headers.Add("webhook-id: " + n.id);
  headers.Add(fmt::format("webhook-timestamp: {}", seconds));
  if (!receiver.secret.empty()) {
    headers.Add("webhook-signature: " +
                SignatureOf(receiver.secret, n.id, seconds, body));
  }
  return Post(receiver.url, body, headers, stop);
}

Status SendSlack(const SlackReceiver& receiver, const std::string& text,
                 const std::atomic<bool>& stop) {
  const nlohmann::json json = {{"text", text}};
  CurlList headers;
  headers.Add("Content-Type: application/json");
  headers.Add("User-Agent: lockstep");
  return Post(
      receiver.url,
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      headers, stop);
}

// A header's value: a line break would begin another header.
std::string HeaderText(std::string_view text) {
  std::string line(text.substr(0, 200));
  std::replace_if(
      line.begin(), line.end(),
      [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  const bool ascii = std::all_of(line.begin(), line.end(),
                                 [](unsigned char c) { return c < 0x80; });
  if (ascii) return line;
  return "=?UTF-8?B?" + absl::Base64Escape(line) + "?=";
}

// Bytes that SMTP and shells could misread are not in addresses of people.
bool IsAddress(const std::string& address) {
  const size_t at = address.find('@');
  return at != std::string::npos && at > 0 && at + 1 < address.size() &&
         std::all_of(address.begin(), address.end(), [](unsigned char c) {
           return isalnum(c) != 0 || std::strchr(".-_+@=", c) != nullptr;
         });
}

struct Upload {
  std::string_view left;
};

size_t ReadUpload(char* to, size_t size, size_t count, void* from) {
  std::string_view& left = static_cast<Upload*>(from)->left;
  const size_t part = std::min(size * count, left.size());
  std::memcpy(to, left.data(), part);
  left.remove_prefix(part);
  return part;
}

Status SendMail(const MailReceiver& receiver, const std::string& text,
                const Notification& n, WallTime now,
                const std::atomic<bool>& stop) {
  std::vector<std::string> to;
  CurlList recipients;
  for (const std::string& address : receiver.to) {
    to.push_back(Render(address, n));
    if (!IsAddress(to.back())) {
      return FailedPrecondition("'{}' is no mail address", to.back());
    }
    recipients.Add("<" + to.back() + ">");
  }
  const Curl curl = NewCurl("smtp,smtps", stop);
  if (curl == nullptr) return Unavailable("libcurl does not start");
  const std::string message = MailOf(receiver, to, text, n, now);
  Upload upload{message};
  const std::string from = "<" + receiver.from + ">";
  curl_easy_setopt(curl.get(), CURLOPT_URL, receiver.server.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_MAIL_FROM, from.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_MAIL_RCPT, recipients.get());
  curl_easy_setopt(curl.get(), CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_READFUNCTION, &ReadUpload);
  curl_easy_setopt(curl.get(), CURLOPT_READDATA, &upload);
  const long tls = receiver.tls == MailReceiver::Tls::kRequired ? CURLUSESSL_ALL
                   : receiver.tls == MailReceiver::Tls::kNever ? CURLUSESSL_NONE
                                                               : CURLUSESSL_TRY;
  curl_easy_setopt(curl.get(), CURLOPT_USE_SSL, tls);
  if (!receiver.user.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_USERNAME, receiver.user.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_PASSWORD, receiver.password.c_str());
  }
  const CURLcode result = curl_easy_perform(curl.get());
  if (result == CURLE_OK) return OkStatus();
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  if (code >= 500 && code < 600) {
    return FailedPrecondition("the mail server answers with {}", code);
  }
  return Unavailable("the mail server: {}", curl_easy_strerror(result));
}

// Writes the text to a file without a name: a pipe could block.
StatusOr<Fd> FileWith(const std::string& text) {
  Fd fd(memfd_create("notification", MFD_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "making a file in memory");
  if (write(fd.get(), text.data(), text.size()) !=
          static_cast<ssize_t>(text.size()) ||
      lseek(fd.get(), 0, SEEK_SET) != 0) {
    return ErrnoStatus(errno, "writing to a file in memory");
  }
  return fd;
}

Status RunCommand(const CommandReceiver& receiver, const Notification& n,
                  const std::atomic<bool>& stop) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Fd input, FileWith(ToJson(n) + "\n"));
  SpawnOptions options;
  options.program = receiver.argv[0];
  for (const std::string& argument : receiver.argv) {
    options.argv.push_back(Render(argument, n));
  }
  options.env = CurrentEnvironment();
  options.stdin_fd = input.get();
  options.new_session = true;
  auto process = Spawn(options);
  if (!process.ok()) return Unavailable("{}", Message(process.status()));
  const MonoTime deadline = MonotonicNow() + kDeliveryTime;
  auto exit = WaitExit(*process, MonotonicNow() + kLookInterval);
  while (!exit.ok() && !stop && MonotonicNow() < deadline) {
    exit = WaitExit(*process, MonotonicNow() + kLookInterval);
  }
  if (!exit.ok()) {
    // Its group: it may wait for a child.
    (void)kill(-process->id.pid, SIGKILL);
    (void)WaitExit(*process, MonotonicNow() + kDeliveryTime);
    return Unavailable("{} did not end within {}", receiver.argv[0],
                       FormatDuration(kDeliveryTime));
  }
  if (exit->ok()) return OkStatus();
  return Unavailable("{} {}", receiver.argv[0], exit->Describe());
}

}  // namespace

std::string SignatureOf(const std::string& secret, const std::string& id,
                        int64_t unix_seconds, const std::string& body) {
  const auto mac =
      HmacSha256(secret, fmt::format("{}.{}.{}", id, unix_seconds, body));
  return "v1," + absl::Base64Escape(
                     {reinterpret_cast<const char*>(mac.data()), mac.size()});
}

std::string MailOf(const MailReceiver& receiver,
                   const std::vector<std::string>& to, const std::string& text,
                   const Notification& n, WallTime now) {
  const time_t seconds = static_cast<time_t>(ToUnixNanos(now) / 1'000'000'000);
  tm utc{};
  gmtime_r(&seconds, &utc);
  char date[64];
  strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S +0000", &utc);
  std::string message = fmt::format(
      "Date: {}\r\nFrom: {}\r\nTo: {}\r\nMessage-ID: <{}@lockstep>\r\n"
      "Subject: {}\r\nMIME-Version: 1.0\r\n"
      "Content-Type: text/plain; charset=utf-8\r\n"
      "Content-Transfer-Encoding: base64\r\nAuto-Submitted: auto-generated\r\n"
      "\r\n",
      date, HeaderText(receiver.from), fmt::join(to, ", "), HeaderText(n.id),
      HeaderText(fmt::format("[lockstep {}] {}", n.cluster, TitleOf(n))));
  const std::string body = absl::Base64Escape(text + "\n");
  constexpr size_t kLine = 76;
  for (size_t at = 0; at < body.size(); at += kLine) {
    message += body.substr(at, kLine) + "\r\n";
  }
  return message;
}

Status Deliver(const Receiver& receiver, const Notification& notification,
               WallTime now, const std::atomic<bool>& stop) {
  const std::string text = Render(receiver.text, notification);
  if (const auto* webhook = std::get_if<WebhookReceiver>(&receiver.way)) {
    return SendWebhook(*webhook, notification, now, stop);
  }
  if (const auto* slack = std::get_if<SlackReceiver>(&receiver.way)) {
    return SendSlack(*slack, text, stop);
  }
  if (const auto* mail = std::get_if<MailReceiver>(&receiver.way)) {
    return SendMail(*mail, text, notification, now, stop);
  }
  return RunCommand(std::get<CommandReceiver>(receiver.way), notification,
                    stop);
}

}  // namespace lockstep::server
