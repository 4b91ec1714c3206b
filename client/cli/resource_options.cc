#include "client/cli/resource_options.h"

#include <fmt/format.h>

#include "client/cli/cli.h"

namespace lockstep {

void AddResourceOptions(const FlagGroup& group, SubmitFlags* f,
                        const std::string& unit) {
  group.Add("--cpus", &f->cpus,
            fmt::format("Cores of a {}, as 0.5 (default: 1 a rank)", unit),
            AtLeast(0));
  group.Add(
      "--memory SIZE", &f->memory,
      fmt::format("Memory of a {}, as 2GiB (default: none is reserved)", unit));
  group.Add("--gpus", &f->gpus, fmt::format("GPUs of a {} (default: 0)", unit),
            AtLeast(0));
  group.Add("--gpu-type", &f->gpu_type,
            "Model of the GPUs, as T4 (default: any)");
  group.Add("--pool", &f->pool, "Only nodes of this pool (default: any node)");
  group.Add(
      "--env", &f->env,
      "NAME=VALUE for every rank, or NAME as it is set here; may be given "
      "several times",
      MayRepeat);
  group.Add("--slurm-env", &f->slurm_env,
            "Also set SLURM_PROCID and the other names by which programs find "
            "each other under Slurm");
}

void AddEndOptions(const FlagGroup& group, SubmitFlags* f) {
  group.Add("--end-with", &f->end_with,
            "all: it has succeeded when every rank of chief and workers has "
            "exited with 0; chief: when the chief's first rank has (default: "
            "chief with parameter servers, else all)",
            OneOf({"all", "chief"}));
  group.Add(
      "--end-grace DURATION", &f->end_grace,
      "With --end-with chief: how long workers may run on after the chief's "
      "end; with parameter servers they are stopped at once (default: 5m)");
}

}  // namespace lockstep
