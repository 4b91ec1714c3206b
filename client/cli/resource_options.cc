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

void AddEndOptions(CLI::App* app, SubmitFlags* f, const std::string& group) {
  app->add_option("--end-with", f->end_with,
                  "all: it has succeeded when every rank of chief and workers "
                  "has exited with 0; chief: when the chief's first rank has "
                  "(default: chief with parameter servers, else all)")
      ->check(CLI::IsMember({"all", "chief"}))
      ->group(group);
  app->add_option("--end-grace", f->end_grace,
                  "With --end-with chief: how long workers may run on after "
                  "the chief's end; with parameter servers they are stopped "
                  "at once (default: 5m)")
      ->type_name("DURATION")
      ->group(group);
}

}  // namespace lockstep
