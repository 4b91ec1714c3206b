"""Resources of a cluster, their use, waiting jobs, broken nodes."""

from grafana import (CLUSTER, RED, TO_JOB, TO_NODE, YELLOW, Query, annotation,
                     dashboard, graph, number, table, variable)

ALL = 'cluster=~"$cluster"'
POOL = ALL + ',pool=~"$pool"'

GPU_CAPACITY = f'sum(lockstep_resources_capacity{{{POOL},resource="gpu"}})'
GPU_ALLOCATED = f'sum(lockstep_resources_allocated{{{POOL},resource="gpu"}})'


def quantile(share, metric, labels, *by):
    return (f"histogram_quantile({share}, sum by ({', '.join(('le',) + by)}) "
            f"(rate({metric}_bucket{{{labels}}}[$__rate_interval])))")


NOW = [
    number("GPUs", "none", "GPUs of all nodes of these pools.",
           Query(GPU_CAPACITY, "GPUs"), width=3),
    number("GPUs in jobs", "none", "GPUs that jobs hold, busy or not.",
           Query(GPU_ALLOCATED, "in jobs"), width=3),
    number("GPUs useful", "percentunit",
           "Share of all GPUs that made lasting progress: GPUs in jobs, "
           "each weighted by the goodput of its job.",
           Query(f"avg(cluster:lockstep_gpu_useful:ratio{{{ALL}}})", "useful"),
           width=3, minimum=0, maximum=1),
    number("Nodes ready", "none", "Nodes that take work.",
           Query(f'sum(lockstep_nodes{{{POOL},state="ready"}})', "ready"),
           width=3),
    number("Nodes away", "none",
           "Nodes that are silent, lost or not in use.",
           Query('sum(lockstep_nodes{' + POOL +
                 ',state=~"unknown|lost|quarantined"})', "away"),
           width=3, steps=[(1, RED)]),
    number("Jobs running", "none", "Jobs in RUNNING.",
           Query(f'sum(lockstep_queue_jobs{{{ALL},state="running"}})',
                 "running"), width=3),
    number("Jobs waiting", "none", "Jobs in the queue.",
           Query(f'sum(lockstep_queue_jobs{{{ALL},state="pending"}})',
                 "waiting"), width=3),
    number("Alerts", "none", "Alerts of lockstep that are firing.",
           Query('count(ALERTS{alertname=~"Lockstep.+",alertstate="firing",'
                 'severity!="info"}) or vector(0)', "firing"),
           width=3, steps=[(1, RED)]),
]

USE = [
    graph("GPUs: in jobs and useful", "percentunit",
          "Allocated GPUs, and those that made lasting progress. The space "
          "between the lines is wasted.",
          Query(f"avg(cluster:lockstep_gpu_allocated:ratio{{{ALL}}})",
                "in jobs"),
          Query(f"avg(cluster:lockstep_gpu_useful:ratio{{{ALL}}})", "useful"),
          maximum=1),
    graph("GPU utilization by node", "percentunit",
          "Time with a running kernel, mean of a node's GPUs.",
          Query(f"avg by (node) (lockstep_gpu_utilization_ratio{{{POOL}}})",
                "{{node}}"), maximum=1, links=[TO_NODE]),
    graph("Imbalance between GPUs of a node", "percentunit",
          "Busiest minus idlest GPU of the same node. Even load keeps "
          "this near 0.",
          Query("max by (node) (lockstep_gpu_utilization_ratio{%s}) - min by "
                "(node) (lockstep_gpu_utilization_ratio{%s})" % (POOL, POOL),
                "{{node}}"), maximum=1, links=[TO_NODE]),
    graph("CPU utilization by node", "percentunit",
          "Time in which cores were neither idle nor waiting for a disk.",
          Query("1 - sum by (node) (rate(lockstep_host_cpu_seconds_total{"
                + POOL + ',mode=~"idle|iowait"}[$__rate_interval])) / '
                "sum by (node) (rate(lockstep_host_cpu_seconds_total{" + POOL +
                "}[$__rate_interval]))", "{{node}}"),
          maximum=1, links=[TO_NODE]),
    graph("Allocated", "percentunit", "Share of each resource that jobs hold.",
          Query(f"sum by (resource) (lockstep_resources_allocated{{{POOL}}}) /"
                f" (sum by (resource) (lockstep_resources_capacity{{{POOL}}})"
                " > 0)", "{{resource}}"), maximum=1),
    graph("Power", "watt", "All GPUs, by pool.",
          Query(f"sum by (pool) (lockstep_gpu_power_watts{{{POOL}}})",
                "{{pool}}"), stacked=True),
    graph("Idle resources by reason", "none",
          "GPUs and cores without work, by cause: free, drained, or allocated "
          "to a stalled job.",
          Query("sum by (resource, reason) (rate("
                "lockstep_idle_resource_seconds_total{" + POOL +
                ',resource=~"gpu|cpu"}[$__rate_interval]))',
                "{{resource}} {{reason}}")),
    graph("Cost", "none",
          "Per hour at the site's prices, idle or not, in the site's "
          "currency.",
          Query("sum by (currency) (rate(lockstep_job_cost_total{" + ALL +
                "}[$__rate_interval])) * 3600", "{{currency}} per hour")),
]

QUEUE = [
    graph("Queue", "none", "Queued jobs and placed jobs.",
          Query(f"sum by (state) (lockstep_queue_jobs{{{ALL}}})",
                "{{state}}"), stacked=True),
    graph("Oldest wait", "s", "Waiting time of the longest waiting job.",
          Query(f"max by (queue) (lockstep_queue_oldest_pending_seconds"
                f"{{{ALL}}})", "{{queue}}"), steps=[(3600, YELLOW)]),
    graph("Launch, median by phase", "s",
          "From submission to the first step, by phase.",
          Query(quantile(0.5, "lockstep_job_launch_seconds", ALL, "phase"),
                "{{phase}}")),
    graph("Launch, 95th percentile by phase", "s",
          "One launch in twenty takes longer from submission to first step.",
          Query(quantile(0.95, "lockstep_job_launch_seconds", ALL, "phase"),
                "{{phase}}")),
    graph("Scheduling passes", "s", "99th percentile of a pass over the queue.",
          Query(quantile(0.99, "lockstep_scheduler_pass_seconds", ALL),
                "a pass")),
    graph("Scattered free GPUs", "percentunit",
          "Share of the free GPUs that a gang of 8 on one host cannot use, by "
          "pool.",
          Query(f"lockstep_scheduler_fragmentation_ratio{{{POOL}}}",
                "{{pool}}"), maximum=1, no_value="no GPU"),
    graph("Share of the queues", "percentunit",
          "Share of allocated resources that a queue has, and should have.",
          Query(f"lockstep_queue_share_actual_ratio{{{ALL}}}", "{{queue}}"),
          Query(f"lockstep_queue_share_target_ratio{{{ALL}}}",
                "{{queue}} should"), maximum=1),
    graph("Placements", "ops",
          "Placement attempts per second, by result. A waiting job "
          "counts in each pass.",
          Query("sum by (result) (rate(lockstep_scheduler_placements_total{"
                + ALL + "}[$__rate_interval]))", "{{result}}")),
]

JOBS = [
    graph("Goodput by job", "percentunit",
          "Share of a job's time that made lasting progress.",
          Query(f"job:lockstep_goodput:ratio1h{{{ALL}}}", "{{job_id}}"),
          maximum=1, links=[TO_JOB]),
    graph("Restarts", "none", "In the last hour, by job and reason.",
          Query("sum by (job_id, reason) (increase("
                f"lockstep_job_restarts_total{{{ALL}}}[1h])) > 0",
                "{{job_id}} {{reason}}"), links=[TO_JOB],
          no_value="none"),
    table("Most GPU-hours without progress", "h",
          "GPU-hours that a job held in the chosen time without progress.",
          Query("topk(10, sum by (job_id) (increase("
                "lockstep_job_resource_seconds_total{" + ALL +
                ',resource="gpu"}[$__range])) / 3600 * on (job_id) (1 - avg '
                f"by (job_id) (job:lockstep_goodput:ratio1h{{{ALL}}})))",
                "", instant=True), links=[TO_JOB]),
    graph("Jobs by state", "none", "Ended jobs included.",
          Query(f"sum by (state) (lockstep_jobs{{{ALL}}})", "{{state}}"),
          stacked=True),
    table("Jobs", "none", "Current and recent jobs with owner and size.",
          Query(f"lockstep_job_info{{{ALL}}}", "", instant=True),
          hide=("Value", "__name__", "job", "instance", "cluster"), width=16,
          links=[TO_JOB]),
    graph("Recovery time", "s",
          "Mean time from a failure to new steps, by phase.",
          Query("sum by (phase) (rate(lockstep_job_recovery_seconds_sum{"
                + ALL + "}[$__range])) / sum by (phase) (rate("
                "lockstep_job_recovery_seconds_count{" + ALL +
                "}[$__range])) >= 0", "{{phase}}"), no_value="no recovery"),
    graph("Recovery in place", "s",
          "Mean time from the decision to replace ranks until all train again, "
          "by phase, while the other ranks stay.",
          Query("sum by (phase) (rate(lockstep_in_place_recovery_seconds_sum{"
                + ALL + "}[$__range])) / sum by (phase) (rate("
                "lockstep_in_place_recovery_seconds_count{" + ALL +
                "}[$__range])) >= 0", "{{phase}}"), no_value="no recovery"),
    graph("Recoveries in place", "none",
          "Number by what was replaced: ranks, the node of ranks, or the "
          "connections alone; of elastic jobs, ranks that the others train "
          "without (smaller) and their return.",
          Query("sum by (kind) (increase(lockstep_in_place_recoveries_total{"
                + ALL + "}[$__rate_interval]))", "{{kind}}"), stacked=True),
]

NODES = [
    graph("Nodes by state", "none", "All nodes that the coordinator knows.",
          Query(f"sum by (state) (lockstep_nodes{{{POOL}}})", "{{state}}"),
          stacked=True),
    table("Nodes that are not ready", "none", "With their states.",
          Query('lockstep_node_state{' + ALL + ',state!="ready"} == 1', "",
                instant=True),
          hide=("Value", "__name__", "job", "instance", "cluster"),
          no_value="all ready", links=[TO_NODE]),
    graph("Since the last heartbeat", "s", "By node.",
          Query("time() - lockstep_node_last_heartbeat_timestamp_seconds{"
                + ALL + "}", "{{node}}"), links=[TO_NODE]),
    graph("Answers to heartbeats", "s",
          "Median and 99th percentile from a heartbeat to its answer, by "
          "pool. High values mean a slow network or an overloaded coordinator.",
          Query(quantile(0.5, "lockstep_node_heartbeat_rtt_seconds", POOL,
                         "pool"), "{{pool}} median"),
          Query(quantile(0.99, "lockstep_node_heartbeat_rtt_seconds", POOL,
                         "pool"), "{{pool}} 99th percentile")),
    graph("Jobs by node", "none", "Jobs with resources of the node.",
          Query(f"sum by (node) (lockstep_node_jobs{{{ALL}}})", "{{node}}"),
          links=[TO_NODE]),
    graph("Node failures", "none",
          "How often in the last hour a node became unknown, lost or "
          "quarantined.",
          Query("sum by (pool, reason) (increase("
                f"lockstep_node_failures_total{{{POOL}}}[1h]))",
                "{{pool}} {{reason}}")),
    graph("Price of all nodes", "none", "Per hour, by pool, idle included.",
          Query(f"sum by (pool, currency) (lockstep_node_price_per_hour"
                f"{{{POOL}}})", "{{pool}} {{currency}}")),
    table("Nodes", "none", "Pool, and version of the worker daemon.",
          Query(f"lockstep_node_info{{{POOL}}}", "", instant=True),
          hide=("Value", "__name__", "job", "instance", "cluster"),
          links=[TO_NODE]),
]

CONTROL = [
    graph("Calls", "reqps", "Handled per second, by method.",
          Query("sum by (grpc_method) (rate(grpc_server_handled_total{"
                + ALL + "}[$__rate_interval]))", "{{grpc_method}}")),
    graph("Calls that failed", "reqps", "Per second, by method and code.",
          Query("sum by (grpc_method, grpc_code) (rate("
                "grpc_server_handled_total{" + ALL +
                ',grpc_code!="OK"}[$__rate_interval])) > 0',
                "{{grpc_method}} {{grpc_code}}"), no_value="none"),
    graph("Time of a call", "s", "99th percentile by method.",
          Query(quantile(0.99, "grpc_server_handling_seconds", ALL,
                         "grpc_method"), "{{grpc_method}}")),
    graph("Calls in progress", "none",
          "Unanswered calls: streams of workers, watches and logs.",
          Query("sum by (grpc_method) (grpc_server_started_total{" + ALL +
                "}) - sum by (grpc_method) (grpc_server_handled_total{" + ALL +
                "})", "{{grpc_method}}")),
    graph("Streams", "none",
          "Open streams of clients that watch jobs or read logs, and of worker "
          "daemons.",
          Query(f"sum by (kind) (lockstep_watch_streams{{{ALL}}})",
                "{{kind}}")),
    graph("Readers that are behind", "none",
          "Events that the slowest reader lacks: changes of jobs, log lines, "
          "messages to a worker daemon.",
          Query(f"max by (kind) (lockstep_watch_lag_events{{{ALL}}})",
                "{{kind}}"), steps=[(1000, YELLOW)]),
    graph("Memory for slow readers", "bytes",
          "Changes of jobs and lines of logs that wait for their readers.",
          Query(f"lockstep_watch_kept_bytes{{{ALL}}}", "kept")),
    graph("Streams ended for slow readers", "none",
          "In the last hour. stalled: the reader was idle for a minute; "
          "memory: too much was kept for its user.",
          Query("increase(lockstep_watch_ended_total{" + ALL + "}[1h])",
                "{{why}}"), steps=[(1, YELLOW)]),
    graph("Transactions of the store", "s", "Their duration.",
          Query(quantile(0.5, "lockstep_state_commit_seconds", ALL),
                "median"),
          Query(quantile(0.99, "lockstep_state_commit_seconds", ALL),
                "99th percentile")),
    graph("Transactions that failed", "none", "In the last hour.",
          Query("increase(lockstep_state_commit_failures_total{" + ALL +
                "}[1h])", "failed"), steps=[(1, RED)]),
    graph("Events", "ops", "Per second, by type.",
          Query("sum by (type) (rate(lockstep_events_total{" + ALL +
                "}[$__rate_interval]))", "{{type}}")),
    graph("Packages of code", "bytes", "Stored packages of jobs.",
          Query(f"sum by (cluster) (lockstep_package_bytes{{{ALL}}})",
                "bytes")),
    graph("Uploads of packages", "none",
          "In the last hour, by result.",
          Query("sum by (result) (increase(lockstep_package_uploads_total{" +
                ALL + "}[1h]))", "{{result}}")),
    graph("Leaders", "none", "1, always.",
          Query(f"sum by (cluster) (lockstep_leader{{{ALL}}})", "leaders"),
          steps=[(2, RED)]),
    table("Versions", "none", "Versions of the daemons.",
          Query("lockstep_build_info{" + ALL + "}", "", instant=True),
          hide=("Value", "__name__", "cluster")),
    graph("Time since the daemons started", "s", "By process.",
          Query("time() - process_start_time_seconds{" + ALL +
                ',job=~"lockstep-.*"}', "{{job}} {{instance}}")),
    graph("Memory of the daemons", "bytes", "Resident, by process.",
          Query("process_resident_memory_bytes{" + ALL +
                ',job=~"lockstep-.*"}', "{{job}} {{instance}}")),
    graph("CPU of the daemons", "percentunit", "Cores' time, by process.",
          Query("rate(process_cpu_seconds_total{" + ALL +
                ',job=~"lockstep-.*"}[$__rate_interval])',
                "{{job}} {{instance}}")),
]

DASHBOARD = dashboard(
    CLUSTER, "lockstep / Cluster", __doc__,
    [variable("cluster", "Cluster", "label_values(lockstep_leader, cluster)"),
     variable("pool", "Pool",
              f"label_values(lockstep_nodes{{{ALL}}}, pool)")],
    [("Now", NOW), ("Use", USE), ("Queue", QUEUE), ("Jobs", JOBS),
     ("Nodes", NODES), ("Coordinator", CONTROL)],
    [annotation("Restarts",
                "sum by (job_id, reason) (changes("
                f"lockstep_job_restarts_total{{{ALL}}}[1m])) > 0",
                RED, "Restart of {{job_id}}", "{{reason}}")])
