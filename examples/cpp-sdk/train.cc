// Fits y = 3x + 1 by gradient descent, in as many ranks as the job has.
//
//   train [STEPS [MILLISECONDS]]
//
// Makes so many steps, and waits so long in each of them: time to kill a rank.
#include <lockstep/runtime.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace rt = lockstep::runtime;

namespace {

constexpr int64_t kSamples = 8;  // Of each rank in a step.
constexpr float kRate = 0.2F;

struct Options {
  int64_t steps = 100;
  std::chrono::milliseconds pause{0};
};

struct State {
  int64_t step = 0;
  std::array<float, 2> line = {0, 0};  // Slope and offset.
};

// The chief keeps the state: it is the same on all ranks.
std::string PathOf(const rt::Session& session) {
  return session.output_directory() + "/line.state";
}

State Load(const std::string& path) {
  State state;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&state), sizeof(state))) return {};
  return state;
}

// Nothing sees half a checkpoint: it has its name once it is published.
bool Save(const std::string& path, const State& state) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&state), sizeof(state));
  file.close();
  return !file.fail();
}

absl::StatusOr<State> Restore(rt::Session* session) {
  const State own = session->chief() ? Load(PathOf(*session)) : State();
  std::string bytes(reinterpret_cast<const char*>(&own), sizeof(own));
  if (auto status = session->Broadcast(&bytes); !status.ok()) return status;
  State state;
  std::memcpy(&state, bytes.data(), sizeof(state));
  if (state.step > 0) {
    session->ReportResumed(state.step);
    std::printf("rank %d resumed at step %d\n", session->rank(),
                static_cast<int>(state.step));
  }
  return state;
}

// Adds a shard's part of the gradient; returns the sum of its losses. Each rank
// has one shard, and while ranks are away some of theirs.
double Backward(const rt::Session& session, int shard, const State& state,
                std::span<float> gradient) {
  double losses = 0;
  const auto all = static_cast<float>(kSamples * session.world_size());
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto number = static_cast<float>(shard * kSamples + i);
    const float x = 2 * number / all - 1;
    const float error = state.line[0] * x + state.line[1] - (3 * x + 1);
    gradient[0] += 2 * error * x / all;
    gradient[1] += 2 * error / all;
    losses += static_cast<double>(error) * static_cast<double>(error);
  }
  return losses;
}

// lockstep compares it now and then: equal states on all ranks.
uint64_t Hash(const State& state) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(&state), sizeof(state)});
}

// Saves when it is told to, and publishes what all ranks have agreed on.
absl::Status Checkpoint(rt::Session* session, rt::Reducer* reducer,
                        const State& state, const rt::StepOrders& orders) {
  const std::string path = PathOf(*session);
  if (orders.settled && session->chief()) {
    std::error_code error;
    if (orders.settled->complete) {
      std::filesystem::rename(path + ".new", path, error);
      // Without the new file, a chief that was lost then has published it.
      if (error && error != std::errc::no_such_file_or_directory) {
        return absl::UnavailableError(path + ": " + error.message());
      }
      session->ReportCheckpoint(orders.settled->order, path, sizeof(State));
    } else {
      std::filesystem::remove(path + ".new", error);
    }
  }
  if (!orders.checkpoint) return absl::OkStatus();
  session->Enter(rt::Phase::kCheckpoint);
  const bool saved = !session->chief() || Save(path + ".new", state);
  return reducer->Vote(orders.checkpoint->id, saved);
}

// All steps from the state on.
absl::Status Steps(const Options& options, rt::Session* session, rt::Reducer* r,
                   State* of, bool stop) {
  rt::Reducer& reducer = *r;
  State& state = *of;
  while (!stop && reducer.committed() < options.steps) {
    session->Enter(rt::Phase::kCompute);
    std::this_thread::sleep_for(options.pause);
    if (auto status = session->CheckMembership(); !status.ok()) return status;
    double losses = 0;
    for (const int shard : session->shards()) {
      losses = Backward(*session, shard, state, reducer.gradient(0));
      if (shard == session->shards().back()) break;
      auto status = reducer.NextShard(kSamples, losses);
      if (!status.ok()) return status;
      reducer.ZeroGradients();
    }
    std::optional<uint64_t> hash;
    if (reducer.wants_state_hash()) hash = Hash(state);
    const auto result = reducer.Finish(
        {.samples = kSamples, .loss_sum = losses, .state_hash = hash});
    if (!result.ok()) return result.status();
    session->Enter(rt::Phase::kOptimizer);
    for (size_t i = 0; result->apply && i < state.line.size(); ++i) {
      state.line[i] -= kRate * reducer.gradient(0)[i];
    }
    const auto orders = reducer.Commit();
    if (!orders.ok()) return orders.status();
    state.step = reducer.committed();
    stop = orders->stop;
    auto status = Checkpoint(session, &reducer, state, *orders);
    if (!status.ok()) return status;
    reducer.ZeroGradients();
  }
  do {
    const auto orders = reducer.Settle();
    if (!orders.ok()) return orders.status();
    auto status = Checkpoint(session, &reducer, state, *orders);
    if (!status.ok()) return status;
  } while (reducer.checkpoint_in_flight());
  return absl::OkStatus();
}

absl::Status Train(const Options& options, rt::Session* session) {
  if (auto status = session->Form({{"model", "line"}}); !status.ok()) {
    return status;
  }
  // The replacement of a lost rank gets its state from the others.
  bool recover = session->recovering();
  State state;
  if (!recover) {
    auto restored = Restore(session);
    if (!restored.ok()) return restored.status();
    state = *restored;
  }
  auto made = session->MakeReducer(
      {{"line", state.line.size()}},
      {.start_step = state.step, .total_steps = options.steps});
  if (!made.ok()) return made.status();
  rt::Reducer& reducer = **made;
  absl::Status status;
  do {
    rt::StepOrders orders;
    if (recover) {
      auto recovered = session->Recover(
          status, &reducer,
          {.memory = {std::as_writable_bytes(std::span(&state, 1))}});
      if (!recovered.ok()) return recovered.status();
      orders = recovered->orders;
      status = Checkpoint(session, &reducer, state, orders);
      if (!status.ok()) return status;
    }
    status = Steps(options, session, &reducer, &state, orders.stop);
    recover = session->CanRecover(status);
  } while (recover);
  if (!status.ok()) return status;
  session->Report("slope", state.line[0]);
  std::printf("rank %d of %d: y = %.2fx + %.2f after %d steps\n",
              session->rank(), session->world_size(),
              static_cast<double>(state.line[0]),
              static_cast<double>(state.line[1]), static_cast<int>(state.step));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc > 1) options.steps = std::atoll(argv[1]);
  if (argc > 2) options.pause = std::chrono::milliseconds(std::atoll(argv[2]));
  auto session = rt::Session::Join(
      {.recoverable = true, .elastic = true, .local_output_directory = "."});
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    return 1;
  }
  const absl::Status status = Train(options, session->get());
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return (*session)->Leave(status);
}
