// Lines of a rank's log, and times in them.
#include "common/base/log_line.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(log_line)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes = fuzz::View(data, size);
  cri::LogLine line;
  std::string error;
  if (cri::ParseLogLine(bytes, &line, &error)) {
    std::string text;
    cri::AppendLogLine(line, &text);
    cri::LogLine again;
    fuzz::Require(cri::ParseLogLine(text, &again, &error) &&
                      again.unix_nanos == line.unix_nanos &&
                      again.stream == line.stream && again.full == line.full &&
                      again.text == line.text,
                  "a line is read as written");
  }
  std::string whole;
  cri::AppendToLine(bytes, &whole);
  std::string pieces;
  for (const char& c : bytes) {
    cri::AppendToLine(std::string_view(&c, 1), &pieces);
  }
  fuzz::Require(whole == pieces, "a line does not depend on how it is cut");
  fuzz::Require(cri::ShownLine(whole).find('\r') == std::string_view::npos,
                "what is shown has no carriage return");
  int64_t nanos = 0;
  if (cri::ParseRfc3339Nano(bytes, &nanos)) {
    int64_t again = 0;
    fuzz::Require(
        cri::ParseRfc3339Nano(cri::FormatRfc3339Nano(nanos), &again) &&
            again == nanos,
        "a time is read as written");
  }
  return 0;
}
