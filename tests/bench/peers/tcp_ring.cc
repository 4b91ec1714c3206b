// A plain TCP ring as the peer: what a program does that knows the textbook.
//
//   tcp_ring --store DIR --address IP and what probe.h says
//
// Reduce-scatter, then all-gather; each rank sends to the next and receives
// from the one before it at the same time, over one connection each, adding up
// as bytes come in.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/bench/peers/probe.h"

namespace {

constexpr size_t kPiece = 64 << 10;

void Check(bool ok, const char* what) {
  if (ok) return;
  perror(what);
  _exit(1);
}

class Ring {
 public:
  Ring(const std::string& dir, const char* address, int rank, int ranks,
       size_t largest)
      : rank_(rank),
        ranks_(ranks),
        data_(probe_allocate(largest)),
        piece_(kPiece / sizeof(float)) {
    Connect(dir, address);
  }

  float* data() { return data_; }

  const float* Reduce(size_t count) {
    for (int step = 0; step < ranks_ - 1; ++step) {
      Exchange(count, rank_ - step, true);
    }
    for (int step = 0; step < ranks_ - 1; ++step) {
      Exchange(count, rank_ + 1 - step, false);
    }
    return data_;
  }

 private:
  void Connect(const std::string& dir, const char* address) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    inet_pton(AF_INET, address, &here.sin_addr);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(here);
    Check(bind(listener, reinterpret_cast<sockaddr*>(&here), size) == 0 &&
              listen(listener, 1) == 0 &&
              getsockname(listener, reinterpret_cast<sockaddr*>(&here),
                          &size) == 0,
          "listening");
    const std::string own = dir + "/" + std::to_string(rank_);
    std::ofstream(own + ".new", std::ios::binary)
        .write(reinterpret_cast<char*>(&here), sizeof(here));
    Check(rename((own + ".new").c_str(), own.c_str()) == 0, own.c_str());
    const std::string next = dir + "/" + std::to_string((rank_ + 1) % ranks_);
    sockaddr_in there{};
    for (;;) {  // Until the watchdog.
      std::ifstream file(next, std::ios::binary);
      if (file.read(reinterpret_cast<char*>(&there), sizeof(there))) break;
      usleep(1000);
    }
    next_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Check(
        connect(next_, reinterpret_cast<sockaddr*>(&there), sizeof(there)) == 0,
        "connecting");
    previous_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    Check(previous_ >= 0, "accepting");
    close(listener);
    const int on = 1;
    for (const int fd : {next_, previous_}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    }
  }

  // Sends part `part` and receives the one before it.
  void Exchange(size_t count, int part, bool add) {
    const auto [out, out_size] = Part(count, part);
    const auto [in, in_size] = Part(count, part - 1);
    const char* const from = reinterpret_cast<char*>(data_ + out);
    size_t sent = 0;
    size_t received = 0;
    while (sent < out_size || received < in_size) {
      bool moved = false;
      if (sent < out_size) moved |= Send(from, out_size, &sent);
      if (received < in_size) {
        moved |= Receive(data_ + in, in_size, add, &received);
      }
      if (!moved) WaitFor(sent < out_size, received < in_size);
    }
  }

  // Where part `part` begins, and its bytes.
  std::pair<size_t, size_t> Part(size_t count, int part) const {
    const size_t index = static_cast<size_t>((part + 2 * ranks_) % ranks_);
    const size_t begin = count * index / ranks_;
    const size_t end = count * (index + 1) / ranks_;
    return {begin, (end - begin) * sizeof(float)};
  }

  bool Send(const char* from, size_t size, size_t* sent) {
    const ssize_t n = send(next_, from + *sent,
                           std::min(size - *sent, 4 * kPiece), MSG_NOSIGNAL);
    if (n < 0) {
      Check(errno == EAGAIN, "sending");
      return false;
    }
    *sent += static_cast<size_t>(n);
    return true;
  }

  bool Receive(float* to, size_t size, bool add, size_t* received) {
    // Bytes up to a whole number of floats are kept for the next time.
    char* const piece = reinterpret_cast<char*>(piece_.data());
    const size_t left = size - *received;
    const ssize_t n =
        add ? recv(previous_, piece + kept_, std::min(kPiece, left) - kept_, 0)
            : recv(previous_, reinterpret_cast<char*>(to) + *received, left, 0);
    if (n < 0) {
      Check(errno == EAGAIN, "receiving");
      return false;
    }
    Check(n > 0, "a rank is gone");
    if (!add) {
      *received += static_cast<size_t>(n);
      return true;
    }
    const size_t have = kept_ + static_cast<size_t>(n);
    const size_t floats = have / sizeof(float);
    float* const at = to + *received / sizeof(float);
    for (size_t i = 0; i < floats; ++i) at[i] += piece_[i];
    *received += floats * sizeof(float);
    kept_ = have % sizeof(float);
    std::copy_n(piece + floats * sizeof(float), kept_, piece);
    return true;
  }

  void WaitFor(bool sends, bool receives) {
    pollfd fds[2] = {
        {sends ? next_ : -1, POLLOUT, 0},
        {receives ? previous_ : -1, POLLIN, 0},
    };
    poll(fds, 2, 1000);
  }

  const int rank_;
  const int ranks_;
  float* const data_;
  std::vector<float> piece_;
  size_t kept_ = 0;
  int next_ = -1;
  int previous_ = -1;
};

const float* Reduce(void* self, const probe_case* c) {
  return static_cast<Ring*>(self)->Reduce(c->count);
}

}  // namespace

int main(int argc, char** argv) {
  probe p;
  const int code = probe_begin(&p, argc, argv);
  if (code != 0) return code;
  Ring ring(probe_argument(argc, argv, "--store", "."),
            probe_argument(argc, argv, "--address", "127.0.0.1"), p.rank,
            p.ranks, probe_largest(&p));
  return ring.data() == nullptr ? 1 : probe_run(&p, ring.data(), Reduce, &ring);
}
