// The site's file of receivers: where notifications go, and which.
//
//   url: https://lockstep.example.org:7480   # of the status page, for links
//   receivers:
//   - name: on-call
//     kinds: [stalled, failed, node-fault, gpu-fault]   # all if absent
//     owners: [user/ann]        # only jobs of these; excludes nodes
//     labels: {team: vision}    # only jobs with all of these
//     reasons: [STALLED]        # only these
//     webhook:                  # or slack, mail, command
//       url: https://hooks.example.org/lockstep
//       secret_file: /etc/lockstep/webhook.secret
//   - name: chat
//     slack: {url_file: /etc/lockstep/slack.url}
//     text: "{title}: {text} ({cost})"
//   - name: owners
//     mail: {server: "smtp://mail:25", from: lockstep@example.org,
//            to: ["{user}@example.org"], user: u, password_file: F,
//            tls: required}     # or "if offered", the default, or never
//   - name: pager
//     command: [/usr/local/bin/page, "{job}", "{text}"]
#ifndef LOCKSTEP_SERVER_NOTIFY_RECEIVERS_H_
#define LOCKSTEP_SERVER_NOTIFY_RECEIVERS_H_

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "server/notify/notification.h"

namespace lockstep::server {

// A POST of the notification's JSON, signed as https://www.standardwebhooks.com
// says.
struct WebhookReceiver {
  std::string url;
  // The key itself: the file's text, decoded if it is whsec_BASE64. Empty:
  // unsigned.
  std::string secret;
};
// A POST of {"text": ...}, which Slack, Mattermost and others understand.
struct SlackReceiver {
  std::string url;
};
struct MailReceiver {
  enum class Tls { kIfOffered, kRequired, kNever };
  // smtp://HOST:PORT or smtps://HOST:PORT.
  std::string server;
  std::string from;
  // Templates.
  std::vector<std::string> to;
  std::string user;
  std::string password;
  Tls tls = Tls::kIfOffered;
};
// A program that gets the JSON as its standard input.
struct CommandReceiver {
  // Templates, but for the first, which is a path.
  std::vector<std::string> argv;
};

struct Receiver {
  // Letters, digits, "-", "_" and "."; at most 63, as it names a folder.
  std::string name;
  // Empty sets take everything.
  std::set<NotificationKind> kinds;
  std::set<std::string> owners;
  std::map<std::string, std::string> labels;
  std::set<std::string> reasons;
  // The template of what people read.
  std::string text = std::string(kDefaultText);
  std::variant<WebhookReceiver, SlackReceiver, MailReceiver, CommandReceiver>
      way;
};
// Whether the receiver wants it.
bool Wants(const Receiver& receiver, const Notification& notification);

struct Receivers {
  // Without a slash at its end. Empty: no links.
  std::string url;
  std::vector<Receiver> all;
};

inline constexpr size_t kMaxReceivers = 32;

// Reads the file and those that it names. Errors name the file, the line and
// the field.
StatusOr<Receivers> LoadReceivers(FileSystem* files, const std::string& path);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_RECEIVERS_H_
