#include "client/cli/resource_options.h"

#include <fmt/format.h>

#include "client/cli/cli.h"

namespace lockstep::cli {

void AddResourceOptions(const FlagGroup& group, SubmitFlags* f,
                        const std::string& unit) {
  group.Add("--cpus", &f->cpus,
            fmt::format("Cores of a {}, as 0.5 (default: 1 per rank)", unit),
            AtLeast(0));
  group.Add(
      "--memory SIZE", &f->memory,
      fmt::format("Memory of a {}, as 2GiB (default: no reservation)", unit));
  group.Add("--gpus", &f->gpus, fmt::format("GPUs of a {} (default: 0)", unit),
            AtLeast(0));
  group.Add("--gpu-type", &f->gpu_type,
            "Model of the GPUs, as T4 (default: any)");
  group.Add("--pool", &f->pool, "Only nodes of this pool (default: any node)");
  group.Add(
      "--env", &f->env,
      "NAME=VALUE for every rank, or NAME with its value here; may be given "
      "several times",
      MayRepeat);
  group.Add(
      "--slurm-env", &f->slurm_env,
      "Also set SLURM_PROCID and the other variables by which programs find "
      "each other under Slurm");
}

void AddEndOptions(const FlagGroup& group, SubmitFlags* f) {
  group.Add("--end-with", &f->end_with,
            "all: it succeeds when every rank of chief and workers has "
            "exited with 0; chief: when the chief's first rank has (default: "
            "chief with parameter servers, otherwise all)",
            OneOf({"all", "chief"}));
  group.Add(
      "--end-grace DURATION", &f->end_grace,
      "With --end-with chief: how long workers may run on after the chief's "
      "end; with parameter servers they are stopped at once (default: 5m)");
}

void AddHangOptions(const FlagGroup& group, SubmitFlags* f) {
  group.Add("--hang", &f->hang,
            "When it shows no progress: warn (an event and an alert), restart, "
            "or off (default: warn for programs, restart for native jobs)",
            OneOf({"warn", "restart", "off"}));
  group.Add("--stall-after DURATION", &f->stall_after,
            "Of a program: the longest time without a sign of progress "
            "(default: learned from its steps)");
  group.Add("--progress-pattern RE", &f->progress_pattern,
            "Of a program: a regular expression (RE2) of log lines that show "
            "progress, as 'shard ([0-9]+) done' (default: the lines of common "
            "frameworks)");
  group.Add("--node-lost-timeout WHEN", &f->node_lost_timeout,
            "Of a program: when it moves off a silent host: auto (after 5 min, "
            "if no neighbour reaches the host and no other host is silent), "
            "never (only when an operator says that the host is gone), or a "
            "time, in any case; its ranks end before (default: auto)");
  group.Add("--idle-notice DURATION", &f->idle_notice,
            "When no rank works for this time, the job's history says so, with "
            "what that cost; 0s for never (default: the site's)");
  group.Add("--idle-stop DURATION", &f->idle_stop,
            "When no rank works for this time, the job is saved, where it can "
            "be, and cancelled; 0s for never (default: the site's)");
  group.Add("--warm-starts", &f->warm_starts,
            "Of a program that Python runs: each node of the job keeps "
            "interpreters that have imported what the program imports, and a "
            "rank that is started again becomes one of them (default: no)");
  group.Add("--spares NUMBER", &f->spares,
            "Nodes that are held, and have prepared, for the ranks of a node "
            "that is lost or drained, of a job that recovers in place; they "
            "are billed like its other nodes (default: 0)");
  group.Add("--hold DURATION", &f->hold,
            "How long the ranks that are left hold their state when a node is "
            "lost, until another one is ready; then the gang restarts; at most "
            "9m, 0s for never (default: 8m)");
  group.Add("--elastic MIN", &f->elastic,
            "When ranks are lost, the others train on without them until they "
            "are back, while at least MIN tasks are complete; for programs "
            "that can (lockstep.torch.Replica with elastic=True, "
            "SessionOptions::elastic of a native one; default: the others hold "
            "their state)");
  group.Add("--rescale", &f->rescale,
            "With --elastic, for any program: the gang starts with fewer tasks "
            "when there is no room for all, with MIN at least, and restarts "
            "with more when there is; the program must resume and read its "
            "size from WORLD_SIZE or TF_CONFIG");
}

}  // namespace lockstep::cli
