#include "tests/bench/model/model_main.h"

#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/model/measure.h"
#include "tests/bench/model/model_options.h"

namespace lockstep {
namespace {

Status Measure(model::ModelOptions* options) {
  LOCKSTEP_ASSIGN_OR_RETURN(options->cluster.intra, model::MeasureLink("shm"));
  LOCKSTEP_ASSIGN_OR_RETURN(options->cluster.inter, model::MeasureLink("tcp"));
  return OkStatus();
}

}  // namespace

int RunModel(int argc, char** argv) {
  auto options = model::ParseModelOptions(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  if (!options.ok()) {
    fprintf(stderr, "%s\n", Message(options.status()).c_str());
    return 2;
  }
  if (options->help) {
    fputs(model::ModelHelp().c_str(), stdout);
    return 0;
  }
  if (options->measure) {
    if (const Status status = Measure(&*options); !status.ok()) {
      fprintf(stderr, "%s\n", Message(status).c_str());
      return 1;
    }
  }
  fputs(
      (options->json ? model::ModelJson(*options) : model::ModelTable(*options))
          .c_str(),
      stdout);
  return 0;
}

}  // namespace lockstep
