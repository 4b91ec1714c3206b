// Packets with descriptors, of the worker daemon and of the shim.
#ifndef LOCKSTEP_WORKER_SHIM_SEND_DESCRIPTORS_H_
#define LOCKSTEP_WORKER_SHIM_SEND_DESCRIPTORS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::worker::shim {

// send(2) without waiting, with the descriptors `fds`.
ssize_t SendWithDescriptors(int socket, const std::string& bytes,
                            const std::vector<int>& fds);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SEND_DESCRIPTORS_H_
