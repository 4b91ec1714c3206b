#include "worker/process_group/runner.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "worker/process_group/peer_parts.h"

namespace lockstep::worker::process_group {

using collective::AnySlice;
using collective::Buffer;
using collective::CollectiveKind;
using collective::DataType;
using collective::OperationWords;

namespace {

bool IsOneOfTheCommunicator(Collective collective) {
  return collective == Collective::kAllReduce ||
         collective == Collective::kBroadcast ||
         collective == Collective::kAllGather ||
         collective == Collective::kReduceScatter ||
         collective == Collective::kBarrier;
}

// One round among all ranks, which takes as long as most messages of this size,
// is worth more than the bytes that not all of them need.
constexpr size_t kGatheredBytes = size_t{4} << 10;

char* DataOf(const Buffer* buffer) { return static_cast<char*>(buffer->data); }

}  // namespace

Status Runner::Run(const Request& request, MonoTime deadline) {
  const bool plain =
      IsOneOfTheCommunicator(request.collective) && !request.named.of_bool;
  part_of_ = plain ? OperationWords() : WordsOf(request.named);
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return Reduce(request, deadline);
    case Collective::kBroadcast:
      return Broadcast(request, deadline);
    case Collective::kAllGather:
      return AllGather(request, deadline);
    case Collective::kReduceScatter:
      return ReduceScatter(request, deadline);
    case Collective::kGather:
      return Gather(request, deadline);
    case Collective::kScatter:
      return Scatter(request, deadline);
    case Collective::kAllToAll:
      return AllToAll(request, deadline);
    case Collective::kBarrier:
      return communicator_.RunNow({.kind = CollectiveKind::kBarrier}, deadline);
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
  return Internal("{} is not a collective", Describe(request));
}

template <typename Function>
Status Runner::ForChunks(const Request& request, size_t count, size_t copies,
                         const Function& function) {
  const size_t most =
      std::max<size_t>(1, kChunkBytes / request.element() / copies);
  if (count > most) part_of_ = WordsOf(request.named);
  size_t first = 0;
  do {
    const size_t some = std::min(most, count - first);
    LOCKSTEP_RETURN_IF_ERROR(function(first, some));
    first += some;
  } while (first < count);
  return OkStatus();
}

Status Runner::RunSlice(CollectiveKind kind, const Request& request,
                        const collective::Slice& slice, MonoTime deadline) {
  return communicator_.RunNow({.kind = kind,
                               .slice = slice,
                               .op = request.op,
                               .root = request.root,
                               .part_of = part_of_},
                              deadline);
}

Status Runner::RunAt(CollectiveKind kind, const Request& request, char* data,
                     size_t count, MonoTime deadline) {
  return RunSlice(kind, request, AnySlice(any_, data, count, request.type),
                  deadline);
}

Status Runner::RunIn(CollectiveKind kind, const Request& request,
                     const Buffer* buffer, size_t count, MonoTime deadline) {
  return RunSlice(kind, request, {buffer, 0, count, request.type}, deadline);
}

// Of an all-reduce every rank has an output, of a reduce the root.
Status Runner::Reduce(const Request& request, MonoTime deadline) {
  const SpanList& input = request.input;
  const SpanList& output = request.output;
  const bool keeps = request.collective == Collective::kAllReduce ||
                     request.root == communicator_.rank();
  return ForChunks(
      request, input.count(), 1, [&](size_t first, size_t count) -> Status {
        const auto place =
            keeps ? output.Contiguous(first, count) : std::nullopt;
        if (place) {
          input.CopyTo(*place, first, count);
          return RunAt(CollectiveKind::kAllReduce, request, *place, count,
                       deadline);
        }
        LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged,
                                  staging_.Get(count * request.element()));
        input.CopyTo(DataOf(staged), first, count);
        LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kAllReduce, request,
                                       staged, count, deadline));
        if (keeps) output.CopyFrom(DataOf(staged), first, count);
        return OkStatus();
      });
}

Status Runner::Broadcast(const Request& request, MonoTime deadline) {
  const bool root = request.root == communicator_.rank();
  const SpanList& list = root ? request.input : request.output;
  return ForChunks(
      request, list.count(), 1, [&](size_t first, size_t count) -> Status {
        if (const auto place = list.Contiguous(first, count)) {
          return RunAt(CollectiveKind::kBroadcast, request, *place, count,
                       deadline);
        }
        LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged,
                                  staging_.Get(count * request.element()));
        if (root) list.CopyTo(DataOf(staged), first, count);
        LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kBroadcast, request,
                                       staged, count, deadline));
        if (!root) list.CopyFrom(DataOf(staged), first, count);
        return OkStatus();
      });
}

Status Runner::AllGather(const Request& request, MonoTime deadline) {
  constexpr auto kKind = CollectiveKind::kAllGather;
  const size_t part = request.input.count();
  const size_t own = communicator_.rank() * part;
  const SpanList& output = request.output;
  const size_t count = output.count();
  if (const auto place = output.Contiguous(0, count)) {
    request.input.CopyTo(*place + own * request.element(), 0, part);
    return RunAt(kKind, request, *place, count, deadline);
  }
  if (output.bytes() <= kChunkBytes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged,
                              staging_.Get(output.bytes()));
    request.input.CopyTo(DataOf(staged) + own * request.element(), 0, part);
    LOCKSTEP_RETURN_IF_ERROR(RunIn(kKind, request, staged, count, deadline));
    output.CopyFrom(DataOf(staged), 0, count);
    return OkStatus();
  }
  const std::unique_ptr<char[]> large(new (std::nothrow) char[output.bytes()]);
  if (large == nullptr) {
    return ResourceExhausted("no memory to gather {} bytes", output.bytes());
  }
  request.input.CopyTo(large.get() + own * request.element(), 0, part);
  LOCKSTEP_RETURN_IF_ERROR(RunAt(kKind, request, large.get(), count, deadline));
  output.CopyFrom(large.get(), 0, count);
  return OkStatus();
}

Status Runner::ReduceScatter(const Request& request, MonoTime deadline) {
  const int n = communicator_.size();
  const size_t part = request.output.count();
  return ForChunks(request, part, n, [&](size_t first, size_t count) -> Status {
    const size_t bytes = count * request.element();
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged, staging_.Get(n * bytes));
    for (int rank = 0; rank < n; ++rank) {
      request.input.CopyTo(DataOf(staged) + rank * bytes, rank * part + first,
                           count);
    }
    LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kReduceScatter, request,
                                   staged, n * count, deadline));
    request.output.CopyFrom(DataOf(staged) + communicator_.rank() * bytes,
                            first, count);
    return OkStatus();
  });
}

Status Runner::Gather(const Request& request, MonoTime deadline) {
  const int n = communicator_.size();
  const bool root = request.root == communicator_.rank();
  const size_t part = request.input.count();
  return ForChunks(request, part, n, [&](size_t first, size_t count) -> Status {
    const size_t bytes = count * request.element();
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged, staging_.Get(n * bytes));
    request.input.CopyTo(DataOf(staged) + communicator_.rank() * bytes, first,
                         count);
    LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kAllGather, request, staged,
                                   n * count, deadline));
    for (int rank = 0; rank < n && root; ++rank) {
      request.output.CopyFrom(DataOf(staged) + rank * bytes,
                              rank * part + first, count);
    }
    return OkStatus();
  });
}

Status Runner::Scatter(const Request& request, MonoTime deadline) {
  const int n = communicator_.size();
  const bool root = request.root == communicator_.rank();
  const size_t part = request.output.count();
  return ForChunks(request, part, n, [&](size_t first, size_t count) -> Status {
    const size_t bytes = count * request.element();
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged, staging_.Get(n * bytes));
    for (int rank = 0; rank < n && root; ++rank) {
      request.input.CopyTo(DataOf(staged) + rank * bytes, rank * part + first,
                           count);
    }
    LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kBroadcast, request, staged,
                                   n * count, deadline));
    request.output.CopyFrom(DataOf(staged) + communicator_.rank() * bytes,
                            first, count);
    return OkStatus();
  });
}

// Every rank's splits: those of rank r from 2 n r on, first of its input.
StatusOr<std::vector<uint64_t>> Runner::GatherSplits(const Request& request,
                                                     MonoTime deadline) {
  const size_t n = communicator_.size();
  std::vector<uint64_t> all(2 * n * n);
  uint64_t* const own = all.data() + 2 * n * communicator_.rank();
  std::copy(request.input_splits.begin(), request.input_splits.end(), own);
  std::copy(request.output_splits.begin(), request.output_splits.end(),
            own + n);
  LOCKSTEP_RETURN_IF_ERROR(communicator_.RunNow(
      {.kind = CollectiveKind::kAllGather,
       .slice = AnySlice(any_, all.data(), all.size(), DataType::kInt64),
       .part_of = part_of_},
      deadline));
  return all;
}

Status Runner::AllToAll(const Request& request, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<uint64_t> all,
                            GatherSplits(request, deadline));
  const int n = communicator_.size();
  const SplitMatrix splits(n, std::move(all));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(splits.Check(), Describe(request)));
  // The output may be the input, which is read to the end.
  SpanList input = request.input;
  if (!input.empty() && input.SameAs(request.output)) {
    LOCKSTEP_ASSIGN_OR_RETURN(char* const copy, copy_.Get(input.bytes()));
    input.CopyTo(copy, 0, input.count());
    const Span whole{copy, input.count()};
    LOCKSTEP_ASSIGN_OR_RETURN(
        input, SpanList::Of(std::span(&whole, 1), request.element()));
  }
  const bool few = splits.LargestInput() * request.element() <= kGatheredBytes;
  Status status = communicator_.HasAllToAll() && (!few || n == 1)
                      ? Exchange(request, input, splits, deadline)
                      : GatherAll(request, input, splits, deadline);
  copy_.Trim();
  return status;
}

Status Runner::Exchange(const Request& request, const SpanList& input,
                        const SplitMatrix& splits, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const PeerParts sends,
      PeerParts::Of(input, request.input_splits, request.element(), &sends_));
  LOCKSTEP_ASSIGN_OR_RETURN(const PeerParts receives,
                            PeerParts::Of(request.output, request.output_splits,
                                          request.element(), &receives_));
  sends.Pack(input);
  LOCKSTEP_RETURN_IF_ERROR(communicator_.RunNow(
      {.kind = CollectiveKind::kAllToAll,
       .slice = {any_, 0, splits.LargestToOthers(), request.type},
       .part_of = part_of_,
       .sends = sends.parts(),
       .receives = receives.parts()},
      deadline));
  receives.Unpack(request.output);
  sends_.Trim();
  receives_.Trim();
  return OkStatus();
}

// Chunk by chunk of all inputs; each rank takes what is for it.
Status Runner::GatherAll(const Request& request, const SpanList& input,
                         const SplitMatrix& splits, MonoTime deadline) {
  const int n = communicator_.size();
  const int me = communicator_.rank();
  return ForChunks(
      request, splits.LargestInput(), n,
      [&](size_t first, size_t count) -> Status {
        const size_t bytes = count * request.element();
        LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* staged,
                                  staging_.Get(n * bytes));
        const size_t mine =
            std::min(count, input.count() - std::min(first, input.count()));
        input.CopyTo(DataOf(staged) + me * bytes, first, mine);
        LOCKSTEP_RETURN_IF_ERROR(RunIn(CollectiveKind::kAllGather, request,
                                       staged, n * count, deadline));
        for (int rank = 0; rank < n; ++rank) {
          const SplitMatrix::Piece piece =
              splits.PieceIn(rank, me, first, count);
          request.output.CopyFrom(
              DataOf(staged) + rank * bytes + piece.skip * request.element(),
              piece.to, piece.count);
        }
        return OkStatus();
      });
}

}  // namespace lockstep::worker::process_group
