// Parts, rounds and memory of the all-to-alls over several hosts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_EXCHANGE_PARTS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_EXCHANGE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::hierarchical {

// The bytes that a rank passes on in a round: enough for the network, and few
// beside those that are exchanged.
inline constexpr size_t kRoundBytes = size_t{16} << 20;

// Rounds of up to kRoundBytes for `most` elements; one for none.
uint64_t RoundsFor(uint64_t most, DataType type);

// The elements of a part that go in a round.
struct Share {
  size_t first = 0;
  size_t count = 0;
};
// Nearly equal shares.
Share ShareOf(size_t count, uint64_t rounds, uint64_t round);
// The share of `whole`; empty without an address.
PeerPart PartOf(const PeerPart& whole, const Share& share, size_t element);

// Copies parts side by side to `to`, and from there.
void PackParts(const std::vector<PeerPart>& parts, size_t element, char* to);
void UnpackParts(const std::vector<PeerPart>& parts, size_t element,
                 const char* from);

// Memory that is kept.
class Scratch {
 public:
  // Makes `needed` bytes; what was in it is lost. ResourceExhausted.
  Status Reserve(size_t needed);
  char* data() const { return data_.get(); }

 private:
  std::unique_ptr<char[]> data_;
  size_t bytes_ = 0;
};

// Parts that go as one: they lie side by side in memory, or are copied.
class Bundle {
 public:
  // `element`: bytes. `staged`: memory for all parts, which is not used where
  // they lie side by side.
  Bundle(std::vector<PeerPart> parts, size_t element, char* staged);

  const PeerPart& whole() const { return whole_; }
  // Between the parts and the whole, where they are copied.
  void Pack() const;
  void Unpack() const;

 private:
  std::vector<PeerPart> parts_;
  size_t element_;
  PeerPart whole_;
  bool staged_ = false;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_EXCHANGE_PARTS_H_
