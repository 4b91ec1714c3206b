// Virtual time and what is to happen in it.
#ifndef LOCKSTEP_TESTS_SIMULATION_TIMELINE_H_
#define LOCKSTEP_TESTS_SIMULATION_TIMELINE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::simulation {

// One number of several; the same on every machine (splitmix64).
uint64_t Mix(std::initializer_list<uint64_t> values);
// FNV-1a.
uint64_t HashOf(std::string_view text);

// A sequence of random numbers, the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // 0 to n - 1.
  int64_t Upto(int64_t n);
  int64_t Between(int64_t least, int64_t most) {
    return least + Upto(most - least + 1);
  }

 private:
  uint64_t state_;
};

// Events in the order of their times, those of one time in the order in which
// they were added. What an event chooses (a delay, an exit code) comes from the
// seed and the event's own name, not from a sequence of numbers. So a run with
// a part of the moves makes the same choices in what remains.
//
// Thread-compatible.
class Timeline {
 public:
  using Event = std::function<void()>;

  explicit Timeline(uint64_t seed) : seed_(seed), digest_(seed) {}

  MonoTime now() const { return now_; }
  // Since the beginning.
  Duration passed() const { return now_ - kStart; }
  int64_t events() const { return events_; }
  // Of all events so far: equal for equal runs.
  uint64_t digest() const { return digest_; }
  void Note(uint64_t value) { digest_ = Mix({digest_, value}); }

  void At(MonoTime time, Event event);
  void After(Duration delay, Event event) {
    At(now_ + delay, std::move(event));
  }
  // Runs the next event. False: there is none.
  bool Step();

  // The choice that `name` stands for: 0 to n - 1, or a duration.
  int64_t Choose(int64_t n, std::initializer_list<uint64_t> name) const;
  Duration Delay(Duration least, Duration most,
                 std::initializer_list<uint64_t> name) const;

  static constexpr MonoTime kStart{std::chrono::hours(1)};

 private:
  struct Entry {
    MonoTime time;
    uint64_t number = 0;
    Event event;
  };
  static bool Later(const Entry& a, const Entry& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  const uint64_t seed_;
  MonoTime now_ = kStart;
  std::vector<Entry> heap_;
  uint64_t next_ = 0;
  int64_t events_ = 0;
  uint64_t digest_;
};

// What happened, in sentences with the time. Nothing is kept where nobody
// reads.
class Story {
 public:
  explicit Story(const Timeline* time) : time_(time) {}
  void Begin() { told_ = true; }
  bool told() const { return told_; }
  void Say(const std::string& sentence);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const Timeline* const time_;
  bool told_ = false;
  std::vector<std::string> lines_;
};

}  // namespace lockstep::simulation

// Formats only if the story is told.
#define LOCKSTEP_TELL(story, ...) \
  if ((story)->told()) (story)->Say(fmt::format(__VA_ARGS__))

#endif  // LOCKSTEP_TESTS_SIMULATION_TIMELINE_H_
