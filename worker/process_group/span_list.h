// A list of spans as one array of elements.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_SPAN_LIST_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_SPAN_LIST_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/process_group/operation.h"

namespace lockstep::worker::process_group {

// Borrows the memory of the spans. Spans that lie side by side become one, so
// the tensors of a flat buffer are contiguous.
class SpanList {
 public:
  SpanList() = default;
  // `element`: bytes. InvalidArgument: a span has no memory, is not aligned to
  // `element`, or all together are more than a size_t counts.
  static StatusOr<SpanList> Of(std::span<const Span> spans, size_t element);

  // Elements of all spans.
  size_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  size_t bytes() const { return count_ * element_; }

  // The memory of `count` elements from element `first` on, where they are in
  // one piece; null memory for none.
  std::optional<char*> Contiguous(size_t first, size_t count) const;
  // Copies as many elements, from element `first` on, to `to` or from `from`.
  void CopyTo(char* to, size_t first, size_t count) const;
  void CopyFrom(const char* from, size_t first, size_t count) const;
  // Copies all elements from `other`, which has as many.
  void CopyAll(const SpanList& other) const;

  // The same memory in the same order.
  bool SameAs(const SpanList& other) const;
  bool Overlaps(const SpanList& other) const;

 private:
  struct Piece {
    char* data = nullptr;
    size_t first = 0;  // elements before it
    size_t count = 0;
  };
  template <typename Function>
  void ForEach(size_t first, size_t count, const Function& function) const;
  // The piece that has element `first`.
  size_t PieceAt(size_t first) const;

  std::vector<Piece> pieces_;
  size_t count_ = 0;
  size_t element_ = 1;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_SPAN_LIST_H_
