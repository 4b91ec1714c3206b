"""One job: progress, speed, time by activity, cost.

A panel that not every job fills says so (only=). A row of such panels does, too.
"""

from grafana import (HELD_GPUS, JOB, JOINED, NATIVE, RED, TO_NODE, YELLOW,
                     Query, annotation, dashboard, graph, heatmap, number,
                     table, timeline, variable)

ID = 'cluster=~"$cluster",job_id=~"$job_id"'
RATE = "[$__rate_interval]"


def metric(name, more=""):
    return name + "{" + ID + ("," + more if more else "") + "}"


def rate(name, by, more=""):
    return f"sum by ({by}) (rate({metric(name, more)}{RATE}))"


def step_quantile(share):
    return (f"histogram_quantile({share}, "
            + rate("lockstep_step_seconds_bucket", "job_id, le") + ")")


# Checkpoints are rare: over an hour.
def checkpoint_seconds(what, by):
    return (f"sum by ({by}) (increase("
            + metric("lockstep_checkpoint_seconds_" + what) + "[1h]))")


STATE = [
    number("Cost", "none", "So far, in the site's currency.",
           Query(metric("lockstep_job_cost_total"), "{{currency}}"), height=8),
    timeline("State", "States of the job over time.",
             Query("max by (job_id, state) ("
                   + metric("lockstep_job_state") + ")",
                   "{{job_id}} {{state}}"), width=20),
    graph("Time by state", "percentunit",
          "All of the job's time; productive means lasting progress.",
          Query(rate("lockstep_job_time_seconds_total", "job_id, state"),
                "{{job_id}} {{state}}"), stacked=True, width=12),
    graph("Rank seconds by class", "percentunit",
          "Each second of each rank is in one class. unknown: a program that "
          "has not joined its job.",
          Query(rate("lockstep_job_rank_seconds_total", "job_id, class")
                + " / on (job_id) group_left () sum by (job_id) (rate("
                + metric("lockstep_job_rank_seconds_total") + RATE + "))",
                "{{job_id}} {{class}}"), stacked=True, maximum=1, width=12),
    graph("Ranks", "none",
          "Chief and worker ranks: requested and running. They differ while "
          "the job waits or recovers.",
          Query(metric("lockstep_job_world_size"), "{{job_id}} {{kind}}")),
    graph("Restarts", "none",
          "Since the job was submitted, by reason; recoveries, in which "
          "lost ranks came back while the others stayed; and the ranks that "
          "an elastic job trains without.",
          Query("sum by (job_id, reason) ("
                + metric("lockstep_job_restarts_total") + ")",
                "{{job_id}} {{reason}}"),
          Query("sum by (job_id) ("
                + metric("lockstep_job_recoveries_total") + ")",
                "{{job_id}} recoveries"),
          Query("sum by (job_id) ("
                + metric("lockstep_job_away_ranks") + ")",
                "{{job_id}} ranks away")),
    graph("GPUs and cores held", "none",
          "As billed: from allocation to release.",
          Query(rate("lockstep_job_resource_seconds_total",
                     "job_id, resource"),
                "{{job_id}} {{resource}}")),
    graph("Cost per hour", "none", "In the site's currency.",
          Query(rate("lockstep_job_cost_total", "job_id, currency")
                + " * 3600", "{{job_id}} {{currency}} per hour")),
]

PROGRESS = [
    number("Progress", "percentunit", "Share of the planned steps done.",
           Query(metric("lockstep_job_progress_ratio"), "{{job_id}}"),
           minimum=0, maximum=1, no_value="unknown", only=JOINED),
    number("Time left", "s", "At the current rate.",
           Query(metric("lockstep_job_eta_seconds"), "{{job_id}}"),
           no_value="unknown", only=JOINED),
    number("Step", "none", "Last step that the chief committed.",
           Query(metric("lockstep_job_step"), "{{job_id}}"), only=JOINED),
    number("Epoch", "none", "Times through the data.",
           Query(metric("lockstep_job_epoch"), "{{job_id}}"), only=JOINED),
    number("Samples now", "ops", "Per second, over the last 10 s.",
           Query(metric("lockstep_job_samples_per_second"), "{{job_id}}"),
           only=JOINED),
    graph("Samples", "ops", "Per second, of all ranks.",
          Query(rate("lockstep_job_samples_total", "job_id"), "{{job_id}}"),
          only=JOINED),
    graph("Steps", "ops", "Per second.",
          Query(rate("lockstep_job_steps_total", "job_id"), "{{job_id}}"),
          only=JOINED),
    graph("Time of a step", "s",
          "Mean; for native jobs also the median and the 99th percentile of "
          "the time between steps. Percentiles are "
          "known to a factor of three (two buckets per decade).",
          Query("1 / (" + rate("lockstep_job_steps_total", "job_id")
                + " > 0)", "{{job_id}} mean"),
          Query(step_quantile(0.5), "{{job_id}} p50"),
          Query(step_quantile(0.99), "{{job_id}} p99"), only=JOINED),
    graph("Loss", "none", "Last value that the chief reported.",
          Query(metric("lockstep_job_loss"), "{{job_id}}"), minimum=None,
          no_value="not reported",
          only=JOINED),
    graph("Values reported", "none",
          "Named values of the chief, the newest of each.",
          Query(metric("lockstep_job_user_metric"), "{{job_id}} {{metric}}"),
          minimum=None, no_value="not reported", only=JOINED),
    graph("Goodput", "percentunit",
          "Share of the time that made lasting progress.",
          Query(metric("job:lockstep_goodput:ratio5m"), "{{job_id}} 5 min"),
          Query(metric("job:lockstep_goodput:ratio1h"), "{{job_id}} 1 h"),
          maximum=1, only=JOINED),
    graph("Parts of a step", "percentunit",
          "Phases are disjoint and add up to the ranks' wall time: "
          "waiting for input, computing, exposed all-reduce, "
          "waiting for the last rank, optimizer, checkpoint, evaluation, "
          "compiling, the rest.",
          Query(metric("job:lockstep_phase_share:ratio5m"),
                "{{job_id}} {{phase}}"),
          stacked=True, maximum=1, width=16, only=JOINED),
    graph("Samples by rank", "ops", "Used per second.",
          Query(rate("lockstep_input_records_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}"), only=JOINED),
    graph("Steps skipped", "none",
          "In the last hour, for a non-finite gradient, of those "
          "committed.",
          Query("increase(" + metric("lockstep_rank_steps_skipped_total")
                + "[1h])", "{{job_id}} rank {{rank}} skipped"),
          Query("increase(" + metric("lockstep_rank_steps_total")
                + "[1h])", "{{job_id}} rank {{rank}} committed"), only=JOINED),
    graph("Floating-point operations", "flops",
          "Per second, of all ranks: samples times the chief's reported cost "
          "of a sample.",
          Query(rate("lockstep_job_flops_total", "job_id"), "{{job_id}}"),
          no_value="not reported", only=JOINED),
    graph("Use of the GPUs' peak", "percentunit",
          "Model FLOP utilization over the last 10 s: operations of its "
          "samples as a share of its GPUs' peak in the site's table "
          "of machines.",
          Query(metric("lockstep_job_mfu_ratio"), "{{job_id}}"), maximum=1,
          no_value="not known", only=JOINED),
    graph("Exposed all-reduce", "percentunit",
          "Share of its time in which a rank waits for a reduction that all "
          "ranks have joined.",
          Query(rate("lockstep_allreduce_seconds_total", "job_id, rank",
                     'kind="exposed"'), "{{job_id}} rank {{rank}}"),
          maximum=1, only=JOINED),
]

RANKS = [
    graph("CPU by rank", "none", "Cores in use.",
          Query(rate("lockstep_task_cpu_seconds_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}")),
    graph("Memory by rank", "bytes", "Resident.",
          Query(metric("lockstep_task_memory_bytes"),
                "{{job_id}} rank {{rank}}")),
    table("Highest memory by rank", "bytes", "Since the rank's start.",
          Query("max by (job_id, rank, node) ("
                + metric("lockstep_task_memory_peak_bytes") + ")", "",
                instant=True), links=[TO_NODE]),
    graph("Processes by rank", "none",
          "The rank and its children, such as the workers of a data loader.",
          Query(metric("lockstep_task_processes"),
                "{{job_id}} rank {{rank}}")),
    graph("Storage by rank", "Bps", "Read and written.",
          Query(rate("lockstep_task_io_bytes_total",
                     "job_id, rank, direction"),
                "{{job_id}} rank {{rank}} {{direction}}")),
    graph("Network by rank", "Bps",
          "Payload of TCP connections, sent and received. Not RDMA, nor what "
          "GPUs send to each other.",
          Query(rate("lockstep_task_network_bytes_total",
                     "job_id, rank, direction"),
                "{{job_id}} rank {{rank}} {{direction}}")),
    heatmap("Network, compared by rank", "Bps",
            "Sent and received: a rank that carries more than the others is a "
            "row of another colour.",
            Query("sum by (rank) (rate("
                  + metric("lockstep_task_network_bytes_total") + RATE + "))",
                  "{{rank}}")),
    graph("Logs", "Bps", "Sent to the coordinator, by rank, and not kept.",
          Query(rate("lockstep_task_log_bytes_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}"),
          Query(rate("lockstep_task_log_dropped_bytes_total",
                     "job_id, rank"), "{{job_id}} rank {{rank}} not kept")),
    graph("Parts of logs not kept", "none",
          "In the last hour, by rank: a rank wrote more than its log keeps.",
          Query("increase(" + metric("lockstep_task_log_dropped_total")
                + "[1h])", "{{job_id}} rank {{rank}}"), steps=[(1, YELLOW)]),
    graph("Held back by the CPU limit", "percentunit",
          "Part of the time. Where limits are not enforced there is nothing.",
          Query(rate("lockstep_task_throttled_seconds_total",
                     "job_id, rank"), "{{job_id}} rank {{rank}}")),
]

# Readings of GPUs know no job: whom a GPU belongs to is a series of its own.
HELD = (" * on (cluster, node, gpu) group_left (job_id, rank) "
        "max by (cluster, node, gpu, job_id, rank) ("
        + metric("lockstep_gpu_allocation") + ")")
GPU = "{{job_id}} rank {{rank}}: {{node}} GPU {{gpu}}"


def gpu(name, labels=""):
    by = "cluster, node, gpu" + (", " + labels if labels else "")
    return (f'max by ({by}) ({name}{{cluster=~"$cluster"}})' + HELD)


GPUS = [
    graph("GPU utilization", "percentunit",
          "Time with a kernel running. Even work: lines that move together, "
          "smoothly.",
          Query(gpu("lockstep_gpu_utilization_ratio"), GPU), maximum=1,
          links=[TO_NODE], no_value="no GPU", only=HELD_GPUS),
    graph("Time spent accessing memory", "percentunit",
          "Time in which the GPU's memory was read or written; not how full "
          "it is.",
          Query(gpu("lockstep_gpu_memory_access_ratio"), GPU), maximum=1,
          links=[TO_NODE], no_value="no GPU", only=HELD_GPUS),
    graph("GPU activity", "percentunit",
          "Multiprocessors with a resident warp, and working tensor cores. Low "
          "beside a high utilization: kernels too small for the GPU. Hopper "
          "and newer.",
          Query(gpu("lockstep_gpu_sm_active_ratio"), GPU + " SM"),
          Query(gpu("lockstep_gpu_tensor_active_ratio"), GPU + " tensor"),
          maximum=1, links=[TO_NODE], no_value="no such GPU", only=HELD_GPUS),
    graph("Imbalance between the job's GPUs", "percentunit",
          "Busiest minus idlest.",
          Query("max by (job_id) (" + gpu("lockstep_gpu_utilization_ratio")
                + ") - min by (job_id) ("
                + gpu("lockstep_gpu_utilization_ratio") + ")", "{{job_id}}"),
          maximum=1, no_value="no GPU", only=HELD_GPUS),
    graph("GPU memory in use", "bytes", "By GPU.",
          Query(gpu("lockstep_gpu_memory_used_bytes"), GPU),
          links=[TO_NODE], no_value="no GPU", only=HELD_GPUS),
    graph("GPU power", "watt", "By GPU.",
          Query(gpu("lockstep_gpu_power_watts"), GPU), links=[TO_NODE],
          no_value="no GPU", only=HELD_GPUS),
    graph("GPU slowed down", "percentunit", "Part of the time, by reason.",
          Query("sum by (cluster, node, gpu, reason) (rate("
                'lockstep_gpu_throttle_seconds_total{cluster=~"$cluster"}'
                + RATE + "))" + HELD, GPU + " {{reason}}"), maximum=1,
          links=[TO_NODE], no_value="no GPU", only=HELD_GPUS),
]

CHECKPOINTS = [
    graph("Checkpoints", "none", "Complete ones in the last hour.",
          Query("increase(" + metric("lockstep_checkpoints_total")
                + "[1h])", "{{job_id}}")),
    graph("Written", "Bps", "Bytes of checkpoints per second.",
          Query(rate("lockstep_checkpoint_bytes_total", "job_id"),
                "{{job_id}}")),
    graph("Age of the newest checkpoint", "s",
          "What a failure would repeat, at most.",
          Query("time() - " + metric(
              "lockstep_checkpoint_last_success_timestamp_seconds"),
              "{{job_id}}"), no_value="none yet", only=JOINED),
    graph("Steps since the newest checkpoint", "none",
          "Steps that a failure now would repeat.",
          Query(metric("lockstep_job_step") + " - on (cluster, job_id) "
                + metric("lockstep_checkpoint_last_step"), "{{job_id}}"),
          no_value="none yet", only=JOINED),
    graph("Training stopped for checkpoints", "percentunit",
          "Part of the time.",
          Query(rate("lockstep_checkpoint_stall_seconds_total", "job_id"),
                "{{job_id}}"), only=JOINED),
    graph("Written by rank", "Bps", "Bytes of its parts of checkpoints.",
          Query(rate("lockstep_rank_checkpoint_bytes_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}"), only=JOINED),
    graph("Checkpoints by rank", "none",
          "That a rank took part in, in the last hour.",
          Query("increase(" + metric("lockstep_rank_checkpoints_total")
                + "[1h])", "{{job_id}} rank {{rank}}"), only=JOINED),
    graph("Where checkpoints spend time", "percentunit",
          "Part of rank 0's time: copying the state (training stands still), "
          "writing, syncing, publishing, restoring. All but the first and the "
          "last happen behind training.",
          Query(rate("lockstep_checkpoint_phase_seconds_total",
                     "job_id, phase"), "{{job_id}} {{phase}}"), only=NATIVE),
    graph("Time of a checkpoint", "s",
          "By phase, of the last hour: mean, and what 99 of a hundred stay "
          "below, to a factor of three. Training stands still for the "
          "snapshot and the restore.",
          Query(checkpoint_seconds("sum", "job_id, phase") + " / "
                + checkpoint_seconds("count", "job_id, phase"),
                "{{job_id}} {{phase}} mean"),
          Query("histogram_quantile(0.99, "
                + checkpoint_seconds("bucket", "job_id, phase, le") + ")",
                "{{job_id}} {{phase}} p99"), no_value="none", only=NATIVE),
    graph("Failed", "none",
          "Checkpoints that a rank gave up in the last hour.",
          Query("increase(" + metric("lockstep_checkpoint_failures_total")
                + "[1h])", "{{job_id}} rank {{rank}}"), steps=[(1, RED)],
          only=NATIVE),
]

REDUCTIONS = [
    heatmap("Waiting for others, by rank", "percentunit",
            "Share of its time in which a rank waits for the last one to join "
            "the all-reduce. A straggler itself hardly waits: it is a light "
            "row among dark ones.",
            Query("sum by (rank) (rate("
                  + metric("lockstep_step_phase_seconds_total",
                           'phase="straggler_wait"') + RATE + "))",
                  "{{rank}}"), width=12, only=NATIVE),
    graph("Straggler", "none",
          "Windows of the last 15 min in which a rank of this node came "
          "clearly last.",
          Query("sum by (job_id, node) (increase("
                + metric("lockstep_straggler_events_total") + "[15m]))",
                "{{job_id}} {{node}}"), width=12, steps=[(1, YELLOW)],
          links=[TO_NODE], only=NATIVE),
    graph("Lost to stragglers", "percentunit",
          "Share of the ranks' time spent waiting for the last rank.",
          Query(metric("lockstep_job_straggler_wait_ratio"), "{{job_id}}"),
          maximum=1, only=NATIVE),
    graph("Lag behind the median rank", "s",
          "How much later a rank arrives at the reductions of about twenty "
          "steps; negative means earlier. A line that stays up is a straggler.",
          Query(metric("lockstep_straggler_lag_seconds"),
                "{{job_id}} rank {{rank}}: {{node}}"), minimum=None,
          links=[TO_NODE], only=NATIVE),
    graph("Cost of the late rank", "percentunit",
          "Share of the last hundred steps' time in which only one rank was "
          "missing, for the costliest rank. With equally fast ranks "
          "each costs little.",
          Query("max by (job_id) ("
                + metric("lockstep_late_rank_cost_ratio") + ")",
                "{{job_id}}"), maximum=1, steps=[(0.1, YELLOW)],
          no_value="not known", only=NATIVE),
    graph("Wait for the late rank", "s",
          "How long a rank waited in the last step for the one that came "
          "last.",
          Query("max by (job_id, rank) ("
                + metric("lockstep_late_rank_wait_seconds") + ")",
                "{{job_id}} rank {{rank}}"), no_value="not known",
          only=NATIVE),
    graph("Ranks waited for", "percentunit",
          "Share of its time for which a rank waited for each other one: the "
          "mean of the waiting ranks, for the ten worst. One line far above "
          "the others is a straggler.",
          Query("topk(10, avg by (job_id, late_rank) (rate("
                + metric("lockstep_late_rank_waited_seconds_total") + RATE
                + ")))", "{{job_id}} for rank {{late_rank}}"),
          maximum=1, no_value="not known", only=NATIVE),
    graph("All-reduce", "Bps", "Bytes of gradients reduced, by rank.",
          Query(rate("lockstep_allreduce_bytes_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}"), only=NATIVE),
    graph("Communication hidden by computing", "percentunit",
          "Share of the reduction time that delays no rank. If it is low and "
          "all-reduce in the panel above is high, use smaller buckets, larger "
          "batches, or a faster network.",
          Query(metric("job:lockstep_overlap:ratio5m"), "{{job_id}}"),
          maximum=1, only=NATIVE),
    graph("All-reduce in progress", "percentunit",
          "Share of its time in which a bucket of a rank is being reduced, "
          "exposed or not.",
          Query(rate("lockstep_allreduce_seconds_total", "job_id, rank",
                     'kind="busy"'), "{{job_id}} rank {{rank}}"),
          maximum=1, only=NATIVE),
    graph("Bus bandwidth", "Bps",
          "Bytes reduced times 2 (n - 1) / n over the time in which they "
          "were, of about the last twenty steps: compare it with what the "
          "links can do, and with what nccl-tests calls busbw.",
          Query("max by (job_id) (" + metric(
              "lockstep_allreduce_bus_bandwidth_bytes_per_second") + ")",
              "{{job_id}}"), only=NATIVE),
    graph("Reductions", "ops", "Per second: buckets and small values.",
          Query(rate("lockstep_allreduce_buckets_total", "job_id"),
                "{{job_id}}"), only=NATIVE),
]

INPUT = [
    graph("Bytes read by rank", "Bps", "Of records, made ahead included.",
          Query(rate("lockstep_input_bytes_total", "job_id, rank"),
                "{{job_id}} rank {{rank}}"), only=NATIVE),
    graph("Steps made ahead", "none",
          "Steps whose samples are ready, and the most there can be. At 0 the "
          "rank waits for its input.",
          Query(metric("lockstep_input_queue_depth"),
                "{{job_id}} rank {{rank}} ready"),
          Query(metric("lockstep_input_queue_capacity"),
                "{{job_id}} rank {{rank}} at most"), only=NATIVE),
    graph("Reading threads", "none",
          "How many are at work, by stage: read (with checksums) or decode.",
          Query(rate("lockstep_input_stage_seconds_total",
                     "job_id, rank, stage"),
                "{{job_id}} rank {{rank}} {{stage}}"), only=NATIVE),
    graph("Corrupt records", "none",
          "In the last hour. The first one ends the attempt; its path and "
          "offset are in the job's events.",
          Query("increase("
                + metric("lockstep_input_corrupt_records_total") + "[1h])",
                "{{job_id}} rank {{rank}}"), steps=[(1, RED)], only=NATIVE),
]

DASHBOARD = dashboard(
    JOB, "lockstep / Job", "One job: progress, speed, time by activity, cost.",
    [variable("cluster", "Cluster", "label_values(lockstep_leader, cluster)"),
     variable("job_id", "Job",
              'label_values(lockstep_job_info{cluster=~"$cluster"}, job_id)',
              every=".+")],
    [("State", STATE),
     ("Progress of joined programs and native jobs", PROGRESS),
     ("Ranks", RANKS), ("GPUs", GPUS), ("Checkpoints", CHECKPOINTS),
     ("Reductions and stragglers of native jobs", REDUCTIONS),
     ("Input of native jobs", INPUT)],
    [annotation("Restarts",
                "sum by (job_id, reason) (changes("
                + metric("lockstep_job_restarts_total") + "[1m])) > 0",
                RED, "Restart of {{job_id}}", "{{reason}}"),
     annotation("Recoveries",
                "sum by (job_id) (changes("
                + metric("lockstep_job_recoveries_total") + "[1m])) > 0",
                "orange", "Recovery of {{job_id}}", ""),
     annotation("Checkpoints",
                "changes(" + metric(
                    "lockstep_checkpoint_last_success_timestamp_seconds")
                + "[1m]) > 0",
                "blue", "Checkpoint of {{job_id}}", "")])
