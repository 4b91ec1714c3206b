// The header that goes before the bytes of an operation on each connection that
// it uses, in each direction, once. The bytes themselves have no description:
// the operation and the plan say which bytes they are.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_

#include <cstdint>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::tcp {

// The caller's operations, or those of the tuning.
enum class Purpose : uint8_t { kCaller, kTuning };

// Little-endian, as every host we run on.
struct Header {
  uint32_t magic = 0;
  uint32_t purpose = 0;
  uint64_t sequence = 0;  // The number of the operation, from 1.
  // No operation: the last header of a rank, which leaves then.
  OperationWords words = {};
  OperationWords part_of = {};

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 48, "no padding");

Header MakeHeader(const Operation& operation, uint64_t sequence,
                  Purpose purpose = Purpose::kCaller);
Header MakeGoodbye();

bool IsHeader(const Header& header);
bool IsGoodbye(const Header& header);

// "operation 7, all-reduce (sum) of 100 float32", "operation 7, tuning"; for
// bytes of any kind.
std::string Describe(const Header& header);

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_
