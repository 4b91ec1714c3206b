// What a command sees of the world: streams, variables, the clock. main.cc
// gives it the real ones, tests others.
#ifndef LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_
#define LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_

#include <functional>
#include <iosfwd>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace lockstep {

struct CliEnvironment {
  // Data goes to `out`, everything else to `err`.
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  std::istream* in = nullptr;
  bool out_is_tty = false;
  bool err_is_tty = false;
  bool in_is_tty = false;
  // Of the terminal behind `err`, else of that behind `out`.
  int columns = 80;
  std::map<std::string, std::string> variables;
  // Where lockstep-NAME programs and the daemons are.
  std::string program_dir;
  // The working directory; absolute.
  std::string working_directory;
  // /etc/lockstep/config.yaml, but for tests.
  std::string system_config;
  const Clock* clock = nullptr;
  // Whether a signal that asks for the end came (SIGINT, SIGTERM, SIGHUP) since
  // the command began to ask. From the first call on the first such signal does
  // not end the process; the second does.
  std::function<bool()> interrupted;
  // How many signals came that ask it to end (SIGINT, SIGTERM, SIGHUP). From
  // the first call on none of them ends it, however many there are: for a
  // command that has much to put away. May be null.
  std::function<int()> signals;
  // From the first call on the process ends, as by SIGPIPE, as soon as nobody
  // reads `out` any more, also while there is nothing to write: for a command
  // that follows and has nothing to put away. May be null.
  std::function<void()> end_with_reader;

  // Empty where it is not set.
  std::string Variable(const std::string& name) const {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_
