#include "worker/evidence/flight_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

// A trace of 2,000 operations with their stacks has a few hundred thousand
// values.
constexpr size_t kMostValues = 4'000'000;
constexpr size_t kMostRecordsOfAGroup = 8;
// One value may be in many places, so these bound the time.
constexpr size_t kMostEntries = 100'000;
constexpr size_t kMostFields = 256;

struct Value {
  enum class Kind { kNone, kNumber, kText, kList, kDictionary, kMark };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  std::string_view text;
  // Places in the pickle's values; of a dictionary keys and values in turn.
  std::vector<uint32_t> items;
};

// The machine of Python's pickle protocol 2 (pickletools.py), without the
// operations that name or call anything.
class Unpickler {
 public:
  explicit Unpickler(std::string_view bytes) : rest_(bytes) {}

  // The place of the pickle's value.
  StatusOr<uint32_t> Run() {
    while (!rest_.empty() && values_.size() < kMostValues) {
      const auto op = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      if (op == '.') {
        if (stack_.size() != 1) break;
        return stack_[0];
      }
      if (!Step(op)) {
        return DataLoss("operation {} of the pickle is not of a trace", op);
      }
    }
    return DataLoss("the pickle has no end, or is too large");
  }
  const Value& At(uint32_t place) const { return values_[place]; }

 private:
  using Kind = Value::Kind;

  // False: it is unknown here, or not possible.
  bool Step(uint8_t op) {
    switch (op) {
      case 0x80:  // PROTO
        return Take(1).has_value();
      case 0x95:  // FRAME
        return Take(8).has_value();
      case '(':
        return Push({Kind::kMark, 0, {}, {}});
      case 'N':
      case 0x89:  // NEWFALSE
        return Push({op == 'N' ? Kind::kNone : Kind::kNumber, 0, {}, {}});
      case 0x88:  // NEWTRUE
        return Push({Kind::kNumber, 1, {}, {}});
      case '}':
        return Push({Kind::kDictionary, 0, {}, {}});
      case ']':
      case ')':
        return Push({Kind::kList, 0, {}, {}});
      default:
        return StepNumber(op) || StepText(op) || StepMemo(op) ||
               StepContainer(op);
    }
  }

  bool StepNumber(uint8_t op) {
    switch (op) {
      case 'K':
        return PushNumber(1, /*is_signed=*/false);
      case 'M':
        return PushNumber(2, /*is_signed=*/false);
      case 'J':
        return PushNumber(4, /*is_signed=*/true);
      case 0x8a: {  // LONG1
        const auto size = TakeNumber(1, false);
        return size && *size <= 8 &&
               PushNumber(static_cast<size_t>(*size), /*is_signed=*/true);
      }
      case 'G':  // A float, which no field of interest is.
        return Take(8) && Push({Kind::kNone, 0, {}, {}});
      default:
        return false;
    }
  }

  bool StepText(uint8_t op) {
    if (op != 'X' && op != 0x8c) return false;
    const auto size = TakeNumber(op == 'X' ? 4 : 1, false);
    if (!size) return false;
    const auto text = Take(static_cast<size_t>(*size));
    return text && Push({Kind::kText, 0, *text, {}});
  }

  bool StepMemo(uint8_t op) {
    switch (op) {
      case 0x94:  // MEMOIZE
        return !stack_.empty() &&
               memo_.emplace(memo_.size(), stack_.back()).second;
      case 'q':
      case 'r': {
        const auto key = TakeNumber(op == 'q' ? 1 : 4, false);
        if (!key || stack_.empty()) return false;
        memo_[static_cast<uint64_t>(*key)] = stack_.back();
        return true;
      }
      case 'h':
      case 'j': {
        const auto key = TakeNumber(op == 'h' ? 1 : 4, false);
        const auto known =
            key ? memo_.find(static_cast<uint64_t>(*key)) : memo_.end();
        if (known == memo_.end()) return false;
        stack_.push_back(known->second);
        return true;
      }
      default:
        return false;
    }
  }

  bool StepContainer(uint8_t op) {
    switch (op) {
      case 'a':
        return PutLast(1, Kind::kList);
      case 's':
        return PutLast(2, Kind::kDictionary);
      case 'e':
      case 'u': {
        const auto count = CountToMark();
        if (!count) return false;
        stack_.erase(stack_.end() - static_cast<std::ptrdiff_t>(*count) - 1);
        return PutLast(*count, op == 'e' ? Kind::kList : Kind::kDictionary);
      }
      case 't': {
        const auto count = CountToMark();
        if (!count) return false;
        stack_.erase(stack_.end() - static_cast<std::ptrdiff_t>(*count) - 1);
        return MakeTuple(*count);
      }
      case 0x85:
      case 0x86:
      case 0x87:
        return MakeTuple(op - size_t{0x84});
      default:
        return false;
    }
  }

  std::optional<std::string_view> Take(size_t size) {
    if (rest_.size() < size) return std::nullopt;
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  // Little-endian.
  std::optional<int64_t> TakeNumber(size_t size, bool is_signed) {
    const auto bytes = Take(size);
    if (!bytes) return std::nullopt;
    uint64_t number = 0;
    for (size_t i = 0; i < size; ++i) {
      number |= uint64_t{static_cast<uint8_t>((*bytes)[i])} << (8 * i);
    }
    if (is_signed && size > 0 && size < 8 &&
        (static_cast<uint8_t>(bytes->back()) & 0x80) != 0) {
      number |= ~uint64_t{0} << (8 * size);
    }
    return static_cast<int64_t>(number);
  }
  bool Push(Value value) {
    stack_.push_back(static_cast<uint32_t>(values_.size()));
    values_.push_back(std::move(value));
    return true;
  }
  bool PushNumber(size_t size, bool is_signed) {
    const auto number = TakeNumber(size, is_signed);
    return number && Push({Kind::kNumber, *number, {}, {}});
  }
  // How many values are above the last mark.
  std::optional<size_t> CountToMark() const {
    for (size_t i = 0; i < stack_.size(); ++i) {
      if (values_[stack_[stack_.size() - 1 - i]].kind == Kind::kMark) return i;
    }
    return std::nullopt;
  }
  // Moves the last `count` values into the container below them.
  bool PutLast(size_t count, Kind kind) {
    if (stack_.size() < count + 1) return false;
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Value& container = values_[*(first - 1)];
    if (container.kind != kind) return false;
    container.items.insert(container.items.end(), first, stack_.end());
    stack_.erase(first, stack_.end());
    return true;
  }
  bool MakeTuple(size_t count) {
    if (stack_.size() < count) return false;
    Value tuple{Kind::kList, 0, {}, {}};
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    tuple.items.assign(first, stack_.end());
    stack_.erase(first, stack_.end());
    return Push(std::move(tuple));
  }

  std::string_view rest_;
  std::vector<Value> values_;
  std::vector<uint32_t> stack_;
  std::map<uint64_t, uint32_t> memo_;
};

// Reads a trace's values. A field that is missing, or of another kind, is 0 or
// empty.
class TraceReader {
 public:
  explicit TraceReader(const Unpickler& pickle) : pickle_(pickle) {}

  const Value* Field(const Value& dictionary, std::string_view key) const {
    if (dictionary.kind != Value::Kind::kDictionary ||
        dictionary.items.size() > 2 * kMostFields) {
      return nullptr;
    }
    for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
      const Value& name = pickle_.At(dictionary.items[i]);
      if (name.kind == Value::Kind::kText && name.text == key) {
        return &pickle_.At(dictionary.items[i + 1]);
      }
    }
    return nullptr;
  }

  std::optional<FlightRecord> RecordOf(const Value& entry) const {
    if (Number(entry, "is_p2p") != 0) return std::nullopt;
    FlightRecord record;
    record.sequence = Number(entry, "collective_seq_id");
    std::string_view operation = Text(entry, "profiling_name");
    const size_t colon = operation.find(':');  // "nccl:all_reduce"
    if (colon != operation.npos) operation.remove_prefix(colon + 1);
    record.operation = ShortText(operation, kMaxEvidenceName);
    // Some back ends do not note the state, only that it is over.
    record.state = Number(entry, "retired") != 0
                       ? std::string(kFlightCompleted)
                       : ShortText(Text(entry, "state"), kMaxEvidenceName);
    record.group = GroupOf(entry);
    if (record.sequence <= 0 || record.operation.empty()) return std::nullopt;
    return record;
  }

 private:
  int64_t Number(const Value& entry, std::string_view key) const {
    const Value* const value = Field(entry, key);
    return value != nullptr && value->kind == Value::Kind::kNumber
               ? value->number
               : 0;
  }
  std::string_view Text(const Value& entry, std::string_view key) const {
    const Value* const value = Field(entry, key);
    return value != nullptr ? value->text : std::string_view();
  }
  // Of ("0", "default_pg"): "0 (default_pg)".
  std::string GroupOf(const Value& entry) const {
    const Value* const names = Field(entry, "process_group");
    if (names == nullptr || names->items.empty()) return "";
    std::string text(pickle_.At(names->items[0]).text);
    if (names->items.size() > 1) {
      const std::string_view description = pickle_.At(names->items[1]).text;
      if (!description.empty() && description != "undefined") {
        text += fmt::format(" ({})", description);
      }
    }
    return ShortText(text, kMaxEvidenceName);
  }

  const Unpickler& pickle_;
};

}  // namespace

StatusOr<std::vector<FlightRecord>> ParseFlightTrace(std::string_view pickle) {
  Unpickler unpickler(pickle);
  LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t top, unpickler.Run());
  const TraceReader reader(unpickler);
  const Value* const entries = reader.Field(unpickler.At(top), "entries");
  if (entries == nullptr) return DataLoss("the trace has no entries");
  // Newest first.
  std::vector<FlightRecord> records;
  std::map<std::string, size_t> of_group;
  const size_t count = std::min(entries->items.size(), kMostEntries);
  for (size_t i = 0; i < count && records.size() < kMaxFlightRecords; ++i) {
    const uint32_t place = entries->items[entries->items.size() - 1 - i];
    auto record = reader.RecordOf(unpickler.At(place));
    if (!record || ++of_group[record->group] > kMostRecordsOfAGroup) continue;
    records.push_back(*std::move(record));
  }
  std::reverse(records.begin(), records.end());
  return records;
}

}  // namespace lockstep::worker::evidence
