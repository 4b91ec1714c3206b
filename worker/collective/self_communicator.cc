#include "worker/collective/self_communicator.h"

#include "common/base/mutex.h"
#include "worker/collective/host_memory.h"
#include "worker/collective/operation.h"

namespace lockstep::worker::collective {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(const std::string& label) : label_(label) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }

  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    return memory_.Allocate(bytes);
  }

  StatusOr<const Buffer*> AnyMemory() override { return memory_.Any(); }
  bool HasAllToAll() const override { return true; }

  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    {
      MutexLock lock(&mu_);
      LOCKSTEP_RETURN_IF_ERROR(broken_);
    }
    if (stream != nullptr) {
      return InvalidArgument("{}: host memory has no stream", label_);
    }
    if (operation.kind != CollectiveKind::kBarrier &&
        !memory_.Owns(operation.slice.buffer)) {
      return InvalidArgument("{}: the buffer is not this communicator's",
                             label_);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckOperation(operation, 1));
    if (operation.kind == CollectiveKind::kAllToAll) {
      LOCKSTEP_RETURN_IF_ERROR(CheckCounts(operation, 0));
      CopyOwnPart(operation, 0, [] { return false; });
    }
    return std::make_unique<DoneWork>();
  }

  void Abort(std::string_view reason) override {
    MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = Aborted("{}: {}", label_, reason);
  }

 private:
  const std::string label_;
  HostMemory memory_;
  Mutex mu_;
  Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<Communicator> MakeSelfCommunicator(const std::string& label) {
  return std::make_unique<SelfCommunicator>(label);
}

}  // namespace lockstep::worker::collective
