// The groups of the C interface, over worker/process_group/process_group.h.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sdk/c/error.h"
#include "worker/process_group/process_group.h"
#include "worker/runtime/fork_mark.h"

namespace {

namespace collective = ::lockstep::worker::collective;
namespace group = ::lockstep::worker::process_group;
using ::lockstep::Duration;
using ::lockstep::Error;
using ::lockstep::FailedPrecondition;
using ::lockstep::InvalidArgument;
using ::lockstep::MonoTime;
using ::lockstep::MonotonicNow;
using ::lockstep::OkStatus;
using ::lockstep::Status;
using ::lockstep::StatusCode;
using ::lockstep::StatusOr;
using ::lockstep::c::Guard;
using ::lockstep::c::TakeStruct;
using ::lockstep::worker::runtime::ForkMark;

// The caller's store.
class Store final : public ::lockstep::worker::collective::RendezvousStore {
 public:
  explicit Store(const lockstep_store& functions) : functions_(functions) {}

  Status Put(const std::string& key, std::string_view value) override {
    return Result(functions_.put(functions_.context, key.c_str(), value.data(),
                                 value.size()),
                  "write", key);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    const Duration left = std::max(Duration::zero(), deadline - MonotonicNow());
    std::string value(kMostBytes, '\0');
    size_t bytes = 0;
    LOCKSTEP_RETURN_IF_ERROR(
        Result(functions_.get(functions_.context, key.c_str(), left.count(),
                              value.data(), value.size(), &bytes),
               "read", key));
    if (bytes > value.size()) {
      return InvalidArgument(
          "the store's value of {} has {} bytes, more than {}", key, bytes,
          value.size());
    }
    value.resize(bytes);
    return value;
  }

 private:
  static constexpr size_t kMostBytes = 32 << 10;

  static Status Result(int32_t code, std::string_view did,
                       const std::string& key) {
    if (code == LOCKSTEP_OK) return OkStatus();
    if (code == LOCKSTEP_DEADLINE_EXCEEDED) {
      return Error(StatusCode::kDeadlineExceeded, "the store has no {} in time",
                   key);
    }
    const bool known = code > 0 && code <= LOCKSTEP_DATA_LOSS;
    return Error(known ? static_cast<StatusCode>(code) : StatusCode::kInternal,
                 "the store cannot {} {}: code {}", did, key, code);
  }

  const lockstep_store functions_;
};

std::string TextOr(const char* text, const char* other) {
  return text == nullptr ? other : text;
}

StatusOr<group::GroupOptions> ToOptions(const lockstep_group_options* theirs) {
  lockstep_group_options own{};
  own.forming_timeout_ns = own.operation_timeout_ns = -1;
  LOCKSTEP_RETURN_IF_ERROR(
      TakeStruct(theirs, &own, sizeof(own), "lockstep_group_options"));
  group::GroupOptions options;
  options.rank = own.rank;
  options.size = own.world_size;
  options.label = TextOr(own.label, options.label.c_str());
  options.backend = TextOr(own.backend, options.backend.c_str());
  options.bind_address = TextOr(own.bind_address, options.bind_address.c_str());
  if (own.key != nullptr) {
    options.key.assign(static_cast<const char*>(own.key), own.key_bytes);
  }
  if (own.forming_timeout_ns >= 0) {
    options.forming_timeout = Duration(own.forming_timeout_ns);
  }
  if (own.operation_timeout_ns >= 0) {
    options.operation_timeout = Duration(own.operation_timeout_ns);
  }
  if (own.store != nullptr) {
    lockstep_store store{};
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(own.store, &store, sizeof(store), "lockstep_store"));
    if (store.put == nullptr || store.get == nullptr) {
      return InvalidArgument("lockstep_store.put or .get is NULL");
    }
    options.store = std::make_shared<Store>(store);
  }
  return options;
}

// The caller's operation. Its lists are borrowed: `spans` has copies of them in
// the product's own type.
struct Operation {
  group::Operation operation;
  std::vector<group::Span> spans;
};

Status ToOperation(const lockstep_operation* theirs, int size, Operation* out) {
  lockstep_operation own{};
  LOCKSTEP_RETURN_IF_ERROR(
      TakeStruct(theirs, &own, sizeof(own), "lockstep_operation"));
  if (own.collective < 0 || own.collective > LOCKSTEP_RECV || own.type < 0 ||
      own.type > LOCKSTEP_BOOL || own.op < 0 || own.op > LOCKSTEP_PRODUCT) {
    return InvalidArgument(
        "there is no collective {}, type {} or reduction {} (lockstep.h)",
        own.collective, own.type, own.op);
  }
  if ((own.input == nullptr && own.input_spans > 0) ||
      (own.output == nullptr && own.output_spans > 0)) {
    return InvalidArgument("a list of spans is NULL and not empty");
  }
  out->spans.reserve(own.input_spans + own.output_spans);
  for (size_t i = 0; i < own.input_spans; ++i) {
    out->spans.push_back({own.input[i].data, own.input[i].count});
  }
  for (size_t i = 0; i < own.output_spans; ++i) {
    out->spans.push_back({own.output[i].data, own.output[i].count});
  }
  const std::span<const group::Span> spans(out->spans);
  const auto splits = [size](const uint64_t* list) {
    return list == nullptr
               ? std::span<const uint64_t>()
               : std::span<const uint64_t>(list, static_cast<size_t>(size));
  };
  out->operation = {
      .collective = static_cast<group::Collective>(own.collective),
      .type = static_cast<group::Type>(own.type),
      .op = static_cast<group::ReduceOp>(own.op),
      .root = own.root,
      .tag = own.tag,
      .input = spans.first(own.input_spans),
      .output = spans.subspan(own.input_spans),
      .input_splits = splits(own.input_splits),
      .output_splits = splits(own.output_splits),
      .timeout = Duration(std::max<int64_t>(own.timeout_ns, 0)),
      .cookie = own.cookie};
  return OkStatus();
}

}  // namespace

struct lockstep_group {
  std::unique_ptr<group::ProcessGroup> group;
  std::string small_part;  // Of the last level.
  // A page of memory: the works of the group share it.
  const std::shared_ptr<const ForkMark> mark = std::make_shared<ForkMark>();
};

struct lockstep_digest {
  std::vector<size_t> sizes;  // of the memory's parts
  collective::StateDigest digest;
};

struct lockstep_work {
  std::shared_ptr<group::Work> work;
  std::shared_ptr<const ForkMark> mark;
};

namespace {

template <typename Object>
Status Check(const Object* object, const char* name) {
  if (object == nullptr) return InvalidArgument("the {} is NULL", name);
  if (object->mark->IsForked()) {
    return FailedPrecondition(
        "this process was forked after it made the {}; a child cannot use its "
        "parent's",
        name);
  }
  return OkStatus();
}

collective::StateMemory MemoryOf(const lockstep_span* spans, size_t count) {
  collective::StateMemory memory;
  for (size_t i = 0; i < count; ++i) {
    memory.emplace_back(static_cast<std::byte*>(spans[i].data), spans[i].count);
  }
  return memory;
}

std::vector<size_t> SizesOf(const collective::StateMemory& memory) {
  std::vector<size_t> sizes;
  for (const auto& part : memory) sizes.push_back(part.size());
  return sizes;
}

StatusOr<collective::StateDigest> DigestFor(
    const lockstep_digest* known, const collective::StateMemory& memory) {
  if (known == nullptr) return collective::DigestOf(memory);
  if (known->sizes != SizesOf(memory)) {
    return InvalidArgument("the digest is of memory with other sizes");
  }
  return known->digest;
}

}  // namespace

int32_t lockstep_group_form(const lockstep_group_options* options,
                            lockstep_group** group, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    if (group == nullptr) return InvalidArgument("group is NULL");
    LOCKSTEP_ASSIGN_OR_RETURN(const auto own, ToOptions(options));
    LOCKSTEP_ASSIGN_OR_RETURN(auto formed, group::ProcessGroup::Form(own));
    *group = new lockstep_group{std::move(formed), ""};
    return OkStatus();
  });
}

void lockstep_group_free(lockstep_group* group) {
  if (group == nullptr) return;
  // Its threads are not in the child.
  if (group->mark->IsForked()) (void)group->group.release();
  delete group;
}

void lockstep_group_abort(lockstep_group* group, const char* reason) {
  Guard(nullptr, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    group->group->Abort(TextOr(reason, "aborted by its user"));
    return OkStatus();
  });
}

const char* lockstep_group_describe(const lockstep_group* group) {
  return group == nullptr ? "" : group->group->Describe().c_str();
}

int32_t lockstep_group_start(lockstep_group* group,
                             const lockstep_operation* operation,
                             lockstep_work** work, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    if (work == nullptr) return InvalidArgument("work is NULL");
    Operation own;
    LOCKSTEP_RETURN_IF_ERROR(
        ToOperation(operation, group->group->size(), &own));
    LOCKSTEP_ASSIGN_OR_RETURN(auto started, group->group->Start(own.operation));
    *work = new lockstep_work{std::move(started), group->mark};
    return OkStatus();
  });
}

int32_t lockstep_group_run(lockstep_group* group,
                           const lockstep_operation* operation,
                           lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    Operation own;
    LOCKSTEP_RETURN_IF_ERROR(
        ToOperation(operation, group->group->size(), &own));
    return group->group->Run(own.operation);
  });
}

int32_t lockstep_work_wait(lockstep_work* work, int64_t timeout_ns,
                           lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(work, "work"));
    return work->work->Wait(Duration(timeout_ns));
  });
}

int32_t lockstep_work_ended(const lockstep_work* work) {
  return work != nullptr && !work->mark->IsForked() && work->work->ended() ? 1
                                                                           : 0;
}

void lockstep_work_free(lockstep_work* work) { delete work; }

int32_t lockstep_group_next_ended(lockstep_group* group, int64_t timeout_ns,
                                  uint64_t* cookies, size_t capacity,
                                  size_t* count) {
  return Guard(nullptr, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    if (cookies == nullptr || count == nullptr || capacity == 0) {
      return InvalidArgument("cookies, capacity or count is missing");
    }
    *count = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(
        *count, group->group->NextEnded(Duration(timeout_ns),
                                        std::span(cookies, capacity)));
    return OkStatus();
  });
}

int32_t lockstep_digest_of(const lockstep_span* memory, size_t spans,
                           lockstep_digest** digest, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    if (digest == nullptr || (memory == nullptr && spans > 0)) {
      return InvalidArgument("digest is NULL, or memory is and has spans");
    }
    const collective::StateMemory state = MemoryOf(memory, spans);
    *digest = new lockstep_digest{SizesOf(state), collective::DigestOf(state)};
    return OkStatus();
  });
}

void lockstep_digest_free(lockstep_digest* digest) { delete digest; }

int32_t lockstep_group_level(lockstep_group* group, const lockstep_level* level,
                             lockstep_leveled* leveled, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    lockstep_level own{};
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(level, &own, sizeof(own), "lockstep_level"));
    lockstep_leveled result{};
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(leveled, &result, sizeof(result), "lockstep_leveled"));
    if ((own.memory == nullptr && own.spans > 0) ||
        (own.small_part == nullptr && own.small_bytes > 0)) {
      return InvalidArgument("memory or small_part is NULL and not empty");
    }
    collective::LevelInput input;
    input.memory = MemoryOf(own.memory, own.spans);
    if (own.has_state != 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(input.digest,
                                DigestFor(own.digest, input.memory));
      input.record = {.has_state = true,
                      .committed = own.committed,
                      .digest = input.digest.hash};
    }
    if (own.small_bytes > 0) {
      input.small.assign(static_cast<const char*>(own.small_part),
                         own.small_bytes);
    }
    const size_t size = leveled->size;
    bool written = false;
    StatusOr<collective::LevelResult> leveling =
        group->group->Level(std::move(input), &written);
    if (!leveling.ok()) {
      result = {};
      result.size = size;
      result.received = own.has_state != 0 && written ? 1 : 0;
      std::memcpy(leveled, &result,
                  size < sizeof(result) ? size : sizeof(result));
      return leveling.status();
    }
    collective::LevelResult& done = *leveling;
    group->small_part = std::move(done.small);
    const auto& receivers = done.plan.receivers;
    result.committed = done.plan.step;
    result.bytes = done.bytes;
    result.time_ns = done.time.count();
    result.received = std::binary_search(receivers.begin(), receivers.end(),
                                         group->group->rank())
                          ? 1
                          : 0;
    result.source = done.plan.sources.front();
    result.small_bytes = group->small_part.size();
    result.size = size;
    std::memcpy(leveled, &result,
                size < sizeof(result) ? size : sizeof(result));
    return OkStatus();
  });
}

int32_t lockstep_group_small_part(lockstep_group* group, void* bytes,
                                  size_t capacity, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(group, "group"));
    const std::string& small = group->small_part;
    if (small.empty()) return OkStatus();
    if (bytes == nullptr || capacity < small.size()) {
      return InvalidArgument(
          "the small part has {} bytes, and there is room "
          "for {}",
          small.size(), capacity);
    }
    std::memcpy(bytes, small.data(), small.size());
    return OkStatus();
  });
}
