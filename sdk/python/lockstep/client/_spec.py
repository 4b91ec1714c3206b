"""Makes the JobSpec that is submitted: the defaults are those of the command."""

from __future__ import annotations

import datetime
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Union

from lockstep.client._schema import Schema
from lockstep.errors import InvalidArgumentError

# Seconds, or a timedelta.
Seconds = Union[int, float, datetime.timedelta]
# Bytes, or a text such as "2GiB".
Size = Union[int, str]

_LONGEST_STEM = 40
_UNITS = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def bad(argument: str, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{argument}: {text}", code="INVALID_ARGUMENT")


def job_name(program: str, random: str) -> str:
    """Returns a name from a program's name without the part after the first "."."""
    stem = os.path.basename(program).split(".")[0]
    stem = re.sub("[^A-Za-z0-9_-]", "-", stem)
    if not re.match("[A-Za-z]", stem):
        stem = "job-" + stem if stem else "job"
    return f"{stem[:_LONGEST_STEM]}-{random}"


def size_bytes(argument: str, value: Size) -> int:
    """Returns bytes of 1024 or "2GiB"."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
        if match and match[2].upper() in _UNITS:
            return int(float(match[1]) * _UNITS[match[2].upper()])
        raise bad(argument, f'"{value}" is not a size; give bytes, or a text as "2GiB"')
    return value


def seconds(argument: str, value: Seconds) -> float:
    """Returns seconds, which are finite and not negative."""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise bad(argument, f"{value!r} is neither seconds nor a timedelta")
    if not math.isfinite(value) or value < 0:
        raise bad(argument, f"{value} is not a time in seconds")
    return value


def _set_duration(field: Any, argument: str, value: Seconds | None) -> None:
    if value is None:
        return
    whole, part = divmod(seconds(argument, value), 1)
    field.seconds = int(whole)
    field.nanos = int(part * 1e9)


def _check_command(command: Sequence[str]) -> list[str]:
    if isinstance(command, (str, bytes)):
        raise bad("command", 'is one text; give a list: ["python3", "train.py"]')
    argv = [os.fspath(part) for part in command]
    if not argv or not argv[0]:
        raise bad("command", "is empty: name the program to run")
    for part in argv:
        if not isinstance(part, str):
            raise bad("command", f"{part!r} is not a text")
    if "/" in argv[0]:
        argv[0] = os.path.abspath(argv[0])
    return argv


def _kind(schema: Schema, kind: str | None, argv: Sequence[str]) -> int:
    trainer = bool(argv) and os.path.basename(argv[0]) == "lockstep-train"
    name = kind or ("native" if trainer else "program")
    if name not in ("native", "program"):
        raise bad("kind", f'"{name}" is neither native nor program')
    return schema.enum_value("JobKind", "JOB_KIND_" + name.upper())


def _add_roles(spec: Any, schema: Schema, tasks: int | None, workers: int | None) -> None:
    if tasks is not None and workers is not None:
        raise bad("tasks", "excludes workers: tasks are a chief and workers")
    count = tasks if tasks is not None else workers if workers is not None else 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise bad("tasks" if workers is None else "workers", f"{count} is not 1 or more")
    if workers is None:
        spec.roles.add(type=schema.enum_value("TaskType", "TASK_TYPE_CHIEF"), count=1)
        count -= 1
    if count > 0:
        worker = schema.enum_value("TaskType", "TASK_TYPE_WORKER")
        spec.roles.add(type=worker, count=count)


def _set_resources(
    role: Any,
    ranks_per_task: int | None,
    cpus: float | None,
    memory: Size | None,
    gpus: int | None,
    gpu_type: str | None,
) -> None:
    if ranks_per_task is not None:
        if ranks_per_task < 1:
            raise bad("ranks_per_task", f"{ranks_per_task} is not 1 or more")
        role.ranks_per_task = ranks_per_task
    resources = role.resources
    resources.cpus = max(1, role.ranks_per_task) if cpus is None else cpus
    if memory is not None:
        resources.memory_bytes = size_bytes("memory", memory)
    if gpus is not None:
        if gpus < 0:
            raise bad("gpus", f"{gpus} is less than 0")
        resources.gpus = gpus
    if gpu_type:
        resources.gpu_type = gpu_type


def _set_texts(target: Any, argument: str, values: Mapping[str, Any] | None, fix: str) -> None:
    for name, value in (values or {}).items():
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise bad(argument, f"{name} is {value!r}; {fix}")
        target[name] = str(value)


def _set_paths(spec: Any, schema: Schema, output: str | None, workdir: str | None) -> None:
    native = spec.kind == schema.enum_value("JobKind", "JOB_KIND_NATIVE")
    home = os.environ.get("HOME", "")
    if output is not None:
        spec.output_directory = os.path.abspath(output) if output else ""
    elif native and home:
        spec.output_directory = f"{home}/lockstep/{spec.name}"
    if workdir == "output":
        if not spec.output_directory:
            raise bad("workdir", 'is "output", but the job has no output directory')
        spec.working_directory = spec.output_directory
    elif workdir is not None:
        spec.working_directory = os.path.abspath(workdir)


def set_interpreter(
    spec: Any, argv: Sequence[str], python: str | None, runtime: str | None
) -> None:
    """Names the interpreter of the job's packages.

    Without ``python`` and ``runtime`` it is the command's own, if that has a
    path, else the site's default.
    """
    if python and runtime:
        raise bad("python", "excludes runtime, which names an interpreter of the site")
    own = bool(argv) and re.fullmatch(r"/.*/python[0-9.]*", argv[0]) is not None
    if python:
        spec.runtime.python = python
    elif runtime:
        spec.runtime.name = runtime
    elif spec.packages and own:
        spec.runtime.python = argv[0]


def build(
    schema: Schema,
    command: Sequence[str],
    random: str,
    *,
    name: str | None = None,
    kind: str | None = None,
    tasks: int | None = None,
    workers: int | None = None,
    ranks_per_task: int | None = None,
    cpus: float | None = None,
    memory: Size | None = None,
    gpus: int | None = None,
    gpu_type: str | None = None,
    pool: str | None = None,
    image: str | None = None,
    env: Mapping[str, Any] | None = None,
    slurm_env: bool = False,
    workdir: str | None = None,
    output: str | None = None,
    checkpoint_interval_steps: int | None = None,
    checkpoint_keep: int | None = None,
    max_restarts: int | None = None,
    priority: int | None = None,
    time_limit: Seconds | None = None,
    wait_limit: Seconds | None = None,
    end_with: str | None = None,
    end_grace: Seconds | None = None,
    hang: str | None = None,
    stall_after: Seconds | None = None,
    progress_pattern: str | None = None,
    node_lost_timeout: str | Seconds | None = None,
    idle_notice: Seconds | None = None,
    idle_stop: Seconds | None = None,
    warm_starts: bool = False,
    spares: int = 0,
    hold: Seconds | None = None,
    elastic: int = 0,
    rescale: bool = False,
    labels: Mapping[str, Any] | None = None,
    comment: str | None = None,
) -> Any:
    """Returns a JobSpec without packages. InvalidArgumentError names the argument."""
    argv = _check_command(command) if (command or not image) else []
    spec = schema.message("JobSpec")(argv=argv)
    spec.kind = _kind(schema, kind, argv)
    _add_roles(spec, schema, tasks, workers)
    for role in spec.roles:
        _set_resources(role, ranks_per_task, cpus, memory, gpus, gpu_type)
        if image:
            role.container.image = image
    _set_texts(spec.environment, "env", env, "give a text")
    _set_texts(spec.labels, "labels", labels, "give a text")
    spec.slurm_environment = slurm_env
    if checkpoint_interval_steps is not None:
        spec.checkpoint.interval_steps = checkpoint_interval_steps
    if checkpoint_keep is not None:
        spec.checkpoint.keep = checkpoint_keep
    if max_restarts is not None:
        spec.restart_budget = max_restarts
    if priority is not None:
        spec.priority = priority
    if time_limit is not None:
        _set_duration(spec.max_running_time, "time_limit", time_limit)
    if wait_limit is not None:
        _set_duration(spec.max_wait_time, "wait_limit", wait_limit)
    if end_grace is not None:
        _set_duration(spec.end_grace, "end_grace", end_grace)
    if end_with is not None:
        if end_with not in ("all", "chief"):
            raise bad("end_with", f'"{end_with}" is neither all nor chief')
        spec.end_with = schema.enum_value("EndWith", "END_WITH_" + end_with.upper())
    if hang is not None:
        if hang not in ("warn", "restart", "off"):
            raise bad("hang", f'"{hang}" is none of warn, restart and off')
        spec.hang = schema.enum_value("HangPolicy", "HANG_POLICY_" + hang.upper())
    if stall_after is not None:
        _set_duration(spec.stall_after, "stall_after", stall_after)
    spec.progress_pattern = progress_pattern or ""
    if node_lost_timeout in ("auto", "never"):
        name_of_it = "NODE_LOSS_" + str(node_lost_timeout).upper()
        spec.node_loss = schema.enum_value("NodeLoss", name_of_it)
    elif isinstance(node_lost_timeout, str):
        text = f'"{node_lost_timeout}" is neither auto nor never: give one of them, or seconds'
        raise bad("node_lost_timeout", text)
    elif node_lost_timeout is not None:
        _set_duration(spec.node_lost_timeout, "node_lost_timeout", node_lost_timeout)
    if idle_notice is not None:
        spec.idle_notice.SetInParent()
        _set_duration(spec.idle_notice, "idle_notice", idle_notice)
    if idle_stop is not None:
        spec.idle_stop.SetInParent()
        _set_duration(spec.idle_stop, "idle_stop", idle_stop)
    spec.warm_starts = warm_starts
    spec.spares = spares
    spec.elastic_min_tasks = elastic
    spec.rescale = rescale
    if hold is not None:
        spec.hold.SetInParent()
        _set_duration(spec.hold, "hold", hold)
    spec.pool = pool or ""
    spec.comment = comment or ""
    spec.name = name or job_name(argv[0] if argv else str(image), random)
    _set_paths(spec, schema, output, workdir)
    return spec
