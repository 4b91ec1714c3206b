#include "worker/collective/tcp/wire.h"

#include <fmt/format.h>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::tcp {
namespace {

constexpr uint32_t kFrameMagic = 0x4f54534c;  // "LSTO"

}  // namespace

Header MakeHeader(const Operation& operation, uint64_t sequence,
                  Purpose purpose) {
  return {kFrameMagic, static_cast<uint32_t>(purpose), sequence,
          WordsOf(operation), operation.part_of};
}

Header MakeGoodbye() { return {.magic = kFrameMagic}; }

bool IsHeader(const Header& header) { return header.magic == kFrameMagic; }

bool IsGoodbye(const Header& header) {
  return IsHeader(header) && header.words == OperationWords();
}

std::string Describe(const Header& header) {
  if (!IsHeader(header)) return "bytes of another protocol";
  if (IsGoodbye(header)) return "its end";
  if (header.purpose == static_cast<uint32_t>(Purpose::kTuning)) {
    return fmt::format("operation {}, tuning", header.sequence);
  }
  return fmt::format("operation {}, {}", header.sequence,
                     collective::Describe(header.words, header.part_of));
}

}  // namespace lockstep::worker::collective::tcp
