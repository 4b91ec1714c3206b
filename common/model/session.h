// Sessions in a running rank: a command, a connection to a port, a profile.
#ifndef LOCKSTEP_COMMON_MODEL_SESSION_H_
#define LOCKSTEP_COMMON_MODEL_SESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/job.h"

namespace lockstep {

// Of a terminal, in characters.
struct WindowSize {
  int32_t rows = 0;
  int32_t columns = 0;

  bool operator==(const WindowSize&) const = default;
};

struct CommandSession {
  std::vector<std::string> argv;
  // Absent: the command has no terminal.
  std::optional<WindowSize> terminal;
  // Kind of the terminal, for TERM; empty: unknown.
  std::string term;

  bool operator==(const CommandSession&) const = default;
};

// A TCP connection to this port of the rank's loopback address.
struct PortSession {
  int32_t port = 0;

  bool operator==(const PortSession&) const = default;
};

enum class ProfileFormat { kFlamegraph = 1, kSpeedscope = 2, kRaw = 3 };

struct ProfileSession {
  ProfileFormat format = ProfileFormat::kFlamegraph;
  int32_t seconds = 0;
  // Samples per second.
  int32_t rate = 0;
  // Also native functions.
  bool native = false;
  // Also threads that wait.
  bool idle = false;

  bool operator==(const ProfileSession&) const = default;
};

struct SessionRequest {
  JobName name;
  int32_t rank = 0;
  // Exactly one is present.
  std::optional<CommandSession> command;
  std::optional<PortSession> port;
  std::optional<ProfileSession> profile;

  bool operator==(const SessionRequest&) const = default;
};

// The coordinator's order to the node of the rank.
struct SessionOrder {
  // Random.
  uint64_t id = 0;
  Generation generation = 0;
  SessionRequest request;

  bool operator==(const SessionOrder&) const = default;
};

inline constexpr size_t kMaxSessionArguments = 256;
// Of all arguments of one command.
inline constexpr size_t kMaxSessionBytes = 32 << 10;
// Of one message in either direction.
inline constexpr size_t kMaxSessionData = 64 << 10;

// What the session does, in a few words: "`bash -l`", "port 6006", "a profile
// of 5 s". At most 200 characters, printable ASCII.
std::string Describe(const SessionRequest& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_SESSION_H_
