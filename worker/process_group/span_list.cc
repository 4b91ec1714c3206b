#include "worker/process_group/span_list.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lockstep::worker::process_group {

StatusOr<SpanList> SpanList::Of(std::span<const Span> spans, size_t element) {
  SpanList list;
  list.element_ = element;
  const size_t most = SIZE_MAX / 2 / element;
  for (const Span& span : spans) {
    if (span.count == 0) continue;
    if (span.data == nullptr) {
      return InvalidArgument("a span of {} elements has no memory", span.count);
    }
    if (reinterpret_cast<uintptr_t>(span.data) % element != 0) {
      return InvalidArgument("a span at {} is not aligned to {} bytes",
                             span.data, element);
    }
    if (span.count > most - list.count_) {
      return InvalidArgument("a span of {} elements is too large", span.count);
    }
    char* const data = static_cast<char*>(span.data);
    const auto count = static_cast<size_t>(span.count);
    if (!list.pieces_.empty() &&
        list.pieces_.back().data + list.pieces_.back().count * element ==
            data) {
      list.pieces_.back().count += count;
    } else {
      list.pieces_.push_back({data, list.count_, count});
    }
    list.count_ += count;
  }
  return list;
}

size_t SpanList::PieceAt(size_t first) const {
  const auto behind = std::upper_bound(
      pieces_.begin(), pieces_.end(), first,
      [](size_t at, const Piece& piece) { return at < piece.first; });
  return static_cast<size_t>(behind - pieces_.begin()) - 1;
}

// Calls function(memory, elements) for each part that is in one piece.
template <typename Function>
void SpanList::ForEach(size_t first, size_t count,
                       const Function& function) const {
  if (count == 0) return;
  for (size_t i = PieceAt(first); count > 0; ++i) {
    const Piece& piece = pieces_[i];
    const size_t skip = first - piece.first;
    const size_t some = std::min(count, piece.count - skip);
    function(piece.data + skip * element_, some);
    first += some;
    count -= some;
  }
}

std::optional<char*> SpanList::Contiguous(size_t first, size_t count) const {
  if (count == 0) return nullptr;
  const Piece& piece = pieces_[PieceAt(first)];
  const size_t skip = first - piece.first;
  if (count > piece.count - skip) return std::nullopt;
  return piece.data + skip * element_;
}

void SpanList::CopyTo(char* to, size_t first, size_t count) const {
  ForEach(first, count, [&](const char* data, size_t some) {
    if (to != data) std::memcpy(to, data, some * element_);
    to += some * element_;
  });
}

void SpanList::CopyFrom(const char* from, size_t first, size_t count) const {
  ForEach(first, count, [&](char* data, size_t some) {
    if (from != data) std::memcpy(data, from, some * element_);
    from += some * element_;
  });
}

void SpanList::CopyAll(const SpanList& other) const {
  size_t at = 0;
  other.ForEach(0, other.count_, [&](const char* data, size_t some) {
    CopyFrom(data, at, some);
    at += some;
  });
}

bool SpanList::SameAs(const SpanList& other) const {
  return std::equal(pieces_.begin(), pieces_.end(), other.pieces_.begin(),
                    other.pieces_.end(), [](const Piece& a, const Piece& b) {
                      return a.data == b.data && a.count == b.count;
                    });
}

bool SpanList::Overlaps(const SpanList& other) const {
  if (empty() || other.empty()) return false;
  using Range = std::pair<uintptr_t, uintptr_t>;
  const auto ranges_of = [](const SpanList& list) {
    std::vector<Range> ranges;
    for (const Piece& piece : list.pieces_) {
      const auto begin = reinterpret_cast<uintptr_t>(piece.data);
      ranges.emplace_back(begin, begin + piece.count * list.element_);
    }
    std::sort(ranges.begin(), ranges.end());
    return ranges;
  };
  const std::vector<Range> mine = ranges_of(*this);
  const std::vector<Range> theirs = ranges_of(other);
  for (size_t i = 0, j = 0; i < mine.size() && j < theirs.size();) {
    if (mine[i].second <= theirs[j].first) {
      ++i;
    } else if (theirs[j].second <= mine[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::worker::process_group
