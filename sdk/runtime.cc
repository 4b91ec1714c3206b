// The installed API of ranks, over the one that is used inside.
#include "sdk/include/lockstep/runtime.h"

#include <dlfcn.h>
#include <unistd.h>

#include <utility>

#include "worker/runtime/recovery.h"
#include "worker/runtime/session.h"

namespace lockstep::runtime {
namespace {

namespace inner = ::lockstep::worker::runtime;

// Backends lie beside the library: in lockstep/ of its directory, or of the
// one above, where libraries are in a directory of the architecture's. Empty:
// beside the program, as the program's own rules say.
std::string ModuleDir() {
  Dl_info info{};
  if (getenv("LOCKSTEP_MODULE_DIR") != nullptr ||
      dladdr(reinterpret_cast<void*>(&ModuleDir), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  std::string library = info.dli_fname;
  const size_t slash = library.rfind('/');
  if (slash == std::string::npos) return "";
  library.resize(slash);
  for (const char* dir : {"/lockstep", "/../lockstep"}) {
    if (access((library + dir).c_str(), X_OK) == 0) return library + dir;
  }
  return "";
}

inner::Phase ToInner(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return inner::Phase::kInput;
    case Phase::kCompute:
      return inner::Phase::kCompute;
    case Phase::kAllReduce:
      return inner::Phase::kAllReduce;
    case Phase::kStragglerWait:
      return inner::Phase::kStragglerWait;
    case Phase::kOptimizer:
      return inner::Phase::kOptimizer;
    case Phase::kCheckpoint:
      return inner::Phase::kCheckpoint;
    case Phase::kEvaluation:
      return inner::Phase::kEvaluation;
    case Phase::kCompile:
      return inner::Phase::kCompile;
    case Phase::kOther:
      break;
  }
  return inner::Phase::kOther;
}

inner::CheckpointOrder ToInner(const CheckpointOrder& order) {
  inner::CheckpointOrder out;
  out.step = order.step;
  out.id = order.id;
  out.directives = order.directives;
  return out;
}

CheckpointOrder FromInner(const inner::CheckpointOrder& order) {
  return {order.step, order.id, order.directives};
}

StepOrders FromInner(const inner::StepOrders& orders) {
  StepOrders out;
  if (orders.settled) {
    out.settled = CheckpointSettled{FromInner(orders.settled->order),
                                    orders.settled->complete};
  }
  if (orders.checkpoint) out.checkpoint = FromInner(*orders.checkpoint);
  out.stop = orders.stop.has_value();
  out.drain = orders.drain;
  return out;
}

template <typename To, typename From>
absl::StatusOr<To> Convert(const StatusOr<From>& from) {
  if (!from.ok()) return from.status();
  return FromInner(*from);
}

}  // namespace

struct Reducer::Impl {
  std::unique_ptr<inner::Reducer> reducer;
};
struct Session::Impl {
  std::unique_ptr<inner::Session> session;
};

// ---- Reducer ----------------------------------------------------------------

Reducer::Reducer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reducer::~Reducer() = default;

std::span<float> Reducer::gradient(size_t i) {
  return impl_->reducer->gradient(i);
}
size_t Reducer::parameters() const { return impl_->reducer->parameters(); }
void Reducer::ZeroGradients() { impl_->reducer->ZeroGradients(); }
int64_t Reducer::step() const { return impl_->reducer->step(); }
int64_t Reducer::committed() const { return impl_->reducer->committed(); }
bool Reducer::wants_state_hash() const {
  return impl_->reducer->wants_state_hash();
}
absl::Status Reducer::Ready(size_t i) { return impl_->reducer->Ready(i); }

absl::StatusOr<StepResult> Reducer::Finish(const StepInputs& inputs) {
  inner::StepInputs in;
  in.samples = inputs.samples;
  in.loss_sum = inputs.loss_sum;
  in.epoch = inputs.epoch;
  in.position = inputs.position;
  in.state_hash = inputs.state_hash;
  in.learning_rate = inputs.learning_rate;
  LOCKSTEP_ASSIGN_OR_RETURN(const inner::StepResult result,
                            impl_->reducer->Finish(in));
  StepResult out;
  out.apply = result.apply;
  out.skipped = result.skipped;
  out.samples = result.samples;
  out.loss = result.loss;
  return out;
}

absl::Status Reducer::NextShard(int64_t samples, double loss_sum) {
  return impl_->reducer->NextShard(samples, loss_sum);
}
absl::StatusOr<StepOrders> Reducer::Commit() {
  return Convert<StepOrders>(impl_->reducer->Commit());
}
absl::Status Reducer::Vote(uint64_t id, bool durable) {
  return impl_->reducer->Vote(id, durable);
}
std::optional<CheckpointOrder> Reducer::checkpoint_in_flight() const {
  const auto& order = impl_->reducer->in_flight();
  if (!order) return std::nullopt;
  return FromInner(*order);
}
bool Reducer::voted() const { return impl_->reducer->voted(); }
absl::StatusOr<StepOrders> Reducer::Settle() {
  return Convert<StepOrders>(impl_->reducer->Settle());
}
absl::StatusOr<CheckpointOrder> Reducer::BeginCheckpoint() {
  return Convert<CheckpointOrder>(impl_->reducer->BeginCheckpoint());
}

// ---- Session ----------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Session>> Session::Join(
    const SessionOptions& options) {
  inner::SessionOptions in;
  in.backend = options.backend;
  in.module_dir = ModuleDir();
  in.join_timeout = options.join_timeout;
  in.forming_timeout = options.forming_timeout;
  in.go_timeout = options.go_timeout;
  in.operation_timeout = options.operation_timeout;
  in.recoverable = options.recoverable;
  in.elastic = options.elastic;
  in.hold_timeout = options.hold_timeout;
  in.local_output_directory = options.local_output_directory;
  in.local_checkpoint_interval = options.local_checkpoint_interval;
  in.local_checkpoint_keep = options.local_checkpoint_keep;
  LOCKSTEP_ASSIGN_OR_RETURN(auto session, inner::Session::Join(std::move(in)));
  auto impl = std::make_unique<Impl>();
  impl->session = std::move(session);
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

bool Session::local() const { return impl_->session->identity().local; }
const std::string& Session::job() const {
  return impl_->session->identity().job;
}
uint64_t Session::generation() const {
  return impl_->session->identity().generation;
}
int Session::rank() const { return impl_->session->rank(); }
int Session::world_size() const { return impl_->session->world_size(); }
int Session::local_rank() const {
  return impl_->session->identity().local_rank;
}
int Session::local_size() const {
  return impl_->session->identity().local_size;
}
int Session::attempt() const { return impl_->session->identity().attempt; }
double Session::cpus() const { return impl_->session->identity().cpus; }
const std::vector<int>& Session::gpus() const {
  return impl_->session->identity().gpus;
}
const std::string& Session::output_directory() const {
  return impl_->session->identity().output_directory;
}
int64_t Session::checkpoint_interval_steps() const {
  return impl_->session->identity().checkpoint_interval_steps;
}
int Session::checkpoint_keep() const {
  return impl_->session->identity().checkpoint_keep;
}

absl::Status Session::Form(const std::map<std::string, std::string>& config) {
  return impl_->session->Form(config);
}

absl::StatusOr<std::unique_ptr<Reducer>> Session::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  std::vector<inner::Parameter> in;
  for (const Parameter& p : parameters) in.push_back({p.name, p.elements});
  inner::ReducerOptions o;
  o.start_step = options.start_step;
  o.bucket_bytes = options.bucket_bytes;
  o.total_steps = options.total_steps;
  o.global_batch = options.global_batch;
  o.state_hash_interval = options.state_hash_interval;
  o.device_stream = options.device_stream;
  LOCKSTEP_ASSIGN_OR_RETURN(auto reducer, impl_->session->MakeReducer(in, o));
  auto impl = std::make_unique<Reducer::Impl>();
  impl->reducer = std::move(reducer);
  return std::unique_ptr<Reducer>(new Reducer(std::move(impl)));
}

bool Session::recovering() const {
  return impl_->session->identity().recovering;
}
bool Session::CanRecover(const absl::Status& error) const {
  return inner::CanRecover(*impl_->session, error);
}
absl::StatusOr<Recovered> Session::Recover(const absl::Status& lost,
                                           Reducer* reducer,
                                           const ReplicaState& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const inner::Recovered recovered,
      inner::Recover(impl_->session.get(), lost, reducer->impl_->reducer.get(),
                     {.memory = state.memory,
                      .device = {state.device_memory, state.device_stream},
                      .save = state.save,
                      .load = state.load}));
  return Recovered{recovered.recovery, recovered.step, recovered.received,
                   FromInner(recovered.orders)};
}

const std::vector<int>& Session::shards() const {
  return inner::MembershipOf(*impl_->session).own_shards();
}
absl::Status Session::CheckMembership() {
  return inner::CheckMembership(impl_->session.get());
}
bool Session::chief() const { return impl_->session->chief(); }

absl::Status Session::AllReduceSum(std::span<double> values) {
  return impl_->session->AllReduceSum(values);
}
absl::Status Session::Broadcast(std::string* bytes) {
  return impl_->session->Broadcast(bytes);
}
absl::Status Session::Barrier() { return impl_->session->Barrier(); }
void Session::Enter(Phase phase) { impl_->session->Enter(ToInner(phase)); }
void Session::Publish() { impl_->session->Publish(); }
void Session::Report(std::string_view name, double value) {
  impl_->session->Report(name, value);
}
void Session::ReportArtifact(const std::string& name, const std::string& path) {
  impl_->session->ReportArtifact(name, path);
}
void Session::ReportEvent(const std::string& sentence) {
  impl_->session->ReportEvent(sentence);
}
void Session::ReportCheckpoint(const CheckpointOrder& order,
                               const std::string& path, int64_t bytes) {
  impl_->session->ReportCheckpoint(ToInner(order), path, bytes);
}
void Session::ReportResumed(int64_t step) {
  impl_->session->ReportResumed(step);
}
void Session::CountCheckpoint(int64_t step) {
  impl_->session->progress()->CountCheckpoint(step, 0);
}
void Session::RequestDrain() { impl_->session->RequestDrain(); }
int Session::Leave(const absl::Status& status) {
  return impl_->session->Leave(status);
}

}  // namespace lockstep::runtime
