// Fits y = 3x by least squares, in as many ranks as there are.
#include <lockstep/runtime.h>

#include <cmath>
#include <cstdio>

namespace rt = lockstep::runtime;

constexpr int kSteps = 50;

static absl::Status Train(rt::Session* session) {
  absl::Status status = session->Form({{"model", "line"}});
  if (!status.ok()) return status;
  double sum[] = {1};
  if (status = session->AllReduceSum(sum); !status.ok()) return status;
  if (sum[0] != session->world_size()) {
    return absl::InternalError("the sum of ones is not the world's size");
  }
  auto made = session->MakeReducer({{"slope", 1}}, {.total_steps = kSteps});
  if (!made.ok()) return made.status();
  rt::Reducer& reducer = **made;
  float slope = 0;
  for (bool stop = false; !stop && reducer.committed() < kSteps;) {
    session->Enter(rt::Phase::kCompute);
    // Each rank has a sample of its own.
    const float x = 1 + static_cast<float>(session->rank());
    const float error = slope * x - 3 * x;
    reducer.gradient(0)[0] =
        2 * error * x / static_cast<float>(session->world_size());
    if (status = reducer.Ready(0); !status.ok()) return status;
    const auto result =
        reducer.Finish({.samples = 1, .loss_sum = error * error});
    if (!result.ok()) return result.status();
    if (result->samples != session->world_size()) {
      return absl::InternalError("samples were lost");
    }
    session->Enter(rt::Phase::kOptimizer);
    if (result->apply) slope -= 0.1f * reducer.gradient(0)[0];
    const auto orders = reducer.Commit();
    if (!orders.ok()) return orders.status();
    stop = orders->stop;
    reducer.ZeroGradients();
  }
  session->Report("slope", slope);
  if (std::fabs(slope - 3) > 0.01) return absl::InternalError("not learnt");
  std::printf("rank %d of %d: slope %.3f after %d steps\n", session->rank(),
              session->world_size(), slope,
              static_cast<int>(reducer.committed()));
  return absl::OkStatus();
}

int main() {
  auto session = rt::Session::Join({});
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    return 1;
  }
  const absl::Status status = Train(session->get());
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return (*session)->Leave(status);
}
