// Sends one notification: by HTTP, SMTP (libcurl) or a program.
#ifndef LOCKSTEP_SERVER_NOTIFY_DELIVERY_H_
#define LOCKSTEP_SERVER_NOTIFY_DELIVERY_H_

#include <atomic>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/notify/notification.h"
#include "server/notify/receivers.h"

namespace lockstep::server {

inline constexpr Duration kDeliveryTime = std::chrono::seconds(15);

// Blocks for kDeliveryTime at most, and for about a second once `stop` is true.
// Safe from any thread. Unavailable: it may
// be taken later. FailedPrecondition: it is refused for good. Errors contain
// neither secrets nor the addresses of webhooks, which are secrets too.
Status Deliver(const Receiver& receiver, const Notification& notification,
               WallTime now, const std::atomic<bool>& stop);

// "v1,BASE64" of the HMAC-SHA-256 of "ID.TIMESTAMP.BODY": the header
// webhook-signature of https://www.standardwebhooks.com.
std::string SignatureOf(const std::string& secret, const std::string& id,
                        int64_t unix_seconds, const std::string& body);

// The whole message (RFC 5322), with CRLF.
std::string MailOf(const MailReceiver& receiver,
                   const std::vector<std::string>& to, const std::string& text,
                   const Notification& notification, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_DELIVERY_H_
