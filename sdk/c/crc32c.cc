#include "sdk/c/crc32c.h"

#include <array>
#include <cstring>

namespace lockstep::c {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = state;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t AppendByInstruction(
    uint32_t state, const unsigned char* bytes, size_t size) {
  uint64_t wide = state;
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
    bytes += sizeof(word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; size > 0; --size) narrow = __builtin_ia32_crc32qi(narrow, *bytes++);
  return narrow;
}
#endif

}  // namespace

uint32_t AppendCrc32cByTable(uint32_t state, const unsigned char* bytes,
                             size_t size) {
  for (; size > 0; --size) {
    state = (state >> 8) ^ kTable[(state ^ *bytes++) & 0xff];
  }
  return state;
}

uint32_t AppendCrc32c(uint32_t state, const unsigned char* bytes, size_t size) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return AppendByInstruction(state, bytes, size);
  }
#endif
  return AppendCrc32cByTable(state, bytes, size);
}

}  // namespace lockstep::c

// What common/base/crc32c.cc calls, in the place of ISA-L's.
extern "C" unsigned int crc32_iscsi(unsigned char* bytes, int size,
                                    unsigned int state) {
  return lockstep::c::AppendCrc32c(state, bytes, static_cast<size_t>(size));
}
