#include "sdk/mpi/communicator.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "sdk/mpi/fail.h"

namespace lockstep::mpi {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// The communicator's part of the store, as the C interface takes it.
class Communicator::PrefixedStore {
 public:
  PrefixedStore(Store* store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  lockstep_store Functions() {
    return {.size = sizeof(lockstep_store),
            .context = this,
            .put = &Put,
            .get = &Get};
  }

 private:
  static int32_t Put(void* context, const char* key, const void* value,
                     size_t bytes) {
    auto* self = static_cast<PrefixedStore*>(context);
    lockstep_error error{};
    return self->store_->Put(self->prefix_ + key,
                             {static_cast<const char*>(value), bytes}, &error);
  }
  static int32_t Get(void* context, const char* key, int64_t timeout_ns,
                     void* value, size_t capacity, size_t* bytes) {
    auto* self = static_cast<PrefixedStore*>(context);
    lockstep_error error{};
    std::string got;
    const int32_t code = self->store_->Get(
        self->prefix_ + key, steady_clock::now() + nanoseconds(timeout_ns),
        &got, &error);
    if (code != LOCKSTEP_OK) return code;
    if (got.size() > capacity) return LOCKSTEP_OUT_OF_RANGE;
    std::memcpy(value, got.data(), got.size());
    *bytes = got.size();
    return LOCKSTEP_OK;
  }

  Store* const store_;
  const std::string prefix_;
};

Communicator::Communicator(int rank, int size) : rank_(rank), size_(size) {}

Communicator::Communicator(const lockstep_error& why)
    : rank_(0), size_(1), closed_(true), why_closed_(why) {}

Communicator::~Communicator() {
  Close();
  for (Request* request : requests_) delete request;
}

int32_t Communicator::Form(const CommunicatorOptions& options,
                           std::unique_ptr<Communicator>* formed,
                           lockstep_error* error) {
  std::unique_ptr<Communicator> made(
      new Communicator(options.rank, options.size));
  made->store_ = std::make_unique<PrefixedStore>(options.store, options.prefix);
  const lockstep_store functions = made->store_->Functions();
  const lockstep_group_options group = {
      .size = sizeof(group),
      .rank = options.rank,
      .world_size = options.size,
      .label = options.label.c_str(),
      .backend = nullptr,
      .bind_address =
          options.bind_address.empty() ? nullptr : options.bind_address.c_str(),
      .key = options.key.data(),
      .key_bytes = options.key.size(),
      .forming_timeout_ns = nanoseconds(kFormingTimeout).count(),
      .operation_timeout_ns = nanoseconds(kOperationTimeout).count(),
      .store = &functions};
  const int32_t code = lockstep_group_form(&group, &made->group_, error);
  if (code == LOCKSTEP_OK) *formed = std::move(made);
  return code;
}

int32_t Communicator::Run(const lockstep_operation& operation,
                          lockstep_error* error) {
  if (!Enter(error)) return error->code;
  const int32_t code = lockstep_group_run(group_, &operation, error);
  Leave();
  return code;
}

int32_t Communicator::Start(const lockstep_operation& operation,
                            Request** request, lockstep_error* error) {
  if (!Enter(error)) return error->code;
  auto made = std::make_unique<Request>(Request{this, nullptr});
  const int32_t code =
      lockstep_group_start(group_, &operation, &made->work, error);
  if (code == LOCKSTEP_OK) {
    *request = made.get();
    const std::lock_guard lock(mutex_);
    requests_.insert(made.release());
  } else {
    AbortMessages(*error);
  }
  Leave();
  return code;
}

int32_t Communicator::Wait(Request* request, lockstep_error* error) {
  const bool entered = Enter(error);
  int32_t code = error->code;
  if (entered) {
    code = lockstep_work_wait(request->work, -1, error);
    if (code != LOCKSTEP_OK) AbortMessages(*error);
  }
  {
    const std::lock_guard lock(mutex_);
    requests_.erase(request);
  }
  lockstep_work_free(request->work);
  delete request;
  if (entered) Leave();
  return code;
}

void Communicator::Close() {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  Fail(&why_closed_, LOCKSTEP_FAILED_PRECONDITION,
       "the communicator was freed, or MPI_Finalize was called");
  // Without work of this rank there is nothing to abort, and the others may
  // still be at the end of an operation that has ended here.
  if (running_ > 0 || !requests_.empty()) {
    lockstep_group_abort(group_, "its rank has left");
  }
  left_.wait(lock, [&] { return running_ == 0; });
  for (Request* request : requests_) {
    lockstep_work_free(std::exchange(request->work, nullptr));
  }
  lockstep_group_free(std::exchange(group_, nullptr));
}

bool Communicator::Enter(lockstep_error* error) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    *error = why_closed_;
    return false;
  }
  ++running_;
  return true;
}

void Communicator::Leave() {
  const std::lock_guard lock(mutex_);
  if (--running_ == 0) left_.notify_all();
}

void Communicator::AbortMessages(const lockstep_error& error) {
  lockstep_group_abort(group_, error.message);
  // None is freed meanwhile: Wait takes the lock first.
  const std::lock_guard lock(mutex_);
  for (Request* request : requests_) {
    lockstep_error ended{};
    lockstep_work_wait(request->work, -1, &ended);
  }
}

}  // namespace lockstep::mpi
