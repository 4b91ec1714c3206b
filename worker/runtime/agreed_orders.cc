// AgreedOrders as text: its numbers, one behind the other.
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/runtime/step_controller.h"

namespace lockstep::worker::runtime {
namespace {

class Writer {
 public:
  template <typename T>
  void Add(T value) {
    text_ += fmt::format("{} ", value);
  }
  void Add(const std::vector<uint32_t>& values) {
    Add(values.size());
    for (const uint32_t value : values) Add(value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  template <typename T>
  T Next() {
    T value{};
    const char* const end = text_.data() + text_.size();
    const auto [at, error] = std::from_chars(text_.data(), end, value);
    good_ = good_ && error == std::errc() && at != end && *at == ' ';
    if (!good_) return T{};
    text_.remove_prefix(static_cast<size_t>(at - text_.data()) + 1);
    return value;
  }
  bool NextBool() { return Next<int>() != 0; }
  std::vector<uint32_t> NextVector() {
    std::vector<uint32_t> values;
    for (auto left = Next<size_t>(); good_ && left > 0; --left) {
      values.push_back(Next<uint32_t>());
    }
    return values;
  }
  bool good() const { return good_; }
  bool done() const { return good_ && text_.empty(); }

 private:
  std::string_view text_;
  bool good_ = true;
};

}  // namespace

std::string Encode(const AgreedOrders& orders) {
  Writer writer;
  writer.Add(orders.counts.committed);
  writer.Add(orders.counts.skipped);
  writer.Add(orders.counts.skipped_in_a_row);
  writer.Add(orders.counts.cursor);
  writer.Add(orders.stopped ? 1 : 0);
  writer.Add(orders.stopped ? orders.stopped->directive : 0);
  writer.Add(orders.drain ? 1 : 0);
  writer.Add(orders.settled);
  writer.Add(orders.settled_complete ? 1 : 0);
  writer.Add(orders.stop ? 1 : 0);
  writer.Add(orders.stop ? orders.stop->id : 0);
  writer.Add(orders.stop ? orders.stop->step : 0);
  writer.Add(orders.due.size());
  for (const auto& [step, ids] : orders.due) {
    writer.Add(step);
    writer.Add(ids);
  }
  writer.Add(orders.waiting ? 1 : 0);
  writer.Add(orders.waiting_directives);
  writer.Add(orders.started);
  return writer.Take();
}

StatusOr<AgreedOrders> DecodeAgreedOrders(std::string_view text) {
  Reader reader(text);
  AgreedOrders orders;
  orders.counts.committed = reader.Next<int64_t>();
  orders.counts.skipped = reader.Next<int64_t>();
  orders.counts.skipped_in_a_row = reader.Next<int>();
  orders.counts.cursor = reader.Next<uint64_t>();
  const bool stopped = reader.NextBool();
  const StopOrder stop_order{reader.Next<uint32_t>()};
  if (stopped) orders.stopped = stop_order;
  orders.drain = reader.NextBool();
  orders.settled = reader.Next<uint64_t>();
  orders.settled_complete = reader.NextBool();
  const bool stops = reader.NextBool();
  Directive stop{DirectiveOp::kStop, reader.Next<uint32_t>(), 0};
  stop.step = reader.Next<int64_t>();
  if (stops) orders.stop = stop;
  for (auto left = reader.Next<size_t>(); reader.good() && left > 0; --left) {
    const auto step = reader.Next<int64_t>();
    orders.due[step] = reader.NextVector();
  }
  orders.waiting = reader.NextBool();
  orders.waiting_directives = reader.NextVector();
  orders.started = reader.Next<uint64_t>();
  if (!reader.done()) return DataLoss("the ranks' agreed orders are invalid");
  return orders;
}

}  // namespace lockstep::worker::runtime
