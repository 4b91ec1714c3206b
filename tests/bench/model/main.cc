// step_model: predicts what larger clusters would do.
#include <fmt/format.h>

#include "tests/bench/model/options.h"

int main(int argc, char** argv) {
  namespace model = lockstep::model;
  const auto options = model::ParseModelOptions({argv + 1, argv + argc});
  if (!options.ok()) {
    fmt::print(stderr, "{}\n", lockstep::Message(options.status()));
    return 2;
  }
  fmt::print("{}",
             options->help ? model::ModelHelp() : model::ModelTable(*options));
  return 0;
}
