// For tests: the orders of a few ranks, without processes, links or time.
#ifndef LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_TEST_UTIL_H_
#define LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_TEST_UTIL_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/runtime/order_book.h"
#include "worker/runtime/order_text.h"

namespace lockstep::worker::runtime {

// The coordinator and the daemons of a few ranks: keys are written once.
// Messages may be late and in any order. A rank whose link is broken sends and
// receives nothing until it is whole again, and then repeats all, as links do.
class OrderCluster {
 public:
  OrderCluster(int ranks, unsigned seed, Duration latency)
      : random_(seed), latency_(latency) {
    for (int i = 0; i < ranks; ++i) {
      ranks_.push_back(std::make_unique<Rank>(Rank{
          .book = OrderBook({i, ranks, "t" + std::to_string(i)}),
      }));
    }
  }

  void Join(int rank) {
    Do(rank, [](OrderBook* book, OrderOutput* out) { book->Start(out); });
  }
  void JoinAll() {
    for (int i = 0; i < size(); ++i) Join(i);
  }
  // Another process of the rank.
  void Rejoin(int rank) {
    ranks_[rank] = std::make_unique<Rank>(Rank{
        .book = OrderBook({rank, size(), "u" + std::to_string(++joins_)})});
    Join(rank);
  }
  void Direct(uint32_t id, OrderKind kind) {
    Do(0, [&](OrderBook* book, OrderOutput* out) {
      book->OnDirective(id, kind, now_, out);
    });
  }
  void Step(int rank, int64_t step) {
    ranks_[rank]->step = step;
    Do(rank, [&](OrderBook* book, OrderOutput* out) {
      book->OnStep(step, now_, out);
    });
  }
  void StepAll(int64_t step) {
    for (int i = 0; i < size(); ++i) Step(i, step);
  }
  OrderAnswer Ask(int rank, OrderKind question) {
    OrderAnswer answer = OrderAnswer::kNo;
    Do(rank, [&](OrderBook* book, OrderOutput* out) {
      answer = book->Ask(question, now_, out);
    });
    return answer;
  }
  void AskAll() {
    for (int i = 0; i < size(); ++i) {
      (void)Ask(i, OrderKind::kCheckpoint);
      (void)Ask(i, OrderKind::kStop);
    }
  }
  void Saved(int64_t step) {
    Do(0, [&](OrderBook* book, OrderOutput* out) { book->OnSaved(step, out); });
  }
  void Close(int rank) {
    Do(rank, [](OrderBook* book, OrderOutput* out) { book->Close(out); });
  }
  void Break(int rank) { ranks_[rank]->broken = true; }
  void Mend(int rank) {
    Rank& r = *ranks_[rank];
    r.broken = false;
    for (const auto& [key, value] : r.puts) {
      Post(rank, {OrderMessage::Kind::kPut, key, value});
    }
    for (const std::string& key : r.asked) {
      Post(rank, {OrderMessage::Kind::kAsk, key});
    }
  }

  // Lets time pass, and what is under way arrive.
  void Pass(Duration duration) {
    const MonoTime end = now_ + duration;
    while (true) {
      const auto next = std::min_element(
          posts_.begin(), posts_.end(),
          [](const Posted& a, const Posted& b) { return a.at < b.at; });
      if (next == posts_.end() || next->at > end) break;
      now_ = std::max(now_, next->at);
      const Posted posted = std::move(*next);
      posts_.erase(next);
      Arrive(posted);
    }
    now_ = end;
    if (now_ - ticked_ < std::chrono::seconds(1)) return;
    ticked_ = now_;
    for (int i = 0; i < size(); ++i) {
      Do(i,
         [&](OrderBook* book, OrderOutput* out) { book->OnTick(now_, out); });
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  bool broken(int rank) const { return ranks_[rank]->broken; }
  int64_t step(int rank) const { return ranks_[rank]->step; }
  const std::vector<std::string>& events() const { return events_; }
  uint32_t done() const { return done_; }
  const std::map<std::string, std::string>& table() const { return table_; }
  // What a rank's link keeps.
  size_t Kept(int rank) const {
    return ranks_[rank]->puts.size() + ranks_[rank]->asked.size();
  }

 private:
  struct Rank {
    OrderBook book;
    int64_t step = -1;
    bool broken = false;
    std::map<std::string, std::string> puts = {};
    std::set<std::string> asked = {};
  };
  struct Posted {
    MonoTime at;
    int rank = 0;
    OrderMessage message;
    bool to_rank = false;
  };

  template <typename Event>
  void Do(int rank, const Event& event) {
    Rank& r = *ranks_[rank];
    OrderOutput out;
    event(&r.book, &out);
    for (const OrderMessage& message : out.messages) {
      switch (message.kind) {
        case OrderMessage::Kind::kPut:
          r.puts.emplace(message.key, message.value);
          break;
        case OrderMessage::Kind::kAsk:
          r.asked.insert(message.key);
          break;
        case OrderMessage::Kind::kForget:
          r.puts.erase(message.key);
          r.asked.erase(message.key);
          continue;
      }
      Post(rank, message);
    }
    events_.insert(events_.end(), out.events.begin(), out.events.end());
    done_ = std::max(done_, out.done);
  }
  void Post(int rank, const OrderMessage& message, bool to_rank = false) {
    std::exponential_distribution<double> late(1.0);
    const auto delay = std::chrono::duration_cast<Duration>(
        latency_ * std::min(20.0, late(random_)));
    posts_.push_back({now_ + delay, rank, message, to_rank});
  }
  void Arrive(const Posted& posted) {
    Rank& r = *ranks_[posted.rank];
    if (r.broken) return;
    const OrderMessage& message = posted.message;
    if (posted.to_rank) {
      if (r.asked.erase(message.key) == 0) return;
      Do(posted.rank, [&](OrderBook* book, OrderOutput* out) {
        book->OnValue(message.key, message.value, now_, out);
      });
      return;
    }
    if (message.kind == OrderMessage::Kind::kPut) {
      const auto [it, is_new] = table_.emplace(message.key, message.value);
      if (!is_new) return;
      for (const int rank : waiting_[message.key]) {
        Post(rank, {OrderMessage::Kind::kPut, it->first, it->second}, true);
      }
      return;
    }
    waiting_[message.key].insert(posted.rank);
    if (const auto it = table_.find(message.key); it != table_.end()) {
      Post(posted.rank, {OrderMessage::Kind::kPut, it->first, it->second},
           true);
    }
  }

  std::mt19937 random_;
  const Duration latency_;
  MonoTime now_{};
  MonoTime ticked_{};
  int joins_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Posted> posts_;
  std::map<std::string, std::string> table_;
  std::map<std::string, std::set<int>> waiting_;
  std::vector<std::string> events_;
  uint32_t done_ = 0;
};

// The steps at which each rank's answer was yes, for steps of `time`, until all
// have answered yes or `most` steps were made.
inline std::vector<std::set<int64_t>> Obeyed(OrderCluster* cluster,
                                             OrderKind question, int64_t from,
                                             int most, Duration time) {
  std::vector<std::set<int64_t>> obeyed(cluster->size());
  for (int64_t step = from; step < from + most; ++step) {
    for (int rank = 0; rank < cluster->size(); ++rank) {
      cluster->Step(rank, step);
      OrderAnswer answer = cluster->Ask(rank, question);
      while (answer == OrderAnswer::kWait) {
        cluster->Pass(std::chrono::milliseconds(10));
        answer = cluster->Ask(rank, question);
      }
      if (answer == OrderAnswer::kYes) obeyed[rank].insert(step);
    }
    cluster->Pass(time);
  }
  return obeyed;
}

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_TEST_UTIL_H_
