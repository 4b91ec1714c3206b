#include "client/cli/resource_options.h"

#include <fmt/format.h>

#include "client/cli/cli.h"

namespace lockstep {

void AddResourceOptions(CLI::App* app, SubmitFlags* f, const std::string& unit,
                        const std::string& group) {
  app->add_option(
         "--cpus", f->cpus,
         fmt::format("Cores of a {}, as 0.5 (default: 1 a rank)", unit))
      ->check(AtLeast(0))
      ->group(group);
  app->add_option(
         "--memory", f->memory,
         fmt::format("Memory of a {}, as 2GiB (default: none is reserved)",
                     unit))
      ->type_name("SIZE")
      ->group(group);
  app->add_option("--gpus", f->gpus,
                  fmt::format("GPUs of a {} (default: 0)", unit))
      ->check(AtLeast(0))
      ->group(group);
  app->add_option("--gpu-type", f->gpu_type,
                  "Model of the GPUs, as T4 (default: any)")
      ->group(group);
  app->add_option("--pool", f->pool,
                  "Only nodes of this pool (default: any node)")
      ->group(group);
  app->add_option("--env", f->env,
                  "NAME=VALUE for every rank, or NAME as it is set here; may "
                  "be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  app->add_flag("--slurm-env", f->slurm_env,
                "Also set SLURM_PROCID and the other names by which programs "
                "find each other under Slurm")
      ->group(group);
}

}  // namespace lockstep
