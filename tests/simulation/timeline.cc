#include "tests/simulation/timeline.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::simulation {
namespace {

uint64_t Scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t Mix(std::initializer_list<uint64_t> values) {
  uint64_t mixed = 0x9e3779b97f4a7c15;
  for (const uint64_t value : values) {
    mixed = Scramble(mixed + value + 0x9e3779b97f4a7c15);
  }
  return mixed;
}

uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

uint64_t Dice::Next() {
  state_ += 0x9e3779b97f4a7c15;
  return Scramble(state_);
}

int64_t Dice::Upto(int64_t n) {
  return static_cast<int64_t>(Next() % static_cast<uint64_t>(n));
}

void Timeline::At(MonoTime time, Event event) {
  heap_.push_back({std::max(time, now_), next_++, std::move(event)});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

bool Timeline::Step() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  Entry entry = std::move(heap_.back());
  heap_.pop_back();
  now_ = entry.time;
  ++events_;
  digest_ = Mix({digest_, entry.number,
                 static_cast<uint64_t>(now_.time_since_epoch().count())});
  entry.event();
  return true;
}

int64_t Timeline::Choose(int64_t n,
                         std::initializer_list<uint64_t> name) const {
  return static_cast<int64_t>(Mix({seed_, Mix(name)}) %
                              static_cast<uint64_t>(n));
}

Duration Timeline::Delay(Duration least, Duration most,
                         std::initializer_list<uint64_t> name) const {
  return least + Duration(Choose((most - least).count() + 1, name));
}

void Story::Say(const std::string& sentence) {
  if (!told_) return;
  lines_.push_back(
      fmt::format("{:10.3f} s  {}", ToSeconds(time_->passed()), sentence));
}

}  // namespace lockstep::simulation
