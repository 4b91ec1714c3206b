// Prevents late callbacks from touching a destroyed object.
#ifndef LOCKSTEP_WORKER_AGENT_LOOP_LIFETIME_H_
#define LOCKSTEP_WORKER_AGENT_LOOP_LIFETIME_H_

#include <memory>
#include <utility>

namespace lockstep::worker::agent {

// A member of the object that callbacks use. It is destroyed, and every guarded
// callback is called, on the event loop's thread or after the loop has ended.
// Threads of the object may create guarded callbacks if the object waits for
// them before this member is destroyed.
class Lifetime {
 public:
  Lifetime() = default;
  ~Lifetime() { *alive_ = false; }
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;

  // Returns a callback that calls `call` while this lives, and does nothing
  // afterwards.
  template <typename Call>
  auto Guard(Call call) const {
    return [alive = alive_, call = std::move(call)](auto&&... arguments) {
      if (*alive) call(std::forward<decltype(arguments)>(arguments)...);
    };
  }

 private:
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LOOP_LIFETIME_H_
