"""What the coordinator knows of jobs, nodes and log lines, as values."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from lockstep.client._schema import Schema

FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class Progress:
    """The chief's progress; programs that report none have step 0.

    Attributes:
      step: committed steps, or the current one if none is committed.
      total_steps: planned steps; 0 if unknown.
      samples_per_second: over all ranks; 0 before the first measurement.
      loss: the chief's last loss; None before the first step.
      eta_seconds: seconds to the end; None if unknown.
      phase: what the chief does now: "compute", "allreduce", ...
    """

    step: int
    total_steps: int
    samples_per_second: float
    loss: float | None
    eta_seconds: float | None
    phase: str


@dataclasses.dataclass(frozen=True)
class RankStatus:
    """One process of a job.

    Attributes:
      rank: its number within the job.
      task: its task, "master-replica-0" or "worker-replica-1".
      node: the node that it runs on.
      state: PREPARED, STARTED, JOINED or EXITED.
      exit_code: None while it runs, and if a signal ended it.
      signal: the number of the signal that ended it, or None.
      message: why it failed, as its program said, or "".
      location: where that was raised, "train.py:12", or "".
      victim: it ended because another rank did.
      end_time: when it ended, or None.
    """

    rank: int
    task: str
    node: str
    state: str
    exit_code: int | None
    signal: int | None
    message: str
    location: str
    victim: bool
    end_time: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """A job at one moment. Times are UTC.

    Attributes:
      state: QUEUED, PLACING, PREPARING, FORMING, RUNNING, FINISHING, SUCCEEDED,
        FAILED or CANCELLED.
      reason: the cause for programs, "NO_CAPACITY" or "RANK_EXIT".
      message: the cause for people, one sentence.
      exit_code: of a command that waits for the job: 0, or the first failure's.
      attempt: counts the starts of the whole gang, from 1; 0 before the first.
      recoveries: how often ranks were replaced while the others stayed.
      committed_step: the last step in a checkpoint, or None.
      ranks: the processes of the current attempt; empty in lists.
    """

    name: str
    state: str
    reason: str
    message: str
    owner: str
    exit_code: int
    attempt: int
    restarts: int
    recoveries: int
    create_time: datetime.datetime | None
    start_time: datetime.datetime | None
    end_time: datetime.datetime | None
    committed_step: int | None
    output_directory: str
    labels: dict[str, str]
    progress: Progress | None
    ranks: tuple[RankStatus, ...]
    _proto: Any = dataclasses.field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """True in a final state: SUCCEEDED, FAILED or CANCELLED."""
        return self.state in FINAL_STATES

    def to_dict(self) -> dict[str, Any]:
        """Returns all that the API knows of the job, in protobuf's JSON mapping."""
        return _to_dict(self._proto)


@dataclasses.dataclass(frozen=True)
class NodeStatus:
    """A node at one moment. Sizes are bytes, CPU is in cores.

    Attributes:
      state: READY, UNKNOWN, LOST, DRAINING, DRAINED or QUARANTINED.
      message: why it is not READY, or "".
      cpus, memory_bytes, gpus: what it offers.
      free_cpus, free_memory_bytes, free_gpus: what no job has reserved.
      jobs: the names of the jobs that run there.
    """

    name: str
    state: str
    message: str
    pool: str
    cpus: float
    memory_bytes: int
    gpus: int
    free_cpus: float
    free_memory_bytes: int
    free_gpus: int
    gpu_models: tuple[str, ...]
    jobs: tuple[str, ...]
    _proto: Any = dataclasses.field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns all that the API knows of the node, in protobuf's JSON mapping."""
        return _to_dict(self._proto)


@dataclasses.dataclass(frozen=True)
class LogLine:
    """A line that a rank wrote; ``str(line)`` is its text.

    Attributes:
      text: without the newline; bytes that are not UTF-8 become U+FFFD.
      rank: the number of the process; -1 for an event of the job.
      task: "worker-replica-1", or "service" for an event.
      stream: "stdout" or "stderr".
      severity: DEBUG, INFO, WARNING, ERROR or CRITICAL, guessed from the text.
      time: when the worker daemon read it, UTC.
    """

    text: str
    rank: int
    attempt: int
    task: str
    stream: str
    severity: str
    time: datetime.datetime

    def __str__(self) -> str:
        return self.text


def _to_dict(proto: Any) -> dict[str, Any]:
    from google.protobuf import json_format

    out: dict[str, Any] = json_format.MessageToDict(proto)
    return out


def time_of(message: Any, field: str) -> datetime.datetime | None:
    if not message.HasField(field):
        return None
    value = getattr(message, field)
    moment = datetime.datetime.fromtimestamp(value.seconds, datetime.timezone.utc)
    return moment.replace(microsecond=value.nanos // 1000)


def progress_of(progress: Any) -> Progress | None:
    """Reads a JobProgress; None if no rank has reported."""
    if not progress.HasField("chief"):
        return None
    chief = progress.chief
    step = chief.committed_step if chief.committed_step > 0 else max(0, chief.step)
    eta = progress.eta.seconds + progress.eta.nanos / 1e9
    return Progress(
        step=step,
        total_steps=chief.total_steps,
        samples_per_second=progress.samples_per_second,
        loss=chief.loss if step > 0 else None,
        eta_seconds=eta if progress.HasField("eta") else None,
        phase=chief.phase,
    )


def _task_name(schema: Schema, task: Any) -> str:
    kind = schema.enum_name("TaskType", task.type).lower()
    return f"{'master' if kind == 'chief' else kind}-replica-{task.index}"


def _rank(schema: Schema, task: Any, rank: Any) -> RankStatus:
    exit_ = rank.exit
    how = exit_.WhichOneof("how")
    return RankStatus(
        rank=rank.rank,
        task=_task_name(schema, task),
        node=task.node,
        state=schema.enum_name("RankState", rank.state),
        exit_code=exit_.code if how == "code" else None,
        signal=exit_.signal if how == "signal" else None,
        message=exit_.message,
        location=exit_.location,
        victim=exit_.victim,
        end_time=time_of(exit_, "end_time"),
    )


def job_of(schema: Schema, job: Any) -> JobStatus:
    return JobStatus(
        name=job.name,
        state=schema.enum_name("JobState", job.state),
        reason=schema.enum_name("Reason", job.cause.reason) if job.cause.reason else "",
        message=job.cause.message,
        owner=job.owner,
        exit_code=job.exit_code,
        attempt=job.attempt,
        restarts=job.restarts,
        recoveries=job.recoveries,
        create_time=time_of(job, "create_time"),
        start_time=time_of(job, "start_time"),
        end_time=time_of(job, "end_time"),
        committed_step=job.committed_step if job.HasField("committed_step") else None,
        output_directory=job.spec.output_directory,
        labels=dict(job.spec.labels),
        progress=progress_of(job.progress),
        ranks=tuple(_rank(schema, task, rank) for task in job.tasks for rank in task.ranks),
        _proto=job,
    )


def node_of(schema: Schema, node: Any) -> NodeStatus:
    has, used = node.capacity, node.allocated
    return NodeStatus(
        name=node.name,
        state=schema.enum_name("NodeState", node.state),
        message=node.message,
        pool=node.pool,
        cpus=has.cpus,
        memory_bytes=has.memory_bytes,
        gpus=has.gpus,
        free_cpus=max(0.0, has.cpus - used.cpus),
        free_memory_bytes=max(0, has.memory_bytes - used.memory_bytes),
        free_gpus=max(0, has.gpus - used.gpus),
        gpu_models=tuple(gpu.model for gpu in node.gpus),
        jobs=tuple(node.jobs),
        _proto=node,
    )


def line_of(schema: Schema, line: Any) -> LogLine:
    moment = time_of(line, "time")
    return LogLine(
        text=line.text.decode("utf-8", "replace"),
        rank=line.rank,
        attempt=line.attempt,
        task=line.task,
        stream=line.stream,
        severity=schema.enum_name("Severity", line.severity),
        time=moment or datetime.datetime.fromtimestamp(0, datetime.timezone.utc),
    )
