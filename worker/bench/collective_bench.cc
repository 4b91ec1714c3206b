#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "worker/bench/bench_run.h"
#include "worker/bench/values.h"

namespace lockstep::worker::bench {
namespace {

using collective::Buffer;
using collective::CollectiveKind;
using collective::Communicator;
using collective::DataType;
using collective::Operation;
using collective::PeerPart;
using collective::ReduceOp;
using collective::Run;

// What stands in memory before an operation overwrites it.
constexpr int kGarbage = 0x6b;

// One size of one collective.
class Case {
 public:
  // The slice of `operation` is the whole argument of a rank.
  Case(Communicator* communicator, const BenchOptions& options,
       const Operation& operation, const Buffer* source, const Buffer* scratch)
      : communicator_(communicator),
        options_(options),
        count_(operation.slice.count),
        operation_(operation),
        source_(static_cast<char*>(source->data)),
        data_(static_cast<char*>(operation.slice.buffer->data)),
        scratch_(scratch) {}
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  // An all-to-all is between memory of two places: parts of equal size from
  // `source` to the slice.
  Status SplitForAll() {
    const size_t part_bytes = part() * SizeOf(operation_.slice.type);
    for (int rank = 0; rank < communicator_->size(); ++rank) {
      sends_.push_back({source_ + rank * part_bytes, part()});
      receives_.push_back({data_ + rank * part_bytes, part()});
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* const any,
                              communicator_->AnyMemory());
    operation_.slice = {any, 0, count_ - part(), operation_.slice.type};
    operation_.sends = sends_;
    operation_.receives = receives_;
    return OkStatus();
  }

  StatusOr<BenchTiming> Measure(bool in_place) {
    BenchTiming timing;
    // Repeated sums must not become denormal, which is slow; they become
    // infinite, which is fast.
    Fill(0, data_);
    Fill(0, source_);
    for (int i = 0; i < options_.warm_up; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Once(in_place));
    }
    LOCKSTEP_RETURN_IF_ERROR(Barrier(communicator_, options_.timeout));
    const MonoTime start = MonotonicNow();
    for (int i = 0; i < options_.iterations; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Once(in_place));
    }
    const double took = ToSeconds(MonotonicNow() - start);
    LOCKSTEP_ASSIGN_OR_RETURN(
        timing.seconds,
        LargestOf(communicator_, scratch_, took / options_.iterations,
                  options_.timeout));
    if (options_.check) {
      LOCKSTEP_ASSIGN_OR_RETURN(timing.wrong, Check(in_place));
    }
    return timing;
  }

 private:
  size_t count() const { return count_; }
  size_t bytes() const { return count() * SizeOf(operation_.slice.type); }
  size_t part() const { return count() / communicator_->size(); }

  Status Once(bool in_place) {
    if (!in_place && operation_.kind != CollectiveKind::kAllToAll) {
      std::memcpy(data_, source_, bytes());
    }
    return Run(communicator_, operation_, options_.timeout);
  }

  // This rank's input of an operation.
  void Fill(int round, char* data) {
    const DataType type = operation_.slice.type;
    const int rank = communicator_->rank();
    switch (operation_.kind) {
      case CollectiveKind::kAllGather:
        std::memset(data, kGarbage, bytes());
        FillInput(type, rank, 0, part(), round,
                  data + rank * part() * SizeOf(type));
        break;
      case CollectiveKind::kBroadcast:
        std::memset(data, kGarbage, bytes());
        if (rank == operation_.root) {
          FillInput(type, rank, 0, count(), round, data);
        }
        break;
      default:
        FillInput(type, rank, 0, count(), round, data);
    }
  }

  // Wrong elements of all ranks together.
  StatusOr<int64_t> Check(bool in_place) {
    const int round = in_place ? 2 : 1;
    Fill(round, in_place ? data_ : source_);
    if (!in_place) std::memset(data_, kGarbage, bytes());
    LOCKSTEP_RETURN_IF_ERROR(Once(in_place));
    return SumOf(communicator_, scratch_,
                 static_cast<int64_t>(CountWrongHere(round)), options_.timeout);
  }

  uint64_t CountWrongHere(int round) const {
    const DataType type = operation_.slice.type;
    const int ranks = communicator_->size();
    const int own = communicator_->rank();
    const size_t part_bytes = part() * SizeOf(type);
    uint64_t wrong = 0;
    switch (operation_.kind) {
      case CollectiveKind::kAllReduce:
        return CountWrong(type, operation_.op, ranks, 0, count(), round, data_);
      case CollectiveKind::kReduceScatter:
        return CountWrong(type, operation_.op, ranks, own * part(), part(),
                          round, data_ + own * part_bytes);
      case CollectiveKind::kAllGather:
        for (int rank = 0; rank < ranks; ++rank) {
          wrong += CountDifferent(type, rank, 0, part(), round,
                                  data_ + rank * part_bytes);
        }
        return wrong;
      case CollectiveKind::kBroadcast:
        return CountDifferent(type, operation_.root, 0, count(), round, data_);
      case CollectiveKind::kAllToAll:
        for (int rank = 0; rank < ranks; ++rank) {
          wrong += CountDifferent(type, rank, own * part(), part(), round,
                                  data_ + rank * part_bytes);
        }
        return wrong;
      case CollectiveKind::kBarrier:
        break;
    }
    return wrong;
  }

  Communicator* const communicator_;
  const BenchOptions& options_;
  const size_t count_;
  Operation operation_;
  std::vector<PeerPart> sends_;  // of an all-to-all
  std::vector<PeerPart> receives_;
  char* const source_;
  char* const data_;
  const Buffer* const scratch_;
};

}  // namespace

Status Barrier(Communicator* communicator, Duration timeout) {
  return Run(communicator, {.kind = CollectiveKind::kBarrier}, timeout);
}

StatusOr<double> LargestOf(Communicator* communicator, const Buffer* scratch,
                           double value, Duration timeout) {
  auto* const place = static_cast<double*>(scratch->data);
  *place = value;
  LOCKSTEP_RETURN_IF_ERROR(LargestOfEach(communicator, scratch, 1, timeout));
  return *place;
}

StatusOr<int64_t> SumOf(Communicator* communicator, const Buffer* scratch,
                        int64_t value, Duration timeout) {
  auto* const place = static_cast<int64_t*>(scratch->data);
  *place = value;
  LOCKSTEP_RETURN_IF_ERROR(
      Run(communicator, {.slice = {scratch, 0, 1, DataType::kInt64}}, timeout));
  return *place;
}

// As whole numbers: those that are not negative have the order of their bits,
// and nccl takes no maximum of floats.
Status LargestOfEach(Communicator* communicator, const Buffer* values,
                     size_t count, Duration timeout) {
  static_assert(std::numeric_limits<double>::is_iec559);
  return Run(
      communicator,
      {.slice = {values, 0, count, DataType::kInt64}, .op = ReduceOp::kMax},
      timeout);
}

Status BenchCollectives(Communicator* communicator, const BenchOptions& options,
                        const std::function<void(const BenchRow&)>& row,
                        const std::function<void(const std::string&)>& skip) {
  const std::vector<uint64_t> sizes = SizesOf(options);
  const size_t most = std::max<size_t>(sizes.back(), 8);
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* data, communicator->Allocate(most));
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* source, communicator->Allocate(most));
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* scratch, communicator->Allocate(64));
  const int ranks = communicator->size();
  const auto measure = [&](CollectiveKind kind, DataType type,
                           ReduceOp op) -> Status {
    for (const uint64_t bytes : sizes) {
      const bool parts = kind == CollectiveKind::kReduceScatter ||
                         kind == CollectiveKind::kAllGather ||
                         kind == CollectiveKind::kAllToAll;
      // Whole parts for all ranks.
      const size_t unit = parts ? ranks : 1;
      const size_t count = bytes / SizeOf(type) / unit * unit;
      const Operation operation{
          .kind = kind,
          .slice = {data, 0, count, type},
          .op = op,
          .root = kind == CollectiveKind::kBroadcast ? options.root : 0};
      Case one(communicator, options, operation, source, scratch);
      BenchRow result;
      result.kind = kind;
      result.bytes = count * SizeOf(type);
      result.count = count / unit;
      result.type = type;
      result.op = op;
      result.root = kind == CollectiveKind::kBroadcast ? options.root : -1;
      result.ranks = ranks;
      const bool to_all = kind == CollectiveKind::kAllToAll;
      if (to_all) LOCKSTEP_RETURN_IF_ERROR(one.SplitForAll());
      LOCKSTEP_ASSIGN_OR_RETURN(result.out_of_place, one.Measure(false));
      if (!to_all) {
        LOCKSTEP_ASSIGN_OR_RETURN(result.in_place.emplace(), one.Measure(true));
      }
      row(result);
    }
    return OkStatus();
  };
  for (const CollectiveKind kind : options.collectives) {
    for (const DataType type : options.types) {
      for (const ReduceOp op : options.ops) {
        if (op == ReduceOp::kMean && Reduces(kind) && !IsFloat(type)) {
          skip(fmt::format("{}: avg does not support {}", Name(kind),
                           TypeNames().Of(type)));
          continue;
        }
        // What an operation does not reduce needs no op.
        if (!Reduces(kind) && op != options.ops.front()) continue;
        const Status status = measure(kind, type, op);
        // All ranks refused it before sending.
        if (status.code() == StatusCode::kInvalidArgument ||
            status.code() == StatusCode::kUnimplemented) {
          skip(fmt::format("{}, {} of {}: {}", Name(kind), OpNames().Of(op),
                           TypeNames().Of(type), Message(status)));
          continue;
        }
        LOCKSTEP_RETURN_IF_ERROR(status);
      }
    }
  }
  return OkStatus();
}

}  // namespace lockstep::worker::bench
