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
  uint32_t magic;
  uint8_t kind;  // CollectiveKind, or kGoodbye
  uint8_t op;
  uint8_t type;
  uint8_t purpose;
  uint32_t root;
  uint32_t tag;
  uint64_t sequence;  // of the operation in its communicator, from 1
  uint64_t count;
};
static_assert(sizeof(Header) == 32, "no padding");

// The last that a rank says which leaves in good order.
inline constexpr uint8_t kGoodbye = 0xff;

// What does not matter to an operation (a barrier's count, a broadcast's
// arithmetic) is zero.
Header MakeHeader(const Operation& operation, uint64_t sequence,
                  Purpose purpose = Purpose::kCaller);
Header MakeGoodbye();

bool IsHeader(const Header& header);
bool IsGoodbye(const Header& header);
bool SameOperation(const Header& a, const Header& b);

// "operation 7, all-reduce (sum) of 100 float32", "operation 7, tuning"; for
// bytes of any kind.
std::string Describe(const Header& header);

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_WIRE_H_
