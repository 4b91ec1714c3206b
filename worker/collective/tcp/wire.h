// What goes before the bytes of an operation on each connection that it uses,
// in each direction, once. The bytes themselves carry nothing: which they are
// follows from the operation and the plan.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_

#include <cstdint>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::tcp {

// Whose operation it is.
enum class Purpose : uint8_t { kCaller, kTuning };

// Little-endian, as every host we run on.
struct Header {
  uint32_t magic = 0;
  uint32_t purpose = 0;
  uint64_t sequence = 0;  // Of the operation in its communicator, from 1.
  // None: the last that a rank says, which then leaves.
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

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_
