#include "sdk/mpi/store.h"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "sdk/mpi/wire.h"

namespace lockstep::mpi {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// For the bytes of one request or answer, once the peer is connected.
constexpr auto kTransfer = std::chrono::seconds(10);
constexpr auto kMostWait = std::chrono::hours(1);
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr int kMostConnections = 4096;

// The threads of a library take no signals of its program.
template <typename Function>
void Detach(Function function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(std::move(function)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

class Server {
 public:
  Server(Fd listener, std::string job)
      : listener_(std::move(listener)), job_(std::move(job)) {}

  MemoryStore& store() { return store_; }

  void Accept() {
    for (;;) {
      Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) {
        // Out of descriptors, for example: the peers ask again.
        std::this_thread::sleep_for(kPause);
      } else if (connections_.fetch_add(1) >= kMostConnections) {
        connections_.fetch_sub(1);
      } else {
        Detach([this, held = fd.Release()] {
          Serve(Fd(held));
          connections_.fetch_sub(1);
        });
      }
    }
  }

 private:
  void Serve(const Fd& fd) {
    StoreRequest request;
    if (!Receive(fd, &request, steady_clock::now() + kTransfer)) return;
    (void)Send(fd, Decide(request), steady_clock::now() + kTransfer);
  }

  StoreAnswer Decide(const StoreRequest& request) {
    StoreAnswer answer;
    lockstep_error error{};
    if (request.job != job_) {
      answer.code = Fail(&error, LOCKSTEP_FAILED_PRECONDITION,
                         "rank 0 is of \"%s\", and this rank of \"%s\"",
                         job_.c_str(), request.job.c_str());
    } else if (request.verb == Verb::kPut) {
      answer.code = store_.Put(request.key, request.value, &error);
    } else if (request.verb == Verb::kGet) {
      const auto wait = std::clamp(nanoseconds(request.timeout_ns),
                                   nanoseconds::zero(), nanoseconds(kMostWait));
      answer.code = store_.Get(request.key, steady_clock::now() + wait,
                               &answer.text, &error);
    }
    if (answer.code != LOCKSTEP_OK) answer.text = error.message;
    return answer;
  }

  const Fd listener_;
  const std::string job_;
  MemoryStore store_;
  std::atomic<int> connections_ = 0;
};

// Rank 0's own: the store of a server that lives as long as the process.
class ServedStore final : public Store {
 public:
  explicit ServedStore(Server* server) : store_(server->store()) {}
  int32_t Put(const std::string& key, std::string_view value,
              lockstep_error* error) override {
    return store_.Put(key, value, error);
  }
  int32_t Get(const std::string& key, Deadline deadline, std::string* value,
              lockstep_error* error) override {
    return store_.Get(key, deadline, value, error);
  }

 private:
  MemoryStore& store_;
};

class RemoteStore final : public Store {
 public:
  explicit RemoteStore(const Place& place)
      : host_(place.host), port_(place.port), job_(place.job) {}

  // Asks again while rank 0 does not listen yet.
  int32_t Hello(Deadline deadline, lockstep_error* error) {
    StoreAnswer answer;
    for (;;) {
      const int32_t code = Ask({.verb = Verb::kHello,
                                .job = job_,
                                .key = {},
                                .value = {},
                                .timeout_ns = 0},
                               deadline, &answer, error);
      if (code != LOCKSTEP_UNAVAILABLE || steady_clock::now() >= deadline) {
        return code;
      }
      std::this_thread::sleep_for(kPause);
    }
  }
  int32_t Put(const std::string& key, std::string_view value,
              lockstep_error* error) override {
    StoreAnswer answer;
    return Ask({.verb = Verb::kPut,
                .job = job_,
                .key = key,
                .value = std::string(value),
                .timeout_ns = 0},
               steady_clock::now() + kTransfer, &answer, error);
  }
  int32_t Get(const std::string& key, Deadline deadline, std::string* value,
              lockstep_error* error) override {
    StoreAnswer answer;
    const auto left = std::max(nanoseconds::zero(),
                               nanoseconds(deadline - steady_clock::now()));
    const int32_t code = Ask({.verb = Verb::kGet,
                              .job = job_,
                              .key = key,
                              .value = {},
                              .timeout_ns = left.count()},
                             deadline + kTransfer, &answer, error);
    *value = std::move(answer.text);
    return code;
  }

 private:
  int32_t Ask(const StoreRequest& request, Deadline deadline,
              StoreAnswer* answer, lockstep_error* error) {
    int number = 0;
    const Fd fd = Connect(host_, port_, deadline, &number);
    if (!fd) {
      return Fail(error, LOCKSTEP_UNAVAILABLE,
                  "rank 0 is not reached at %s port %s: %s", host_.c_str(),
                  port_.c_str(), std::strerror(number));
    }
    if (!Send(fd, request, deadline) || !Receive(fd, answer, deadline)) {
      return Fail(error, LOCKSTEP_UNAVAILABLE,
                  "what listens at %s port %s does not answer as rank 0",
                  host_.c_str(), port_.c_str());
    }
    if (answer->code == LOCKSTEP_OK) return LOCKSTEP_OK;
    return Fail(error, answer->code, "%s", answer->text.c_str());
  }

  const std::string host_;
  const std::string port_;
  const std::string job_;
};

}  // namespace

int32_t MemoryStore::Put(const std::string& key, std::string_view value,
                         lockstep_error* error) {
  const std::lock_guard lock(mutex_);
  if (!values_.try_emplace(key, value).second) {
    return Fail(error, LOCKSTEP_ALREADY_EXISTS,
                "the key %s has been written before", key.c_str());
  }
  added_.notify_all();
  return LOCKSTEP_OK;
}

int32_t MemoryStore::Get(const std::string& key, Deadline deadline,
                         std::string* value, lockstep_error* error) {
  std::unique_lock lock(mutex_);
  if (!added_.wait_until(lock, deadline,
                         [&] { return values_.contains(key); })) {
    return Fail(error, LOCKSTEP_DEADLINE_EXCEEDED,
                "no rank wrote the key %s in time", key.c_str());
  }
  *value = values_.at(key);
  return LOCKSTEP_OK;
}

int32_t ServeStore(const Place& place, std::unique_ptr<Store>* store,
                   lockstep_error* error) {
  int number = 0;
  Fd listener = Listen(place.host, place.port, &number);
  if (!listener) {
    return Fail(error, LOCKSTEP_UNAVAILABLE,
                "rank 0 cannot listen at MASTER_ADDR %s, MASTER_PORT %s: %s",
                place.host.c_str(), place.port.c_str(), std::strerror(number));
  }
  auto* server = new Server(std::move(listener), place.job);
  Detach([server] { server->Accept(); });
  *store = std::make_unique<ServedStore>(server);
  return LOCKSTEP_OK;
}

int32_t ReachStore(const Place& place, Deadline deadline,
                   std::unique_ptr<Store>* store, lockstep_error* error) {
  auto remote = std::make_unique<RemoteStore>(place);
  const int32_t code = remote->Hello(deadline, error);
  if (code == LOCKSTEP_OK) *store = std::move(remote);
  return code;
}

}  // namespace lockstep::mpi
