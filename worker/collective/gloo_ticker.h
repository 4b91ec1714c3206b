// Makes Gloo's event loop turn often, while it forms or takes down a mesh.
//
// Whoever removes a descriptor from that loop waits until the loop has turned
// once more, and with nothing to do it turns every 10 ms. Forming does that
// once for each peer that it connects to and taking down once for each peer,
// one after the other: half a second for 64 ranks. A timer among the loop's
// descriptors lets it turn every 100 us instead; disarmed it costs nothing.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_GLOO_TICKER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_GLOO_TICKER_H_

#include <gloo/transport/tcp/device.h>

#include <memory>

#include "common/base/fd.h"

namespace lockstep {

class GlooTicker final : public gloo::transport::tcp::Handler {
 public:
  // Of `device`'s loop, disarmed. Does nothing, ever, where the kernel has no
  // timer to give: then Gloo is slow and not wrong. Destroyed after the last
  // owner of `device`, or after Detach.
  explicit GlooTicker(const std::shared_ptr<gloo::transport::Device>& device);

  void Arm() { Set(true); }
  void Disarm() { Set(false); }

  // Lets go of the loop of `device`, which goes on. May take 10 ms.
  void Detach(gloo::transport::Device* device);

 private:
  void Set(bool armed);
  // On the loop's thread.
  void handleEvents(int events) override;

  Fd timer_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_GLOO_TICKER_H_
