#include "tests/bench/ceilings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "tests/bench/peers/probe.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kTurns = 7;
// Of the loopback: 65,535 less the headers.
constexpr size_t kSegment = 65483;

// With Reno, as ours within a host; an accepted one has its listener's.
Fd NewSocket() {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  return fd;
}

// One connection's two ends.
std::array<Fd, 2> Connect() {
  const Fd listener(NewSocket());
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  socklen_t size = sizeof(here);
  if (!listener || bind(listener.get(), address, size) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &size) != 0) {
    return {};
  }
  Fd from(NewSocket());
  if (!from || connect(from.get(), address, size) != 0) return {};
  Fd to(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  const timeval limit = {.tv_sec = 2, .tv_usec = 0};
  for (const int fd : {from.get(), to.get()}) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // A piece that fits no buffer ends so.
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  return {std::move(from), std::move(to)};
}

bool SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool ReceiveAll(int fd, char* data, size_t size, bool poll) {
  const int64_t deadline = probe_nanos() + 2'000'000'000;
  while (size > 0) {
    const ssize_t n = recv(fd, data, size, poll ? MSG_DONTWAIT : 0);
    if (n < 0 && errno == EAGAIN && poll && probe_nanos() < deadline) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

struct Span {
  int64_t start = 0;
  int64_t end = 0;
};

// From the first one's start to the last one's end.
double SecondsOf(const Span& a, const Span& b) {
  return static_cast<double>(std::max(a.end, b.end) -
                             std::min(a.start, b.start)) *
         1e-9;
}

// Of `turns`, each `batch` exchanges of `bytes` in pieces of `piece`.
std::vector<double> Exchange(size_t bytes, size_t piece, bool poll, int batch) {
  const std::array<Fd, 2> ends = Connect();
  if (!ends[0] || !ends[1]) return {};
  std::barrier together(2);
  std::array<std::vector<Span>, 2> spans;
  std::atomic<bool> failed = false;
  const auto run = [&](int side) {
    probe_pin(side);
    const int fd = ends[static_cast<size_t>(side)].get();
    std::vector<char> out(bytes, 1);
    std::vector<char> in(bytes, 0);
    const auto once = [&] {
      for (size_t at = 0; at < bytes; at += piece) {
        const size_t size = std::min(piece, bytes - at);
        if (!SendAll(fd, out.data() + at, size) ||
            !ReceiveAll(fd, in.data() + at, size, poll)) {
          failed = true;
          return;
        }
      }
    };
    for (int turn = 0; turn < kTurns + 1; ++turn) {
      together.arrive_and_wait();
      Span span = {probe_nanos(), 0};
      for (int i = 0; i < batch && !failed; ++i) once();
      span.end = probe_nanos();
      // The first one warms up: windows grow.
      if (turn > 0) spans[static_cast<size_t>(side)].push_back(span);
    }
  };
  std::thread other(run, 1);
  std::thread first(run, 0);  // not this thread, which is not pinned
  first.join();
  other.join();
  if (failed) return {};
  std::vector<double> seconds;
  for (size_t i = 0; i < spans[0].size(); ++i) {
    seconds.push_back(SecondsOf(spans[0][i], spans[1][i]) / batch);
  }
  return seconds;
}

struct alignas(128) Line {
  std::atomic<uint32_t> sequence = 0;
};

}  // namespace

double LoopbackExchangeSeconds(size_t bytes) {
  const int batch = bytes <= (64 << 10) ? 100 : 1;
  double best = 0;
  for (const size_t piece : {kSegment, 2 * kSegment, 4 * kSegment}) {
    for (const bool poll : {false, true}) {
      const auto seconds = Exchange(bytes, piece, poll, batch);
      if (seconds.empty()) continue;
      const double median = Percentile(seconds, 0.5);
      if (best == 0 || median < best) best = median;
    }
    if (piece >= bytes) break;
  }
  return best;
}

double CacheExchangeSeconds(size_t bytes) {
  constexpr int kBatch = 1000;
  const size_t count = std::max<size_t>(1, bytes / sizeof(float));
  std::barrier together(2);
  Line flags[2];
  // One for even, one for odd exchanges: what was written is read by the other
  // until its next flag.
  std::vector<float> slots[2][2];
  for (auto& side : slots) {
    for (auto& slot : side) slot.assign(count, 0);
  }
  std::array<std::vector<Span>, 2> spans;
  const auto run = [&](int side) {
    probe_pin(side);
    const auto me = static_cast<size_t>(side);
    std::vector<float> own(count, 1);
    uint32_t sequence = 0;
    for (int turn = 0; turn < kTurns * 3; ++turn) {
      together.arrive_and_wait();
      Span span = {probe_nanos(), 0};
      for (int i = 0; i < kBatch; ++i) {
        ++sequence;
        float* const mine = slots[me][sequence & 1].data();
        std::copy_n(own.data(), count, mine);
        flags[me].sequence.store(sequence, std::memory_order_release);
        while (flags[1 - me].sequence.load(std::memory_order_acquire) <
               sequence) {
        }
        const float* const theirs = slots[1 - me][sequence & 1].data();
        for (size_t k = 0; k < count; ++k) own[k] = mine[k] + theirs[k] * 0.5f;
      }
      span.end = probe_nanos();
      spans[me].push_back(span);
    }
    // Not left out by who finds that nobody looks.
    if (!(own[count / 2] > 0)) std::abort();
  };
  std::thread first(run, 0);
  std::thread other(run, 1);
  first.join();
  other.join();
  std::vector<double> seconds;
  for (size_t i = 0; i < spans[0].size(); ++i) {
    seconds.push_back(SecondsOf(spans[0][i], spans[1][i]) / kBatch);
  }
  return Percentile(seconds, 0.5);
}

}  // namespace lockstep
