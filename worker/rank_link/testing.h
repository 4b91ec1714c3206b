// For tests: a worker daemon that is only its rank link. It answers rendezvous
// from a map, sends Go when all expected ranks have joined, and records the
// messages that it receives. A thread of its own; all methods from any thread.
#ifndef LOCKSTEP_WORKER_RANK_LINK_TESTING_H_
#define LOCKSTEP_WORKER_RANK_LINK_TESTING_H_

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/rank_link/client.h"
#include "worker/rank_link/server.h"

namespace lockstep::worker::rank_link {

inline MonoTime In(Duration duration) { return MonotonicNow() + duration; }

// Removed with its contents.
class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class TestDaemon : private RankLinkHandler {
 public:
  explicit TestDaemon(std::string path) : path_(std::move(path)) { Start(); }
  // Without Start: for ranks that may come before they are expected.
  TestDaemon(std::string path, std::nullptr_t) : path_(std::move(path)) {}
  ~TestDaemon() override { Stop(); }

  const std::string& path() const { return path_; }

  // A restart: forgets all that is not written down by the test.
  void Start() {
    StatusOr<std::unique_ptr<RankLinkServer>> server =
        RankLinkServer::Listen(path_, this);
    if (!server.ok()) std::abort();
    {
      MutexLock lock(&mu_);
      server_ = *std::move(server);
      for (const auto& [key, expected] : expected_) {
        server_->Expect(key, expected.first, ::getuid(), expected.second);
      }
      stopping_ = false;
    }
    thread_ = std::thread([this] { Loop(); });
  }
  void Stop() {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
    }
    if (thread_.joinable()) thread_.join();
    MutexLock lock(&mu_);
    server_.reset();
  }

  void Expect(const RankKey& key, const std::string& nonce,
              const v1::RankWelcome& welcome) {
    MutexLock lock(&mu_);
    expected_[key] = {nonce, welcome};
    if (server_) server_->Expect(key, nonce, ::getuid(), welcome);
  }
  void With(const std::function<void(RankLinkServer*)>& use) {
    MutexLock lock(&mu_);
    use(server_.get());
  }

  // Waits until `holds`, which is called under the lock; false after 30 s.
  bool WaitFor(const std::function<bool()>& holds) {
    MutexLock lock(&mu_);
    const MonoTime deadline = In(std::chrono::seconds(30));
    while (!holds()) {
      if (!changed_.WaitUntil(&mu_, deadline)) return holds();
    }
    return true;
  }

  // The messages received; read them inside WaitFor or With only.
  int hellos = 0;
  int disconnects = 0;
  std::set<RankKey> joined;
  // The newest one's recovery and whether it is recoverable.
  std::map<RankKey, std::pair<uint32_t, bool>> joined_as;
  std::vector<std::pair<RankKey, v1::RankReport>> reports;

 private:
  void Loop() {
    while (true) {
      pollfd waited{-1, POLLIN, 0};
      {
        MutexLock lock(&mu_);
        if (stopping_) return;
        waited.fd = server_->fd();
      }
      ::poll(&waited, 1, 5);
      MutexLock lock(&mu_);
      server_->Dispatch();
      changed_.NotifyAll();
    }
  }

  // Called by Dispatch, under the lock.
  void OnHello(const RankKey&) override { ++hellos; }
  void OnDisconnect(const RankKey&) override { ++disconnects; }
  void OnPut(const RankKey&, const std::string& name,
             const std::string& value) override {
    // The first value counts.
    const std::string& kept = values_.emplace(name, value).first->second;
    for (const RankKey& key : waiting_[name]) {
      server_->SendValue(key, name, kept);
    }
    waiting_.erase(name);
  }
  void OnGet(const RankKey& key, const std::string& name) override {
    auto it = values_.find(name);
    if (it == values_.end()) {
      waiting_[name].insert(key);
    } else {
      server_->SendValue(key, name, it->second);
    }
  }
  void OnJoined(const RankKey& key, const v1::RankJoined& how) override {
    joined.insert(key);
    joined_as[key] = {how.recovery(), how.recoverable()};
    // No second Go.
    if (how.recovery() > 0) return;
    if (joined.size() < expected_.size()) return;
    for (const RankKey& rank : joined) server_->SendGo(rank);
  }
  void OnReport(const RankKey& key, const v1::RankReport& report) override {
    reports.emplace_back(key, report);
  }

  const std::string path_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ = false;
  std::unique_ptr<RankLinkServer> server_;
  std::map<RankKey, std::pair<std::string, v1::RankWelcome>> expected_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<RankKey>> waiting_;
  std::thread thread_;
};

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_TESTING_H_
