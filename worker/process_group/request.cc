#include "worker/process_group/request.h"

#include <algorithm>
#include <string_view>

namespace lockstep::worker::process_group {
namespace {

using collective::DataType;
using collective::WordsKind;

bool HasRoot(Collective collective) {
  return collective == Collective::kReduce ||
         collective == Collective::kBroadcast ||
         collective == Collective::kGather ||
         collective == Collective::kScatter;
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce ||
         collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

WordsKind WordsKindOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return WordsKind::kAllReduce;
    case Collective::kReduce:
      return WordsKind::kReduce;
    case Collective::kBroadcast:
      return WordsKind::kBroadcast;
    case Collective::kAllGather:
      return WordsKind::kAllGather;
    case Collective::kReduceScatter:
      return WordsKind::kReduceScatter;
    case Collective::kGather:
      return WordsKind::kGather;
    case Collective::kScatter:
      return WordsKind::kScatter;
    case Collective::kAllToAll:
      return WordsKind::kAllToAll;
    default:
      return WordsKind::kBarrier;
  }
}

// Sums of bools are "or", as maxima are; products "and", as minima.
collective::ReduceOp OpOf(ReduceOp op, bool of_bool) {
  const auto own = static_cast<collective::ReduceOp>(op);
  if (!of_bool) return own;
  return op == ReduceOp::kSum || op == ReduceOp::kMax
             ? collective::ReduceOp::kMax
             : collective::ReduceOp::kMin;
}

Status CheckNumbers(const Operation& operation, int rank, int size) {
  const auto collective = static_cast<uint32_t>(operation.collective);
  if (collective > static_cast<uint32_t>(Collective::kReceive)) {
    return InvalidArgument("collective {} is unknown",
                           static_cast<int32_t>(operation.collective));
  }
  if (operation.collective == Collective::kBarrier) return OkStatus();
  const auto type = static_cast<uint32_t>(operation.type);
  if (type > static_cast<uint32_t>(Type::kBool)) {
    return InvalidArgument("element type {} is unknown",
                           static_cast<int32_t>(operation.type));
  }
  if (Reduces(operation.collective) &&
      static_cast<uint32_t>(operation.op) >
          static_cast<uint32_t>(ReduceOp::kProduct)) {
    return InvalidArgument("reduction {} is unknown",
                           static_cast<int32_t>(operation.op));
  }
  const bool message = operation.collective == Collective::kSend ||
                       operation.collective == Collective::kReceive;
  if ((HasRoot(operation.collective) || message) &&
      (operation.root < 0 || operation.root >= size)) {
    return InvalidArgument("rank {} is out of range for {} ranks",
                           operation.root, size);
  }
  if (message && operation.root == rank) {
    return InvalidArgument("rank {} cannot send to itself", rank);
  }
  return OkStatus();
}

Status NoInput(const Request& request) {
  if (request.input.empty()) return OkStatus();
  return InvalidArgument("this rank has no input: {} elements",
                         request.input.count());
}

Status NoOutput(const Request& request) {
  if (request.output.empty()) return OkStatus();
  return InvalidArgument("this rank has no output: {} elements",
                         request.output.count());
}

Status OutputOf(const Request& request, size_t count, std::string_view why) {
  if (request.output.count() == count) return OkStatus();
  return InvalidArgument("the output has {} elements, not {}: {}",
                         request.output.count(), count, why);
}

// `many` has a part of `one`'s size for each rank.
Status PartsOf(const SpanList& many, const SpanList& one, int size,
               std::string_view what) {
  const auto n = static_cast<size_t>(size);
  if (many.count() % n == 0 && many.count() / n == one.count()) {
    return OkStatus();
  }
  return InvalidArgument("the {} has {} elements, not {} times {}", what,
                         many.count(), size, one.count());
}

Status CheckSplits(const SpanList& list, int size, std::string_view what,
                   std::span<const uint64_t> given,
                   std::vector<uint64_t>* splits) {
  const auto n = static_cast<size_t>(size);
  if (given.empty()) {
    if (list.count() % n != 0) {
      return InvalidArgument(
          "the {} of {} elements does not divide by {} ranks", what,
          list.count(), size);
    }
    splits->assign(n, list.count() / n);
    return OkStatus();
  }
  if (given.size() != n) {
    return InvalidArgument("the {} has {} splits for {} ranks", what,
                           given.size(), size);
  }
  uint64_t rest = list.count();
  for (const uint64_t split : given) {
    if (split > rest) {
      return InvalidArgument("the {} has {} elements, less than its splits",
                             what, list.count());
    }
    rest -= split;
  }
  if (rest > 0) {
    return InvalidArgument("the {} has {} elements, {} more than its splits",
                           what, list.count(), rest);
  }
  splits->assign(given.begin(), given.end());
  return OkStatus();
}

// Checks what each collective needs of the lists, and sets the count that is
// the same on all ranks.
Status CheckLists(const Operation& operation, int rank, int size,
                  Request* request) {
  const bool root = rank == request->root;
  const SpanList& input = request->input;
  const SpanList& output = request->output;
  request->named.count = input.count();
  switch (request->collective) {
    case Collective::kAllReduce:
      return OutputOf(*request, input.count(), "as many as the input");
    case Collective::kReduce:
      return root ? OutputOf(*request, input.count(), "as many as the input")
                  : NoOutput(*request);
    case Collective::kBroadcast:
      if (!root) request->named.count = output.count();
      return root ? NoOutput(*request) : NoInput(*request);
    case Collective::kAllGather:
      request->named.count = output.count();
      return PartsOf(output, input, size, "output");
    case Collective::kReduceScatter:
      return PartsOf(input, output, size, "input");
    case Collective::kGather:
      request->named.count = input.count() * static_cast<size_t>(size);
      return root ? PartsOf(output, input, size, "output") : NoOutput(*request);
    case Collective::kScatter:
      request->named.count = output.count() * static_cast<size_t>(size);
      return root ? PartsOf(input, output, size, "input") : NoInput(*request);
    case Collective::kAllToAll:
      LOCKSTEP_RETURN_IF_ERROR(CheckSplits(input, size, "input",
                                           operation.input_splits,
                                           &request->input_splits));
      return CheckSplits(output, size, "output", operation.output_splits,
                         &request->output_splits);
    case Collective::kBarrier:
    case Collective::kReceive:
      return NoInput(*request);
    case Collective::kSend:
      return NoOutput(*request);
  }
  return OkStatus();
}

Status Fill(const Operation& operation, int rank, int size, Request* request) {
  const bool of_bool = operation.type == Type::kBool;
  request->collective = operation.collective;
  request->tag = operation.tag;
  request->timeout = std::max(operation.timeout, Duration::zero());
  request->named.kind = WordsKindOf(operation.collective);
  if (operation.collective != Collective::kBarrier) {
    request->type =
        of_bool ? DataType::kUint8 : static_cast<DataType>(operation.type);
    request->root = operation.root;
  }
  if (Reduces(operation.collective)) {
    request->op = OpOf(operation.op, of_bool);
    request->named.op = static_cast<collective::ReduceOp>(operation.op);
  }
  request->named.type = request->type;
  request->named.of_bool = of_bool;
  request->named.root = request->root;
  LOCKSTEP_ASSIGN_OR_RETURN(request->input,
                            SpanList::Of(operation.input, request->element()));
  LOCKSTEP_ASSIGN_OR_RETURN(request->output,
                            SpanList::Of(operation.output, request->element()));
  LOCKSTEP_RETURN_IF_ERROR(CheckLists(operation, rank, size, request));
  if (request->collective == Collective::kBarrier) return NoOutput(*request);
  if (Reduces(request->collective) && operation.op == ReduceOp::kMean &&
      !IsFloat(request->type)) {
    return InvalidArgument("only floats have a mean");
  }
  // Its own part of an all-gather's output is a natural place for an input.
  if (request->collective == Collective::kAllGather) {
    const size_t part = request->input.count();
    const auto own = request->output.Contiguous(rank * part, part);
    if (own && request->input.Contiguous(0, part) == own) return OkStatus();
  }
  if (!request->input.SameAs(request->output) &&
      request->input.Overlaps(request->output)) {
    return InvalidArgument("the input overlaps the output");
  }
  return OkStatus();
}

}  // namespace

StatusOr<Request> MakeRequest(const Operation& operation, int rank, int size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers(operation, rank, size));
  Request request;
  const Status status = Fill(operation, rank, size, &request);
  if (!status.ok()) return Annotate(status, Describe(request));
  return request;
}

std::string DescribeElements(uint64_t count, collective::DataType type,
                             bool of_bool) {
  return fmt::format("{} {}", count, of_bool ? "bool" : Name(type));
}

std::string Describe(const Request& request) {
  if (!request.is_message()) return Describe(WordsOf(request.named));
  const bool sends = request.collective == Collective::kSend;
  return fmt::format("{} of {} {} rank {} with tag {}",
                     sends ? "send" : "receive",
                     DescribeElements(request.message_count(), request.type,
                                      request.named.of_bool),
                     sends ? "to" : "from", request.root, request.tag);
}

}  // namespace lockstep::worker::process_group
