#include "worker/task/log_files.h"

namespace lockstep::worker::task {
namespace {
constexpr size_t kDigits = 20;  // Enough for any uint64_t.
}  // namespace

std::string SegmentPath(std::string_view log_path, uint64_t offset) {
  std::string path(log_path);
  if (offset == 0) return path;
  const std::string number = std::to_string(offset);
  path.push_back('.');
  path.append(kDigits - number.size(), '0');
  path.append(number);
  return path;
}

bool ParseSegmentName(std::string_view base_name, std::string_view name,
                      uint64_t* offset) {
  *offset = 0;
  if (name == base_name) return true;
  if (name.size() != base_name.size() + 1 + kDigits ||
      name.substr(0, base_name.size()) != base_name ||
      name[base_name.size()] != '.') {
    return false;
  }
  for (const char c : name.substr(base_name.size() + 1)) {
    if (c < '0' || c > '9') return false;
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (*offset > (UINT64_MAX - digit) / 10) return false;
    *offset = *offset * 10 + digit;
  }
  return *offset > 0;
}

LogPosition FindLogPosition(const std::vector<LogSegment>& segments,
                            uint64_t offset) {
  LogPosition position;
  for (size_t i = 0; i < segments.size(); ++i) {
    const LogSegment& s = segments[i];
    if (s.size == 0 || s.offset + s.size <= offset) continue;
    position.found = true;
    position.segment = i;
    position.offset = s.offset > offset ? s.offset : offset;
    position.gap = position.offset - offset;
    break;
  }
  return position;
}

}  // namespace lockstep::worker::task
