// Checks the fields of one outside message and keeps the first complaint,
// which names the field: "spec.roles[1].count: must be 1..65536, not 0".
#ifndef LOCKSTEP_COMMON_WIRE_FIELD_CHECKER_H_
#define LOCKSTEP_COMMON_WIRE_FIELD_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// `text` in quotes, fit to stand in an error or a log line whatever it holds:
// at most 64 bytes of it, printable ASCII, the rest as \xNN.
std::string Quote(std::string_view text);

// The largest integer that doubles, and so JSON, carry exactly.
inline constexpr int64_t kMaxExact = int64_t{1} << 53;

// Bounds, in bytes, of the texts that daemons send each other.
inline constexpr size_t kMaxReportText = 8192;
inline constexpr size_t kMaxReportPath = 4096;
// Larger than any figure of a training.
inline constexpr double kHugeFigure = 1e300;

// While one lives, its thread reads values without the limits of the API's
// input: lengths, counts, ranges, names and rules between fields. For values
// that were checked when they came in and are read from storage: a limit that
// became tighter must not make them unreadable. A value without a meaning, such
// as an unknown enum value or a number that is not finite, stays an error. Only
// the decoders of server/store make one. They call nothing but converters of
// values while it lives.
class WithoutLimits {
 public:
  WithoutLimits();
  ~WithoutLimits();
  WithoutLimits(const WithoutLimits&) = delete;
  WithoutLimits& operator=(const WithoutLimits&) = delete;

 private:
  const bool before_;
};

// How paths name fields: "worker_count", or "workerCount" as JSON has it.
enum class PathStyle { kProto, kJson };

// One per message. It keeps a path of pointers, and makes a text of it for a
// complaint only.
class FieldChecker {
 public:
  // Of a message at `path`, which may be empty.
  explicit FieldChecker(std::string_view path,
                        PathStyle style = PathStyle::kProto)
      : path_(path), style_(style), status_(&own_status_) {}
  // For the message in a field of the parent's, or for its entry `index`. The
  // parent keeps the complaint. Both arguments must outlive this.
  FieldChecker(const FieldChecker* parent, std::string_view field,
               int index = -1)
      : parent_(parent),
        path_(field),
        index_(index),
        style_(parent->style_),
        status_(parent->status_) {}
  FieldChecker(const FieldChecker&) = delete;
  FieldChecker& operator=(const FieldChecker&) = delete;

  bool ok() const { return status_->ok(); }
  const Status& status() const { return *status_; }

  // The value cannot be read, with limits or without. Here and below an empty
  // `field` is the message itself.
  void Fail(std::string_view field, std::string_view sentence);
  // A limit, as all checks from here on are.
  void Require(bool condition, std::string_view field,
               std::string_view sentence) {
    if (!condition) Exceed(field, sentence);
  }
  void Range(std::string_view field, int64_t value, int64_t low, int64_t high);
  // Finite, which is not a limit, and in the range.
  void Number(std::string_view field, double value, double low, double high);
  void Count(std::string_view field, size_t count, size_t most);
  // At most `most` bytes, no NUL.
  void Bytes(std::string_view field, std::string_view text, size_t most);
  // The same, and no control character but newline and tab.
  void Text(std::string_view field, std::string_view text, size_t most);
  // Empty, or absolute without "..", at most 4,095 bytes, no control character.
  void Path(std::string_view field, std::string_view path);
  void JobName(std::string_view field, std::string_view name);
  void NodeName(std::string_view field, std::string_view name);
  // IPv4 or IPv6.
  void IpAddress(std::string_view field, const std::string& text);

 private:
  void Exceed(std::string_view field, std::string_view sentence);
  // "spec.roles[1]"; "spec.roles[1].field" unless `field` is empty.
  std::string At(std::string_view field) const;

  const FieldChecker* const parent_ = nullptr;
  const std::string_view path_;  // Of the parent's, if there is one.
  const int index_ = -1;
  const PathStyle style_;
  Status own_status_;
  Status* const status_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_FIELD_CHECKER_H_
