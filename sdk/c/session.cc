// The session of the C interface, over worker/runtime/light_session.h.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sdk/c/error.h"
#include "worker/runtime/light_session.h"

namespace {

namespace runtime = ::lockstep::worker::runtime;
using ::lockstep::Duration;
using ::lockstep::InvalidArgument;
using ::lockstep::OkStatus;
using ::lockstep::Status;
using ::lockstep::c::Guard;
using ::lockstep::c::TakeStruct;

constexpr Duration kHoldTime = std::chrono::minutes(10);
constexpr Duration kRendezvousTime = std::chrono::seconds(30);

Duration TimeoutOr(int64_t nanoseconds, Duration otherwise) {
  return nanoseconds < 0 ? otherwise : Duration(nanoseconds);
}

// Null is no text.
Status CheckText(const char* text, const char* name) {
  return text == nullptr ? InvalidArgument("{} is NULL", name) : OkStatus();
}

}  // namespace

struct lockstep_session {
  std::unique_ptr<runtime::LightSession> session;
};

namespace {

Status Check(const lockstep_session* session) {
  return session == nullptr ? InvalidArgument("the session is NULL")
                            : OkStatus();
}

}  // namespace

int32_t lockstep_join(const lockstep_join_options* options,
                      lockstep_session** session, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    lockstep_join_options own{};
    own.timeout_ns = -1;
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(options, &own, sizeof(own), "lockstep_join_options"));
    if (session == nullptr) return InvalidArgument("session is NULL");
    runtime::LightSessionOptions inner;
    if (own.timeout_ns >= 0) inner.join_timeout = Duration(own.timeout_ns);
    inner.recoverable = own.recoverable != 0;
    LOCKSTEP_ASSIGN_OR_RETURN(auto joined, runtime::LightSession::Join(inner));
    *session = new lockstep_session{std::move(joined)};
    return OkStatus();
  });
}

int32_t lockstep_session_close(lockstep_session* session,
                               lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    return session->session->Close();
  });
}

void lockstep_session_free(lockstep_session* session) { delete session; }

int32_t lockstep_session_get_info(const lockstep_session* session,
                                  lockstep_session_info* info,
                                  lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    // An older program's struct is shorter: it gets the fields that it has.
    lockstep_session_info own{};
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(info, &own, sizeof(own), "lockstep_session_info"));
    const size_t size = info->size;
    const runtime::LightSessionIdentity& identity =
        session->session->identity();
    own.size = size;
    own.job = identity.job.c_str();
    own.role = identity.role.c_str();
    own.output_directory = identity.output_directory.c_str();
    own.gpus = identity.gpus.data();
    own.gpu_count = identity.gpus.size();
    own.cpus = identity.cpus;
    own.generation = identity.generation;
    own.checkpoint_interval_steps = identity.checkpoint_interval_steps;
    own.checkpoint_keep = identity.checkpoint_keep;
    own.task_index = identity.task_index;
    own.rank = identity.rank;
    own.world_size = identity.world_size;
    own.local_rank = identity.local_rank;
    own.local_world_size = identity.local_size;
    own.attempt = identity.attempt;
    own.managed = identity.managed ? 1 : 0;
    std::memcpy(info, &own, size < sizeof(own) ? size : sizeof(own));
    return OkStatus();
  });
}

int32_t lockstep_session_is_chief(const lockstep_session* session) {
  int32_t chief = 0;
  Guard(nullptr, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    chief = session->session->chief() ? 1 : 0;
    return OkStatus();
  });
  return chief;
}

int32_t lockstep_session_enter(lockstep_session* session, int32_t phase) {
  int32_t before = -1;
  Guard(nullptr, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto was,
        session->session->Enter(
            static_cast<::lockstep::worker::task::RankPhase>(phase)));
    before = static_cast<int32_t>(was);
    return OkStatus();
  });
  return before;
}

int32_t lockstep_session_step(lockstep_session* session,
                              const lockstep_step* step,
                              lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    lockstep_step own{};
    LOCKSTEP_RETURN_IF_ERROR(
        TakeStruct(step, &own, sizeof(own), "lockstep_step"));
    runtime::LightStep inner{.step = own.step, .samples = own.samples};
    if (own.has_loss != 0) inner.loss = own.loss;
    if (own.has_learning_rate != 0) inner.learning_rate = own.learning_rate;
    return session->session->Step(inner);
  });
}

int32_t lockstep_session_plan(lockstep_session* session, uint64_t total_steps,
                              uint64_t epoch, uint64_t global_batch,
                              lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    return session->session->Plan(total_steps, epoch, global_batch);
  });
}

int32_t lockstep_session_report(lockstep_session* session, const char* name,
                                double value, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(name, "name"));
    return session->session->Report(name, value);
  });
}

int32_t lockstep_session_event(lockstep_session* session, const char* sentence,
                               lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(sentence, "sentence"));
    return session->session->ReportEvent(sentence);
  });
}

int32_t lockstep_session_artifact(lockstep_session* session, const char* name,
                                  const char* path, lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(name, "name"));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(path, "path"));
    return session->session->ReportArtifact(name, path);
  });
}

int32_t lockstep_session_checkpoint_saved(lockstep_session* session,
                                          int64_t step, const char* path,
                                          int64_t bytes,
                                          lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(path, "path"));
    return session->session->ReportCheckpoint(step, path, bytes);
  });
}

int32_t lockstep_session_checkpoint_due(lockstep_session* session, int32_t* due,
                                        lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (due == nullptr) return InvalidArgument("due is NULL");
    LOCKSTEP_ASSIGN_OR_RETURN(const bool is, session->session->CheckpointDue());
    *due = is ? 1 : 0;
    return OkStatus();
  });
}

int32_t lockstep_session_should_stop(lockstep_session* session, int32_t* stop,
                                     lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (stop == nullptr) return InvalidArgument("stop is NULL");
    LOCKSTEP_ASSIGN_OR_RETURN(const bool is, session->session->ShouldStop());
    *stop = is ? 1 : 0;
    return OkStatus();
  });
}

int32_t lockstep_session_resumed(lockstep_session* session, int64_t step,
                                 lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    return session->session->ReportResumed(step);
  });
}

int32_t lockstep_session_recovery(lockstep_session* session, uint32_t* recovery,
                                  lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (recovery == nullptr) return InvalidArgument("recovery is NULL");
    LOCKSTEP_ASSIGN_OR_RETURN(*recovery, session->session->Recovery());
    return OkStatus();
  });
}

int32_t lockstep_session_park(lockstep_session* session, uint32_t left,
                              const int32_t* lost_ranks, size_t count,
                              lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (lost_ranks == nullptr && count > 0) {
      return InvalidArgument("lost_ranks is NULL and count is {}", count);
    }
    return session->session->Park(
        left, std::vector<int>(lost_ranks, lost_ranks + count));
  });
}

int32_t lockstep_session_await_recovery(lockstep_session* session,
                                        uint32_t above, int64_t timeout_ns,
                                        uint32_t* recovery,
                                        lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (recovery == nullptr) return InvalidArgument("recovery is NULL");
    LOCKSTEP_ASSIGN_OR_RETURN(*recovery,
                              session->session->AwaitRecovery(
                                  above, TimeoutOr(timeout_ns, kHoldTime)));
    return OkStatus();
  });
}

int32_t lockstep_session_joined(lockstep_session* session, uint32_t recovery,
                                lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    return session->session->JoinRecovery(recovery);
  });
}

int32_t lockstep_session_set_elastic(lockstep_session* session, int32_t elastic,
                                     lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    return session->session->SetElastic(elastic != 0);
  });
}

int32_t lockstep_session_away(lockstep_session* session, uint32_t recovery,
                              int32_t* ranks, size_t capacity, size_t* count,
                              lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    if (count == nullptr || (ranks == nullptr && capacity > 0)) {
      return InvalidArgument("ranks or count is NULL");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int> away,
                              session->session->Away(recovery));
    *count = away.size();
    if (away.size() > capacity) {
      return InvalidArgument("{} ranks are away, and there is room for {}",
                             away.size(), capacity);
    }
    std::copy(away.begin(), away.end(), ranks);
    return OkStatus();
  });
}

int32_t lockstep_session_put(lockstep_session* session, uint32_t recovery,
                             const char* key, const void* value, size_t bytes,
                             lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(key, "key"));
    if (value == nullptr && bytes > 0) return InvalidArgument("value is NULL");
    return session->session->Put(recovery, key,
                                 {static_cast<const char*>(value), bytes});
  });
}

int32_t lockstep_session_get(lockstep_session* session, uint32_t recovery,
                             const char* key, int64_t timeout_ns, void* value,
                             size_t capacity, size_t* bytes,
                             lockstep_error* error) {
  return Guard(error, [&]() -> Status {
    LOCKSTEP_RETURN_IF_ERROR(Check(session));
    LOCKSTEP_RETURN_IF_ERROR(CheckText(key, "key"));
    if (value == nullptr || bytes == nullptr) {
      return InvalidArgument("value or bytes is NULL");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string found,
        session->session->Get(recovery, key,
                              TimeoutOr(timeout_ns, kRendezvousTime)));
    *bytes = found.size();
    if (found.size() > capacity) {
      return InvalidArgument(
          "the value of {} has {} bytes, and there is room "
          "for {}",
          key, found.size(), capacity);
    }
    std::memcpy(value, found.data(), found.size());
    return OkStatus();
  });
}
