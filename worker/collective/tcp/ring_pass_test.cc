// What a rank sends on before the whole of a piece has come, seen from its
// neighbours, whom the test plays.
#include "worker/collective/tcp/ring_pass.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "worker/collective/tcp/combine.h"
#include "worker/collective/tcp/wire.h"

namespace lockstep::worker::collective::tcp {
namespace {

constexpr Duration kPassLimit = std::chrono::seconds(30);

// Both ends of a connection: the rank's, and its neighbour's.
struct Ends {
  Fd rank;
  Fd neighbour;
};

Ends Connect() {
  int fds[2];
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
      0);
  return {Fd(fds[0]), Fd(fds[1])};
}

void SendAll(const Fd& fd, const void* data, size_t bytes) {
  ASSERT_EQ(send(fd.get(), data, bytes, MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes));
}

// Fewer than `bytes` where no more come.
std::vector<char> ReceiveBytes(const Fd& fd, size_t bytes) {
  std::vector<char> all(bytes);
  size_t got = 0;
  pollfd poll_fd = {.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (got < bytes && poll(&poll_fd, 1, 10'000) == 1) {
    const ssize_t n = recv(fd.get(), all.data() + got, bytes - got, 0);
    if (n <= 0) break;
    got += n;
  }
  all.resize(got);
  return all;
}

// Rank 0 of 3, whose vector of 3 * kPart floats is one piece for each part.
class RingPassTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kPart = 4096;

  RingPassTest()
      : before_(Connect()), next_(Connect()), values_(3 * kPart, 1.0f) {
    std::vector<Connection> connections;
    connections.push_back({1, 0, std::move(next_.rank)});
    connections.push_back({2, 0, std::move(before_.rank)});
    mesh_.emplace(0, 3, std::move(connections), false);
  }

  Ends before_;
  Ends next_;
  std::vector<float> values_;
  std::optional<Mesh> mesh_;
};

TEST_P(RingPassTest, SendsOnWhatHasComeOfAPiece) {
  const bool reduces = GetParam();
  const Buffer buffer = {.data = values_.data(),
                         .bytes = values_.size() * sizeof(float),
                         .kind = MemoryKind::kHost};
  const Operation operation = {
      .kind = reduces ? CollectiveKind::kAllReduce : CollectiveKind::kAllGather,
      .slice = {&buffer, 0, values_.size(), DataType::kFloat32}};
  const Combiner combiner(DataType::kFloat32, ReduceOp::kSum, 3);
  const Vector vector = {reinterpret_cast<char*>(values_.data()),
                         values_.size(), sizeof(float), &combiner};
  const Plan plan = MakePlan(3, HostSharing::kAll);
  std::vector<char> scratch(plan.chunk);
  mesh_->Begin(operation, std::chrono::steady_clock::now() + kPassLimit);
  RingPass pass(&*mesh_, plan, vector, scratch.data(), reduces, true);
  Status status;
  std::thread rank([&] { status = pass.Run(); });

  // A line more than half of it, and some bytes of the next one, which wait.
  const size_t come = kPart / 2 + 16;
  const Header head = MakeHeader(operation, 1);
  const std::vector<float> piece(come + 3, 2.0f);
  SendAll(before_.neighbour, &head, sizeof(head));
  SendAll(before_.neighbour, piece.data(), piece.size() * sizeof(float));

  const size_t expected = sizeof(head) + (kPart + come) * sizeof(float);
  const std::vector<char> sent = ReceiveBytes(next_.neighbour, expected);
  EXPECT_EQ(sent.size(), expected);
  pollfd more = {.fd = next_.neighbour.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&more, 1, 20), 0) << "what has not been used was sent";
  for (size_t i = 0; sent.size() == expected && i < come; ++i) {
    float value = 0;
    std::memcpy(&value, &sent[sizeof(head) + (kPart + i) * sizeof(float)],
                sizeof(value));
    ASSERT_EQ(value, reduces ? 3.0f : 2.0f) << i;
  }
  mesh_->links()->Cut();
  rank.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
}

INSTANTIATE_TEST_SUITE_P(, RingPassTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Reducing" : "Gathering";
                         });

}  // namespace
}  // namespace lockstep::worker::collective::tcp
