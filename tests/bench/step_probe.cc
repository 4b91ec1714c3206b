// One rank of a step benchmark: trains as lockstep-train does, on one batch.
//
//   step_probe --model NAME [--core C] [--batch SAMPLES] [--export PATH]
//              [--rate R] and what probe_rank.h says
//
// Speaks with tests/bench/run over its standard streams, as the peers do: says
// "ready" and, after tabs, versions as NAME=VALUE when it has run the first
// steps; for each line "N" runs N steps and answers "START END BUSY EXPOSED"
// (CLOCK_MONOTONIC, nanoseconds; then seconds of communication); for "N word"
// the same, but all that is exchanged in a step is one all-reduce of 4 bytes,
// and the optimizer's rate is 0, so that weights stay; at the end of its input
// runs one more, whose reduced gradients it compares with float64, and says
// "end HASH LOSS ERROR": of the parameters; of its own batch before that step,
// a sample's; GradientError (step_models.h).
//
// --batch: samples, others than the model's. --rate: of the optimizer. --export
// PATH: weights and batch for others (step_models.h).
#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "tests/bench/probe_rank.h"
#include "tests/bench/step_models.h"
#include "worker/collective/self_communicator.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/stepped_reducer.h"
#include "worker/trainer/environment.h"
#include "worker/trainer/optimizer.h"

namespace lockstep::worker {
namespace {

constexpr int kWarmUps = 5;
constexpr Duration kPatience = std::chrono::seconds(60);

struct ProbeOptions {
  ProbeOptions(int argc, char** argv)
      : self(argc, argv),
        model(probe_argument(argc, argv, "--model", "shallow")),
        export_path(probe_argument(argc, argv, "--export", "")),
        rate(std::atof(probe_argument(argc, argv, "--rate", "0.001"))),
        batch(std::atoi(probe_argument(argc, argv, "--batch", "0"))),
        core(std::atoi(probe_argument(argc, argv, "--core", "-1"))) {}

  ProbeRank self;
  std::string model;
  std::string export_path;
  double rate;
  int batch;  // 0: the model's.
  int core;   // -1: any.
};

// One rank alone, as far as the reducer can see, that meets the others in 4
// bytes a step: in the bucket that ends its memory, which is the last one.
class WordCommunicator final : public collective::ForwardingCommunicator {
 public:
  static StatusOr<std::unique_ptr<collective::Communicator>> Make(
      std::unique_ptr<collective::Communicator> inner) {
    LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* word,
                              inner->Allocate(4));
    return std::unique_ptr<collective::Communicator>(
        new WordCommunicator(std::move(inner), word));
  }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  StatusOr<const collective::Buffer*> Allocate(size_t bytes) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* buffer,
                              inner_->Allocate(bytes));
    bytes_[buffer] = bytes;
    return buffer;
  }
  StatusOr<std::unique_ptr<collective::Work>> Start(
      const collective::Operation& operation, collective::Stream) override {
    const collective::Slice& slice = operation.slice;
    const size_t end = (slice.offset + slice.count) * SizeOf(slice.type);
    if (operation.kind != collective::CollectiveKind::kAllReduce ||
        end + 64 < bytes_[slice.buffer]) {
      return std::make_unique<collective::DoneWork>();
    }
    return inner_->Start(
        {.slice = {word_, 0, 1, collective::DataType::kFloat32}});
  }

 private:
  WordCommunicator(std::unique_ptr<collective::Communicator> inner,
                   const collective::Buffer* word)
      : ForwardingCommunicator(std::move(inner)), word_(word) {}
  const collective::Buffer* const word_;
  std::map<const collective::Buffer*, size_t> bytes_;  // That were asked for.
};

// The way that gradients take.
struct Exchange {
  std::unique_ptr<collective::Communicator> communicator;
  std::unique_ptr<runtime::Progress> progress;
  std::unique_ptr<runtime::Reducer> reducer;
};

// What of lockstep-train is in a step.
class Loop {
 public:
  static StatusOr<std::unique_ptr<Loop>> Make(const ProbeOptions& options) {
    std::unique_ptr<Loop> loop(new Loop(options));
    const int rank = options.self.rank;
    LOCKSTEP_ASSIGN_OR_RETURN(loop->model_, MakeStepModel(options.model));
    if (options.batch > 0) {
      loop->model_.batch = static_cast<uint64_t>(options.batch);
    }
    loop->batch_ = MakeStepBatch(loop->model_, rank, options.self.ranks);
    if (!options.export_path.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(
          ExportStart(options.export_path, loop->model_, loop->batch_, rank));
    }
    trainer::Replica* const replica = loop->model_.replica.get();
    std::vector<trainer::OptimizedParameter> optimized;
    for (size_t i = 0; i < replica->parameters(); ++i) {
      optimized.push_back({replica->tensors()[i].name, replica->values(i)});
    }
    LOCKSTEP_ASSIGN_OR_RETURN(loop->optimizer_,
                              trainer::MakeOptimizer({}, std::move(optimized)));
    LOCKSTEP_ASSIGN_OR_RETURN(loop->gradients_, loop->MakeExchange(false));
    LOCKSTEP_RETURN_IF_ERROR(loop->WarmUp(&loop->gradients_, options.rate));
    return loop;
  }

  Status Run(int64_t steps, bool word, std::string* answer) {
    const double rate = word ? 0 : options_.rate;
    if (word && !word_) {
      LOCKSTEP_ASSIGN_OR_RETURN(word_, MakeExchange(true));
      LOCKSTEP_RETURN_IF_ERROR(WarmUp(&*word_, rate));
    }
    Exchange* const exchange = word ? &*word_ : &gradients_;
    const auto communication = [exchange] {
      exchange->progress->Publish();
      const task::RankCounters& c = exchange->progress->counters();
      return std::pair(
          c.allreduce_busy_seconds,
          c.phase_seconds[static_cast<size_t>(task::RankPhase::kAllReduce)]);
    };
    const auto before = communication();
    const int64_t start = MonotonicNow().time_since_epoch().count();
    for (int64_t i = 0; i < steps; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Step(exchange, rate).status());
    }
    const int64_t end = MonotonicNow().time_since_epoch().count();
    const auto after = communication();
    *answer = fmt::format("{} {} {} {}", start, end, after.first - before.first,
                          after.second - before.second);
    return OkStatus();
  }

  // One more step. "end HASH LOSS ERROR".
  StatusOr<std::string> End() {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reference,
                              ReferenceGradients(model_, options_.self.ranks));
    double error = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const double loss,
        Step(&gradients_, options_.rate, &reference, &error));
    return fmt::format("end {:016x} {:.9g} {:.3g}", Hash(),
                       loss / static_cast<double>(batch_.count), error);
  }

 private:
  explicit Loop(const ProbeOptions& options) : options_(options) {}

  // `word`: over one that exchanges 4 bytes.
  StatusOr<Exchange> MakeExchange(bool word) const {
    Exchange exchange;
    const ProbeRank& self = options_.self;
    const std::string dir = self.store + (word ? "/word" : "");
    // By one of the ranks.
    std::error_code error;
    std::filesystem::create_directory(dir, error);
    if (error) return Internal("{}: {}", dir, error.message());
    LOCKSTEP_ASSIGN_OR_RETURN(exchange.communicator, self.Form(dir, kPatience));
    if (word) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          exchange.communicator,
          WordCommunicator::Make(std::move(exchange.communicator)));
    }
    // With a page, as in a job.
    LOCKSTEP_ASSIGN_OR_RETURN(
        exchange.progress,
        runtime::Progress::Create(fmt::format("{}/page-{}", dir, self.rank),
                                  self.rank, 1));
    std::vector<runtime::Parameter> parameters;
    size_t weights = 0;
    for (size_t i = 0; i < model_.replica->parameters(); ++i) {
      parameters.push_back({model_.replica->tensors()[i].name,
                            model_.replica->values(i).size()});
      weights += parameters.back().elements;
    }
    fmt::print(stderr, "rank {}: {} parameters, backend {}\n", self.rank,
               weights, exchange.communicator->backend());
    runtime::SteppedReducerOptions stepped;
    stepped.generation = 1;
    stepped.reducer.learn_order = true;
    stepped.reducer.state_hash_interval = 0;
    stepped.operation_timeout = kPatience;
    stepped.communicator = exchange.communicator.get();
    stepped.progress = exchange.progress.get();
    LOCKSTEP_ASSIGN_OR_RETURN(exchange.reducer,
                              MakeSteppedReducer(parameters, stepped));
    return exchange;
  }

  // Until buffers are faulted in and the order of gradients is learned.
  Status WarmUp(Exchange* exchange, double rate) {
    for (int i = 0; i < kWarmUps; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(Step(exchange, rate).status());
    }
    return OkStatus();
  }

  // The loss of its own batch before the step, summed. Where `reference` is
  // given, `error` becomes the reduced gradients' distance from it.
  StatusOr<double> Step(
      Exchange* exchange, double rate,
      const std::vector<std::vector<double>>* reference = nullptr,
      double* error = nullptr) {
    runtime::Progress* const progress = exchange->progress.get();
    runtime::Reducer* const reducer = exchange->reducer.get();
    progress->Enter(task::RankPhase::kInput);
    progress->Enter(task::RankPhase::kCompute);
    places_.clear();
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      places_.push_back(reducer->gradient(i));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const double loss, model_.replica->Backward(
                               batch_, 0, batch_.count,
                               [&](size_t i, std::span<const float> gradient) {
                                 return reducer->Put(i, gradient);
                               },
                               places_));
    runtime::StepInputs inputs;
    inputs.samples = static_cast<int64_t>(batch_.count);
    inputs.loss_sum = loss;
    inputs.position = static_cast<uint64_t>(reducer->step());
    inputs.learning_rate = rate;
    LOCKSTEP_ASSIGN_OR_RETURN(const runtime::StepResult result,
                              reducer->Finish(inputs));
    progress->Enter(task::RankPhase::kOptimizer);
    reduced_.clear();
    for (size_t i = 0; i < reducer->parameters(); ++i) {
      reduced_.emplace_back(reducer->gradient(i));
    }
    if (!result.apply) return Internal("a step was skipped");
    if (reference != nullptr) *error = GradientError(reduced_, *reference);
    optimizer_->Step(rate, reduced_, result.gradient_scale);
    LOCKSTEP_RETURN_IF_ERROR(reducer->Commit().status());
    progress->Enter(task::RankPhase::kOther);
    return loss;
  }

  uint64_t Hash() const {
    uint64_t hash = 0;
    for (size_t i = 0; i < model_.replica->parameters(); ++i) {
      const std::span<float> values = model_.replica->values(i);
      hash = hash * 1000003 + Crc32c(std::string_view(
                                  reinterpret_cast<const char*>(values.data()),
                                  values.size_bytes()));
    }
    return hash;
  }

  const ProbeOptions options_;
  StepModel model_;
  data::Batch batch_;
  Exchange gradients_;
  std::optional<Exchange> word_;  // Once it has been asked for.
  std::unique_ptr<trainer::Optimizer> optimizer_;
  // Of a step; kept for their memory.
  std::vector<std::span<float>> places_;
  std::vector<std::span<const float>> reduced_;
};

// "ready" and what it computes with.
std::string Ready() {
  std::string text = fmt::format("ready\ttorch={}", TorchVersion());
  using Config = char* (*)();
  if (const auto config = reinterpret_cast<Config>(
          dlsym(RTLD_DEFAULT, "openblas_get_config"))) {
    text += fmt::format("\tblas={}", config());
    if (const auto core = reinterpret_cast<Config>(
            dlsym(RTLD_DEFAULT, "openblas_get_corename"))) {
      text += fmt::format(", runs {}", core());
    }
  }
  return text;
}

Status Serve(const ProbeOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Loop> loop,
                            Loop::Make(options));
  fmt::print("{}\n", Ready());
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    std::string answer;
    const bool word = std::strstr(line, " word") != nullptr;
    LOCKSTEP_RETURN_IF_ERROR(loop->Run(std::atoll(line), word, &answer));
    fmt::print("{}\n", answer);
    std::fflush(stdout);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string end, loop->End());
  fmt::print("{}\n", end);
  return OkStatus();
}

Status Main(int argc, char** argv) {
  trainer::KeepFreedMemory();
  trainer::PreferWideBlas(argv);
  const ProbeOptions options(argc, argv);
  if (options.core >= 0) probe_pin(options.core);
  trainer::ConfigureTorch(1);
  trainer::SetBlasThreads(1);
  return Serve(options);
}

}  // namespace
}  // namespace lockstep::worker

int main(int argc, char** argv) {
  return lockstep::RunProbe(lockstep::worker::Main, argc, argv);
}
