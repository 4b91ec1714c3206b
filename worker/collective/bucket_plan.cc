#include "worker/collective/bucket_plan.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace lockstep::worker::collective {
namespace {

constexpr size_t kAlignment = 64;
// Far above any memory; below it sums cannot overflow.
constexpr size_t kMaxElements = size_t{1} << 48;

size_t Align(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status Check(const std::vector<BucketParameter>& parameters,
             const BucketPlanOptions& options) {
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0) {
    return InvalidArgument("the size of a bucket must be positive");
  }
  if (options.control_words > kMaxElements) {
    return InvalidArgument("{} control words are too many",
                           options.control_words);
  }
  std::set<std::string_view> names;
  size_t total = 0;
  for (const BucketParameter& parameter : parameters) {
    if (parameter.name.empty()) {
      return InvalidArgument("a parameter has no name");
    }
    if (!names.insert(parameter.name).second) {
      return InvalidArgument("parameter {} comes twice", parameter.name);
    }
    if (SizeOf(parameter.type) == 0) {
      return InvalidArgument("parameter {} has an unknown type",
                             parameter.name);
    }
    if (parameter.count > kMaxElements - total) {
      return InvalidArgument("parameter {} with {} elements is too large",
                             parameter.name, parameter.count);
    }
    total += parameter.count;
  }
  return OkStatus();
}

// Rounds up to whole elements; every element size divides the alignment.
void Close(BucketLayout* bucket) {
  bucket->bytes = Align(bucket->bytes);
  bucket->count = bucket->bytes / SizeOf(bucket->type);
}

// FNV-1a (64 bits): to notice a difference, not to resist an attacker.
class Hasher {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void Add(const std::string& text) {
    Add(text.size());
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
  }
  std::string Hex() const { return fmt::format("{:016x}", state_); }

 private:
  void AddByte(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  uint64_t state_ = 0xcbf29ce484222325;
};

std::string HashOf(const std::vector<BucketParameter>& parameters,
                   const BucketPlan& plan) {
  Hasher hasher;
  hasher.Add(plan.buckets.size());
  for (const BucketLayout& bucket : plan.buckets) {
    hasher.Add(std::string(Name(bucket.type)));
    hasher.Add(bucket.bytes);
    hasher.Add(bucket.entries.size());
    for (const BucketEntry& entry : bucket.entries) {
      hasher.Add(parameters[entry.parameter].name);
      hasher.Add(entry.offset_bytes);
      hasher.Add(entry.count);
    }
  }
  hasher.Add(plan.control_words);
  hasher.Add(plan.control_offset_bytes);
  return hasher.Hex();
}

// Puts the end of the last bucket, as much as `limit` takes, into one of its
// own.
void CutLast(size_t limit, BucketPlan* plan) {
  if (limit == 0 || plan->buckets.empty()) return;
  BucketLayout& whole = plan->buckets.back();
  if (whole.bytes <= limit) return;
  size_t keep = whole.entries.size();
  while (keep > 1 &&
         whole.bytes - whole.entries[keep - 1].offset_bytes <= limit) {
    --keep;
  }
  if (keep == whole.entries.size()) return;
  BucketLayout last;
  last.type = whole.type;
  const size_t begin = whole.entries[keep].offset_bytes;
  for (size_t i = keep; i < whole.entries.size(); ++i) {
    last.entries.push_back(whole.entries[i]);
    last.entries.back().offset_bytes -= begin;
  }
  last.bytes = whole.bytes - begin;
  whole.entries.resize(keep);
  const BucketEntry& end = whole.entries.back();
  whole.bytes = end.offset_bytes + end.count * SizeOf(whole.type);
  plan->buckets.push_back(std::move(last));
}

}  // namespace

BucketSizes SizesFor(std::string_view backend, size_t bucket_bytes) {
  BucketSizes sizes;
  if (backend == "tcp" || backend == "hierarchical") {
    sizes.bucket = 2 << 20;
    sizes.last = 256 << 10;
  }
  if (bucket_bytes > 0) sizes.bucket = bucket_bytes;
  sizes.first = std::min(sizes.first, sizes.bucket);
  sizes.last = std::min(sizes.last, sizes.bucket);
  return sizes;
}

StatusOr<BucketPlan> PlanBuckets(const std::vector<BucketParameter>& parameters,
                                 const BucketPlanOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(parameters, options));
  BucketPlan plan;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const BucketParameter& parameter = parameters[i];
    const size_t bytes = parameter.count * SizeOf(parameter.type);
    const size_t limit = plan.buckets.size() <= 1 ? options.first_bucket_bytes
                                                  : options.bucket_bytes;
    const bool fits = !plan.buckets.empty() &&
                      plan.buckets.back().type == parameter.type &&
                      Align(plan.buckets.back().bytes) + bytes <= limit;
    if (!fits) {
      BucketLayout bucket;
      bucket.type = parameter.type;
      plan.buckets.push_back(std::move(bucket));
    }
    BucketLayout& bucket = plan.buckets.back();
    const size_t offset = Align(bucket.bytes);
    bucket.entries.push_back({i, offset, parameter.count});
    bucket.bytes = offset + bytes;
  }
  CutLast(options.last_bucket_bytes, &plan);
  plan.control_words = options.control_words;
  if (options.control_words > 0) {
    if (plan.buckets.empty() ||
        plan.buckets.back().type != DataType::kFloat32) {
      plan.buckets.emplace_back();
    }
    BucketLayout& last = plan.buckets.back();
    plan.control_offset_bytes = Align(last.bytes);
    last.bytes = plan.control_offset_bytes +
                 options.control_words * SizeOf(DataType::kFloat32);
  }
  for (BucketLayout& bucket : plan.buckets) Close(&bucket);
  plan.hash = HashOf(parameters, plan);
  return plan;
}

}  // namespace lockstep::worker::collective
