// What a line of a program's output says of itself.
#include "server/logs/severity.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(severity)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace server;
  std::string_view text = fuzz::View(data, size);
  SeverityReader reader;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const auto stated = StatedSeverity(line);
    const Severity severity = reader.Next(line);
    fuzz::Require(
        severity >= Severity::kDebug && severity <= Severity::kCritical,
        "there are five");
    fuzz::Require(
        !stated || severity >= *stated || severity == Severity::kError,
        "only a traceback makes a line worse");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
