// How a group forms.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_OPTIONS_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_OPTIONS_H_

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::process_group {

struct GroupOptions {
  int rank = 0;
  int size = 1;
  // Names the group in errors.
  std::string label = "group";
  // "auto", "shm", "tcp", "hierarchical".
  std::string backend = "auto";
  // The address of this host that the other hosts reach.
  std::string bind_address = "127.0.0.1";
  // A secret that all ranks know; empty: they prove nothing to each other.
  std::string key;
  // Ranks with the same text are on one host. Empty: the group finds it out.
  std::string host;
  Duration forming_timeout = std::chrono::seconds(30);
  // For one operation, from its start on the group's thread.
  Duration operation_timeout = std::chrono::seconds(300);
  // Safe from any thread. For this group alone: a key is written once. Null:
  // the group has one rank.
  std::shared_ptr<collective::RendezvousStore> store;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_OPTIONS_H_
