// What this machine allows, measured without lockstep or a peer:
//
//   limits_probe memory RANKS BYTES   seconds in which each of RANKS buffers is
//                                     read once and written once, at the rate
//                                     of q += p on all cores
//   limits_probe loopback BYTES       seconds in which two threads send each
//                                     other the bytes by plain send and recv
//   limits_probe cache BYTES          seconds in which two threads write them,
//                                     raise a flag, wait for the other's and
//                                     add
//   limits_probe apart                the time to write for the other processor
//                                     through the caches over that past them; 0
//                                     where it cannot be measured
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "tests/bench/peers/probe.h"
#include "worker/collective/shm/stream_copy.h"

namespace lockstep {
namespace {

constexpr int kTurns = 7;
// Of the loopback: 65,535 less the headers.
constexpr size_t kSegment = 65483;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs `make(t)` on pinned thread t, and what that returns once a turn, on all
// threads at once. The seconds of each turn, from the first start to the last
// end.
std::vector<double> RunTurns(
    int threads, int turns,
    const std::function<std::function<void()>(int)>& make) {
  std::barrier together(threads);
  std::vector<std::vector<int64_t>> starts(threads), ends(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      probe_pin(t);
      const std::function<void()> turn = make(t);
      for (int i = 0; i < turns; ++i) {
        together.arrive_and_wait();
        starts[t].push_back(probe_nanos());
        turn();
        ends[t].push_back(probe_nanos());
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  std::vector<double> seconds;
  for (int i = 0; i < turns; ++i) {
    int64_t start = INT64_MAX;
    int64_t end = 0;
    for (int t = 0; t < threads; ++t) {
      start = std::min(start, starts[t][i]);
      end = std::max(end, ends[t][i]);
    }
    seconds.push_back(static_cast<double>(end - start) * 1e-9);
  }
  return seconds;
}

// As much memory in all as the operation touches.
double MemorySeconds(int ranks, size_t bytes) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::clamp(ranks, 1, std::max(1, cores));
  const size_t each = bytes * ranks / (2 * threads);
  const size_t count = std::max<size_t>(1, each / sizeof(float));
  std::vector<std::vector<float>> q(threads), p(threads);
  const auto seconds = RunTurns(threads, kTurns, [&](int t) {
    q[t].assign(count, 1);
    p[t].assign(count, 1);
    return [to = q[t].data(), from = p[t].data(), count] {
      for (size_t i = 0; i < count; ++i) to[i] += from[i];
    };
  });
  // A turn reads two operands and writes one.
  const double rate = 3.0 * static_cast<double>(each) * threads /
                      *std::min_element(seconds.begin(), seconds.end());
  return 2.0 * ranks * static_cast<double>(bytes) / rate;
}

// Two ends of one connection, with Reno, as ours within a host.
std::array<Fd, 2> Connect() {
  const auto make = [] {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
  };
  const Fd listener = make();
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  socklen_t size = sizeof(here);
  if (bind(listener.get(), address, size) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &size) != 0) {
    return {};
  }
  Fd from = make();
  if (connect(from.get(), address, size) != 0) return {};
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

// Sends the bytes, then receives as many.
bool SendAndReceive(int fd, const char* out, char* in, size_t size, bool poll) {
  for (size_t sent = 0; sent < size;) {
    const ssize_t n = send(fd, out + sent, size - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  const int64_t deadline = probe_nanos() + 2'000'000'000;
  for (size_t got = 0; got < size;) {
    const ssize_t n = recv(fd, in + got, size - got, poll ? MSG_DONTWAIT : 0);
    if (n < 0 && errno == EAGAIN && poll && probe_nanos() < deadline) continue;
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

// Piece by piece in turn; 0 where it cannot be measured.
double ExchangeSeconds(size_t bytes, size_t piece, bool poll) {
  const int batch = bytes <= (64 << 10) ? 100 : 1;
  const std::array<Fd, 2> ends = Connect();
  std::vector<char> out[2], in[2];
  std::atomic<bool> failed = !ends[0] || !ends[1];
  std::vector<double> seconds = RunTurns(2, kTurns + 1, [&](int side) {
    out[side].assign(bytes, 1);
    in[side].assign(bytes, 0);
    return [&, side] {
      for (int i = 0; i < batch; ++i) {
        for (size_t at = 0; at < bytes && !failed; at += piece) {
          failed = failed || !SendAndReceive(ends[side].get(), &out[side][at],
                                             &in[side][at],
                                             std::min(piece, bytes - at), poll);
        }
      }
    };
  });
  // The first one warms up: windows grow.
  seconds.erase(seconds.begin());
  return failed ? 0 : Median(std::move(seconds)) / batch;
}

// The best of some sizes of a piece, waiting and polling.
double LoopbackSeconds(size_t bytes) {
  double best = 0;
  for (const size_t piece : {kSegment, 2 * kSegment, 4 * kSegment}) {
    for (const bool poll : {false, true}) {
      const double seconds = ExchangeSeconds(bytes, piece, poll);
      if (seconds > 0 && (best == 0 || seconds < best)) best = seconds;
    }
    if (piece >= bytes) break;
  }
  return best;
}

double CacheSeconds(size_t bytes) {
  constexpr int kBatch = 1000;
  const size_t count = std::max<size_t>(1, bytes / sizeof(float));
  struct alignas(128) Flag {
    std::atomic<uint32_t> sequence = 0;
  } flags[2];
  // One slot for even, one for odd exchanges: the other side reads what was
  // written until its next flag.
  std::vector<float> slots[2][2], sums[2];
  for (auto& side : slots) {
    for (auto& slot : side) slot.assign(count, 0);
  }
  uint32_t sequences[2] = {};
  const auto seconds = RunTurns(2, kTurns * 3, [&](int me) {
    sums[me].assign(count, 1);
    return [&, me] {
      float* const own = sums[me].data();
      for (int i = 0; i < kBatch; ++i) {
        const uint32_t sequence = ++sequences[me];
        float* const mine = slots[me][sequence & 1].data();
        std::copy_n(own, count, mine);
        flags[me].sequence.store(sequence, std::memory_order_release);
        while (flags[1 - me].sequence.load(std::memory_order_acquire) <
               sequence) {
        }
        const float* const theirs = slots[1 - me][sequence & 1].data();
        for (size_t k = 0; k < count; ++k) own[k] = mine[k] + theirs[k] * 0.5f;
      }
    };
  });
  return Median(seconds) / kBatch;
}

// Median nanoseconds to write a piece that the other processor reads.
double WriteNanos(void (*copy)(void*, const void*, size_t)) {
  constexpr size_t kPiece = size_t{64} << 10;
  constexpr int kSlots = 16;
  constexpr int kPieces = 96;
  std::vector<unsigned char> slots(kSlots * kPiece, 1);
  std::vector<unsigned char> data[2];
  std::atomic<int> given{0};
  std::atomic<int> taken{0};
  std::vector<double> nanos;
  RunTurns(2, 1, [&](int side) -> std::function<void()> {
    data[side].assign(kPiece, 2);
    if (side == 1) {
      return [&] {
        for (int i = 0; i < kPieces; ++i) {
          while (given.load(std::memory_order_acquire) <= i) {
          }
          std::memcpy(data[1].data(), &slots[i % kSlots * kPiece], kPiece);
          taken.store(i + 1, std::memory_order_release);
        }
      };
    }
    return [&] {
      for (int i = 0; i < kPieces; ++i) {
        while (i - taken.load(std::memory_order_acquire) >= kSlots) {
        }
        const auto start = probe_nanos();
        copy(&slots[i % kSlots * kPiece], data[0].data(), kPiece);
        // The first ones fill the slots.
        if (i >= 2 * kSlots) {
          nanos.push_back(static_cast<double>(probe_nanos() - start));
        }
        given.store(i + 1, std::memory_order_release);
      }
    };
  });
  return Median(std::move(nanos));
}

double ApartRatio() {
#if defined(__x86_64__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
      CPU_COUNT(&allowed) < 2) {
    return 0;
  }
  const double past = WriteNanos(worker::collective::shm::StreamCopy);
  return WriteNanos(worker::collective::shm::CopyBytes) / past;
#else
  return 0;
#endif
}

int Main(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) { return std::stoull(words.at(i)); };
  double value = -1;
  if (words.size() == 3 && words[0] == "memory") {
    value = MemorySeconds(static_cast<int>(number(1)), number(2));
  } else if (words.size() == 2 && words[0] == "loopback") {
    value = LoopbackSeconds(number(1));
  } else if (words.size() == 2 && words[0] == "cache") {
    value = CacheSeconds(number(1));
  } else if (words.size() == 1 && words[0] == "apart") {
    value = ApartRatio();
  }
  if (value < 0) {
    fmt::print(stderr, "usage: limits_probe memory|loopback|cache|apart ...\n");
    return 2;
  }
  fmt::print("{:.9g}\n", value);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(std::vector<std::string>(argv + 1, argv + argc));
}
