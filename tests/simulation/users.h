// People with commands. A command that gets no answer is sent again, with its
// request id; the network loses, doubles and delays requests and answers.
#ifndef LOCKSTEP_TESTS_SIMULATION_USERS_H_
#define LOCKSTEP_TESTS_SIMULATION_USERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/simulation/bug.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/control.h"
#include "tests/simulation/move.h"
#include "tests/simulation/timeline.h"

namespace lockstep::simulation {

class Users {
 public:
  // All are borrowed.
  Users(Bug bug, const Plan& plan, Timeline* time, Story* story,
        Checker* checker, Control* control)
      : bug_(bug),
        plan_(plan),
        time_(time),
        story_(story),
        checker_(checker),
        control_(control) {}

  // REQUIRES: `move` is a command. `number` names the request.
  void Order(const Move& move, int64_t number);
  // What happens to the next request.
  void Arm(const Move& move) { armed_ = move; }
  void Heal() { armed_.reset(); }
  // Commands without an answer so far.
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Request {
    std::string id;
    Move move;
    int tries = 0;
  };

  void Send(const std::string& id);
  void Arrive(const Request& request, bool answer_is_lost);
  StatusOr<std::string> Execute(const Request& request,
                                server::Coordinator* coordinator);
  StatusOr<std::string> ExecuteOnJob(const Request& request,
                                     const server::RequestKey& key,
                                     server::Coordinator* coordinator);
  StatusOr<std::string> ExecuteOnNode(const Request& request,
                                      const server::RequestKey& key,
                                      server::Coordinator* coordinator);
  void OnAnswer(const std::string& id, const StatusOr<std::string>& answer);
  JobSpec SpecOf(int32_t job) const;

  const Bug bug_;
  const Plan plan_;
  Timeline* const time_;
  Story* const story_;
  Checker* const checker_;
  Control* const control_;
  std::optional<Move> armed_;
  std::map<std::string, Request> waiting_;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_USERS_H_
