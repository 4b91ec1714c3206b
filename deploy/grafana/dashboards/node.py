"""One host: its cores, memory, disks, network, GPUs and the ranks on it."""

from grafana import (NODE, RED, TO_JOB, YELLOW, Query, annotation, dashboard,
                     graph, number, table, timeline, variable)

HERE = 'cluster=~"$cluster",node=~"$node"'
RATE = "[$__rate_interval]"
GPU = "{{node}} GPU {{gpu}}"


def metric(name, more=""):
    return name + "{" + HERE + ("," + more if more else "") + "}"


def rate(name, by, more=""):
    return f"sum by ({by}) (rate({metric(name, more)}{RATE}))"


STATE = [
    timeline("State", "As the coordinator sees it.",
             Query("max by (node, state) (" + metric("lockstep_node_state")
                   + ")", "{{node}} {{state}}"), width=12),
    number("Heartbeat", "s", "Since the last one.",
           Query("time() - "
                 + metric("lockstep_node_last_heartbeat_timestamp_seconds"),
                 "{{node}}"), steps=[(3, RED)], height=8),
    number("Load", "none", "Over one minute.",
           Query(metric("lockstep_host_load1"), "{{node}}"), height=8),
    number("Connected", "none",
           "1 while the coordinator has admitted the daemon.",
           Query(metric("lockstep_worker_connected"), "{{node}}"), height=8),
    number("Cores offered", "none", "To jobs.",
           Query(metric("lockstep_worker_cpus_offered"), "{{node}}")),
    number("Memory offered", "bytes", "To jobs.",
           Query(metric("lockstep_worker_memory_offered_bytes"),
                 "{{node}}")),
    number("GPUs held", "none", "Allocated to jobs, and total.",
           Query("sum by (node) (" + metric("lockstep_gpu_allocated") + ")",
                 "{{node}} held"),
           Query("count by (node) (" + metric("lockstep_gpu_allocated")
                 + ")", "{{node}} there"), no_value="no GPU"),
    number("GPUs that do not answer", "none",
           "They fell off the bus, or their driver hangs.",
           Query("sum by (node) (1 - " + metric("lockstep_gpu_up") + ")",
                 "{{node}}"), steps=[(1, RED)], no_value="no GPU"),
    number("Reconnects", "none",
           "Streams to the coordinator that ended, in the last hour.",
           Query("increase(" + metric("lockstep_worker_reconnects_total")
                 + "[1h])", "{{node}}"), steps=[(3, YELLOW)]),
    table("Driver", "none", "Of the GPUs.",
          Query(metric("lockstep_gpu_driver_info"), "", instant=True),
          hide=("Value", "__name__", "job", "instance", "cluster", "pool"),
          width=4, height=4, no_value="no GPU"),
]

HOST = [
    graph("Warm starts", "none",
          "Python interpreters that wait to become a rank, ranks that one became, "
          "and interpreters that ended before.",
          Query(metric("lockstep_worker_warm_interpreters"), "{{node}} waiting"),
          Query("increase(" + metric("lockstep_worker_warm_starts_total")
                + "[$__rate_interval])", "{{node}} became a rank"),
          Query("increase(" + metric("lockstep_worker_warm_failures_total")
                + "[$__rate_interval])", "{{node}} ended before")),
    graph("CPU by mode", "percentunit", "Of all cores.",
          Query(rate("lockstep_host_cpu_seconds_total", "node, mode",
                     'mode!="idle"')
                + " / on (node) group_left () "
                + rate("lockstep_host_cpu_seconds_total", "node"),
                "{{node}} {{mode}}"), stacked=True, maximum=1),
    graph("Memory", "bytes", "In use, and total.",
          Query(metric("lockstep_host_memory_total_bytes") + " - "
                + metric("lockstep_host_memory_available_bytes"),
                "{{node}} in use"),
          Query(metric("lockstep_host_memory_total_bytes"),
                "{{node}} total")),
    graph("Pressure", "percentunit",
          "Share of the time in which a process waited for this resource.",
          Query(rate("lockstep_host_pressure_waiting_seconds_total",
                     "node, resource"), "{{node}} {{resource}}"), maximum=1),
    graph("Network", "Bps", "By device and direction.",
          Query(rate("lockstep_host_network_bytes_total",
                     "node, device, direction", 'device!="lo"'),
                "{{node}} {{device}} {{direction}}")),
    graph("InfiniBand", "Bps", "By device and direction.",
          Query(rate("lockstep_host_infiniband_bytes_total",
                     "node, device, direction"),
                "{{node}} {{device}} {{direction}}"),
          no_value="no device"),
    graph("Disks", "Bps", "By device and direction.",
          Query(rate("lockstep_host_disk_bytes_total",
                     "node, device, direction"),
                "{{node}} {{device}} {{direction}}")),
    graph("Disk of the worker", "bytes",
          "The file system with the daemon's directory.",
          Query(metric("lockstep_worker_disk_available_bytes"),
                "{{node}} left"),
          Query(metric("lockstep_worker_disk_size_bytes"),
                "{{node}} size")),
    graph("Killed for memory", "none",
          "Processes of this host, in the last hour.",
          Query("increase(" + metric("lockstep_host_oom_kills_total")
                + "[1h])", "{{node}}"), steps=[(1, RED)]),
]

GPUS = [
    graph("GPU utilization", "percentunit",
          "Time with a running kernel. GPUs of one job should be alike.",
          Query(metric("lockstep_gpu_utilization_ratio"), GPU), maximum=1),
    graph("Time spent accessing memory", "percentunit",
          "Time in which the GPU's memory was read or written; not how full "
          "it is.",
          Query(metric("lockstep_gpu_memory_access_ratio"), GPU), maximum=1),
    graph("GPU activity", "percentunit",
          "Multiprocessors with a resident warp, working tensor cores, and the "
          "memory's bandwidth. Low beside a high utilization: kernels too small "
          "for the GPU. Hopper and newer.",
          Query(metric("lockstep_gpu_sm_active_ratio"), GPU + " SM"),
          Query(metric("lockstep_gpu_tensor_active_ratio"), GPU + " tensor"),
          Query(metric("lockstep_gpu_dram_active_ratio"), GPU + " memory"),
          maximum=1),
    graph("Checks of GPUs", "none",
          "GPUs that are being checked now, and results in the last hour.",
          Query(metric("lockstep_node_gpus_checking"), "{{node}} checking"),
          Query("increase(" + metric("lockstep_node_gpu_checks_total")
                + "[1h])", "{{node}} {{result}}")),
    graph("Imbalance", "percentunit",
          "Busiest minus idlest GPU of the node.",
          Query("max by (node) (" + metric("lockstep_gpu_utilization_ratio")
                + ") - min by (node) ("
                + metric("lockstep_gpu_utilization_ratio") + ")", "{{node}}"),
          maximum=1),
    graph("GPU memory in use", "percentunit",
          "Used by programs and the driver, as a share of all memory.",
          Query("(" + metric("lockstep_gpu_memory_used_bytes") + " + "
                + metric("lockstep_gpu_memory_reserved_bytes") + ") / "
                + metric("lockstep_gpu_memory_total_bytes"), GPU),
          maximum=1),
    graph("GPU memory free", "bytes", "By GPU.",
          Query(metric("lockstep_gpu_memory_free_bytes"), GPU)),
    graph("Power", "watt", "By GPU, and its limit.",
          Query(metric("lockstep_gpu_power_watts"), GPU),
          Query("max by (node) (" + metric("lockstep_gpu_power_limit_watts")
                + ")", "{{node}} limit")),
    graph("Temperature", "celsius", "By sensor.",
          Query(metric("lockstep_gpu_temperature_celsius"),
                GPU + " {{sensor}}"), steps=[(85, YELLOW), (95, RED)]),
    graph("Clocks", "percentunit", "As a share of the maximum, by domain.",
          Query(metric("lockstep_gpu_clock_hertz") + " / "
                + metric("lockstep_gpu_clock_max_hertz"),
                GPU + " {{domain}}"), maximum=1),
    graph("Slowed down", "percentunit", "Share of the time, by reason.",
          Query(rate("lockstep_gpu_throttle_seconds_total",
                     "node, gpu, reason"), GPU + " {{reason}}"), maximum=1),
    timeline("Slowed down now", "By reason.",
             Query("max by (node, gpu, reason) ("
                   + metric("lockstep_gpu_throttle_active") + ") > 0",
                   GPU + " {{reason}}"), no_value="none"),
    graph("Energy", "watt", "From the energy counter, by node.",
          Query(rate("lockstep_gpu_energy_joules_total", "node"),
                "{{node}}")),
    graph("PCIe", "Bps", "By direction.",
          Query(metric("lockstep_gpu_pcie_bytes_per_second"),
                GPU + " {{direction}}")),
    table("PCIe links", "none", "Generation and lanes now.",
          Query("max by (node, gpu) ("
                + metric("lockstep_gpu_pcie_link_generation") + ")", "",
                instant=True),
          Query("max by (node, gpu) ("
                + metric("lockstep_gpu_pcie_link_width") + ")", "",
                instant=True)),
    graph("NVLink", "Bps", "Of all links, by direction.",
          Query(rate("lockstep_gpu_nvlink_bytes_total",
                     "node, gpu, direction"), GPU + " {{direction}}"),
          no_value="no NVLink"),
    graph("Errors", "none", "In the last hour.",
          Query("sum by (node, gpu, severity) (increase("
                + metric("lockstep_gpu_ecc_errors_total") + "[1h]))",
                GPU + " ECC {{severity}}"),
          Query("sum by (node, gpu, xid) (increase("
                + metric("lockstep_gpu_xid_errors_total") + "[1h]))",
                GPU + " Xid {{xid}}"),
          Query("sum by (node, gpu) (increase("
                + metric("lockstep_gpu_pcie_replays_total") + "[1h]))",
                GPU + " PCIe replays"),
          Query("sum by (node, gpu, kind) (increase("
                + metric("lockstep_gpu_nvlink_errors_total") + "[1h]))",
                GPU + " NVLink {{kind}}"),
          steps=[(1, RED)]),
    graph("Rows of memory replaced", "none",
          "In the GPU's life, by cause; and whether some wait for a reset or "
          "could not be replaced.",
          Query(metric("lockstep_gpu_remapped_rows"),
                GPU + " {{severity}}"),
          Query(metric("lockstep_gpu_row_remap_pending"), GPU + " waiting"),
          Query(metric("lockstep_gpu_row_remap_failure"), GPU + " failed")),
    graph("Reading the GPUs", "s",
          "Time of one reading, and how old the newest is: that grows when "
          "the driver hangs.",
          Query(metric("lockstep_gpu_sampler_age_seconds"), "{{node}} age"),
          Query(rate("lockstep_gpu_sample_seconds_total", "node") + " / "
                + rate("lockstep_gpu_samples_total", "node"),
                "{{node}} reading")),
]

TASKS = [
    graph("CPU by rank", "none", "Cores in use.",
          Query(rate("lockstep_task_cpu_seconds_total",
                     "node, job_id, rank"), "{{job_id}} rank {{rank}}"),
          links=[TO_JOB]),
    graph("Memory by rank", "bytes", "Resident.",
          Query(metric("lockstep_task_memory_bytes"),
                "{{job_id}} rank {{rank}}"), links=[TO_JOB]),
    graph("Storage by rank", "Bps", "Read and written.",
          Query(rate("lockstep_task_io_bytes_total",
                     "node, job_id, rank, direction"),
                "{{job_id}} rank {{rank}} {{direction}}"), links=[TO_JOB]),
    table("Ranks", "none",
          "Current and recent ranks, with the restarts of their job.",
          Query("max by (node, job_id, role, index, rank) ("
                + metric("lockstep_task_restarts_total") + ")", "",
                instant=True), width=12, links=[TO_JOB], no_value="none"),
    table("GPUs by job", "none", "GPUs allocated to jobs.",
          Query("max by (node, gpu, job_id, rank) ("
                + metric("lockstep_gpu_allocation") + ")", "", instant=True),
          hide=("Value",), width=12, links=[TO_JOB], no_value="none held"),
]

DASHBOARD = dashboard(
    NODE, "lockstep / Node", __doc__,
    [variable("cluster", "Cluster", "label_values(lockstep_leader, cluster)"),
     variable("node", "Node",
              'label_values(lockstep_node_state{cluster=~"$cluster"}, node)',
              every=".+")],
    [("State", STATE), ("Host", HOST), ("GPUs", GPUS), ("Ranks", TASKS)],
    [annotation("Xid errors",
                "sum by (node, gpu, xid) (changes("
                + metric("lockstep_gpu_xid_errors_total") + "[1m])) > 0",
                RED, "Xid {{xid}}", "GPU {{gpu}} of {{node}}")])
