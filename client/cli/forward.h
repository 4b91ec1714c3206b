// Forwards local TCP ports to ports of a rank.
#ifndef LOCKSTEP_CLIENT_CLI_FORWARD_H_
#define LOCKSTEP_CLIENT_CLI_FORWARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/session_io.h"
#include "common/base/status.h"

namespace lockstep::cli {

struct PortPair {
  int32_t local = 0;  // 0: any.
  int32_t remote = 0;
};

// "6006", "8080:80" or ":80". InvalidArgument for other forms. Pure.
StatusOr<PortPair> ParsePortPair(const std::string& text);

struct ForwardTarget {
  std::string job;
  int32_t rank = 0;
  std::string address = "127.0.0.1";
  std::vector<PortPair> ports;
};

// Returns whether something listens at the port of the rank.
StatusOr<bool> Answers(Client* client, const ForwardTarget& target,
                       int32_t port);

// Serves until a signal of `held`; returns 128 + the signal.
StatusOr<int> Forward(const Cli& cli, Client* client,
                      const ForwardTarget& target, HeldSignals* held);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_FORWARD_H_
