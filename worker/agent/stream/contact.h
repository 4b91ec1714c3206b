// Daemons ask each other for a sign of life while the coordinator does not
// answer. On the port of probes (probe.h):
//
//   asks     "lockstep contact 1 NAME\n"       its own node
//   answers  "lockstep contact 1 NAME\n"       the answering node
//
// Nothing is authenticated: who can answer as a neighbour can keep the ranks of
// a node that is cut off alive, and so can who lets its packets through.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_CONTACT_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_CONTACT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/model/probe.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"

namespace lockstep::worker::agent {

// Asks all targets in parallel; waits at most `timeout` for the first answer.
// Returns whether one has answered as the node that it is.
bool AskNeighbours(const NodeName& self,
                   const std::vector<ProbeTarget>& targets, Duration timeout);

// Answers daemons that ask, and remembers them. Belongs to the event loop's
// thread.
class ContactServer {
 public:
  // `loop` is borrowed.
  ContactServer(NodeName self, EventLoop* loop);
  ~ContactServer();
  ContactServer(const ContactServer&) = delete;
  ContactServer& operator=(const ContactServer&) = delete;

  // A connection that was accepted on the port of probes. Most are closed
  // without a word.
  void Take(Fd connection);
  // How long nothing was answered to that node, as far as this daemon knows.
  Duration QuietOf(const NodeName& node) const;

 private:
  struct Connection {
    Fd fd;
    std::string text;
    uint64_t timer = 0;
  };

  void OnReadable(int fd);
  void Answer(const NodeName& node, int fd);
  void Close(int fd);

  const NodeName self_;
  EventLoop* const loop_;
  // Since when every answer is in `answered_`.
  MonoTime since_;
  std::map<NodeName, MonoTime> answered_;
  // By descriptor.
  std::map<int, Connection> open_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_CONTACT_H_
