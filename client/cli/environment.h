// The environment of a command: streams, variables, the clock. main.cc passes
// the real ones; tests pass others.
#ifndef LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_
#define LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_

#include <functional>
#include <iosfwd>
#include <map>
#include <string>

#include "common/base/clock.h"

namespace lockstep::cli {

struct CliEnvironment {
  // `out` gets data, `err` everything else.
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  std::istream* in = nullptr;
  bool out_is_tty = false;
  bool err_is_tty = false;
  bool in_is_tty = false;
  // Width of the terminal behind `err`, or of the one behind `out`.
  int columns = 80;
  std::map<std::string, std::string> variables;
  // The directory of lockstep-NAME programs and daemons.
  std::string program_dir;
  // The working directory; absolute.
  std::string working_directory;
  // /etc/lockstep/config.yaml, except in tests.
  std::string system_config;
  const Clock* clock = nullptr;
  // Returns true if a termination signal (SIGINT, SIGTERM, SIGHUP) came since
  // the first call. From the first call on, the first such signal does not end
  // the process; the second does.
  std::function<bool()> interrupted;
  // Returns the number of termination signals. From the first call on, none of
  // them ends the process, for a command with much to clean up. May be null.
  std::function<int()> signals;
  // From the first call on, the process ends as by SIGPIPE as soon as the
  // reader of `out` is gone, even if there is nothing to write. For a command
  // that follows and has nothing to clean up. May be null.
  std::function<void()> end_with_reader;

  // Returns "" if it is not set.
  std::string Variable(const std::string& name) const {
    const auto it = variables.find(name);
    return it == variables.end() ? "" : it->second;
  }
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_ENVIRONMENT_H_
