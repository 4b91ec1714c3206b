"""Functions that run as jobs: how they travel, and how their values return.

The function goes into a package: ``_call.py``, the pickle, and cloudpickle, so
that a node needs Python alone. Each rank leaves its value in a file of its
task's directory, which the coordinator reads from the node for the client. So
client and nodes share no file system.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from lockstep.client import _call, _pickling, _views
from lockstep.client._job import Job, failure_of
from lockstep.client._spec import Seconds, bad
from lockstep.client._views import JobStatus
from lockstep.errors import Error

T = TypeVar("T")

_READ_AGAIN = 3
# Failing ranks whose files are searched for the exception.
_MOST_FAILURES = 8


class RemoteTraceback(Exception):
    """The traceback of a rank, as the cause of the exception that it raised."""

    def __str__(self) -> str:
        return str(self.args[0])


class RemoteError(Error):
    """A rank raised an exception that cannot be made here.

    Attributes:
      type_name: the exception's class, "CUDAError".
      traceback: the rank's traceback, as text.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        reason: str = "REMOTE_EXCEPTION",
        type_name: str = "",
        traceback: str = "",
    ) -> None:
        super().__init__(message, code=code, reason=reason)
        self.type_name = type_name
        self.traceback = traceback


# ---- What goes to the ranks --------------------------------------------------


def command_of(python: str, in_image: bool) -> list[str]:
    """Returns the program of every rank."""
    return [python, "-u", "-c", _pickling.CODE, "image" if in_image else "task"]


def spread(ranks: int, ranks_per_task: int) -> int:
    """Returns the number of tasks."""
    for name, value in (("ranks", ranks), ("ranks_per_task", ranks_per_task)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise bad(name, f"{value!r} is not a number of 1 or more")
    if ranks % ranks_per_task:
        raise bad("ranks", f"{ranks} is not a multiple of ranks_per_task, {ranks_per_task}")
    return ranks // ranks_per_task


def is_call(job: Any) -> bool:
    """True for the Job message of a function."""
    commands = [list(job.spec.argv)]
    commands += [list(role.container.command) for role in job.spec.roles]
    return any(_pickling.CODE in command for command in commands)


# ---- What comes back ---------------------------------------------------------


class TrainJob(Job, Generic[T]):
    """A job of ``Client.train``: also gives the function's values."""

    def result(self, timeout: Seconds | None = None, *, progress: bool | None = None) -> T:
        """Waits for the job's end and returns the function's value of rank 0.

        The value stays on the node of its rank until the job's logs are removed,
        so this works again, and from another process by ``Client.job(name)``.
        Unpickling it runs code that the job chose, as the job itself did.

        Args:
          timeout: seconds to wait; None waits for ever.
          progress: as in ``wait``.

        Raises:
          the exception of the first rank that raised one, with the remote
            traceback as its cause; RemoteError if it cannot be made here.
          JobFailedError: the job ended without an exception: a rank was killed,
            a node was lost, the job was cancelled.
          TimeoutError: the job has not ended after ``timeout``; it runs on.
          Error: UNPICKLABLE_VALUE (reason): the value could not be pickled.
            UNAVAILABLE: the node with the value is silent; ask again later.
        """
        value: T = self._value(self._succeeded(timeout, progress), 0)
        return value

    def results(self, timeout: Seconds | None = None, *, progress: bool | None = None) -> list[T]:
        """As ``result``, and returns the values of all ranks, by rank."""
        status = self._succeeded(timeout, progress)
        return [self._value(status, rank.rank) for rank in _by_rank(status)]

    def _succeeded(self, timeout: Seconds | None, progress: bool | None) -> JobStatus:
        message = self._follow(timeout, progress)
        status = _views.job_of(self._rpc.schema, message)
        if status.state != "SUCCEEDED":
            self._raise_failure(status)
        return status

    def _read(self, status: JobStatus, rank: int) -> tuple[dict[str, Any], memoryview]:
        """Returns the header and the pickle that a rank left."""
        path = f"{_call.RESULTS}/{status._proto.generation}.{rank}"
        for again in range(_READ_AGAIN):
            try:
                data = self.read_file(path, rank=rank)
                break
            except Error as error:
                if error.code != "UNAVAILABLE" or again + 1 == _READ_AGAIN:
                    raise
        end = data.index(b"\n")
        header: dict[str, Any] = json.loads(data[:end])
        return header, memoryview(data)[end + 1 :]

    def _value(self, status: JobStatus, rank: int) -> Any:
        header, payload = self._read(status, rank)
        if header["kind"] == "unpicklable":
            raise Error(
                f"rank {rank} of job {self.name} returned a {header['type']}, which "
                f"cannot be pickled: {header['message']}",
                code="FAILED_PRECONDITION",
                reason="UNPICKLABLE_VALUE",
            )
        try:
            return pickle.loads(payload)
        except Exception as error:
            raise Error(
                f"the value of rank {rank} of job {self.name} cannot be unpickled "
                f"here: {type(error).__name__}: {error}; is what it needs installed?",
                code="FAILED_PRECONDITION",
                reason="UNPICKLABLE_VALUE",
            ) from error

    def _raise_failure(self, status: JobStatus) -> None:
        """Raises what the first failing rank raised, or the job's cause."""
        failed = [rank for rank in status.ranks if rank.exit_code not in (0, None)]
        latest = max((r.end_time for r in failed if r.end_time), default=None)
        failed.sort(key=lambda rank: (rank.victim, rank.end_time or latest, rank.rank))
        for rank in failed[:_MOST_FAILURES]:
            try:
                header, payload = self._read(status, rank.rank)
            except Error:
                continue  # Another rank may have an exception; the job a cause.
            if header["kind"] not in ("value", "unpicklable"):
                _raise_remote(self.name, header, payload)
        raise failure_of(status)


def _by_rank(status: JobStatus) -> list[_views.RankStatus]:
    return sorted(status.ranks, key=lambda rank: rank.rank)


def _raise_remote(job: str, header: Mapping[str, Any], payload: memoryview) -> None:
    where = f"rank {header['rank']} of job {job} on {header['host']}"
    if header["kind"] == "refused":
        raise Error(
            f"{where}: {header['message'].partition(': ')[2]}",
            code="FAILED_PRECONDITION",
            reason="PYTHON_MISMATCH",
        )
    hint = ""
    if header["type"] == "ModuleNotFoundError":
        hint = "bring the module by packages=[FOLDER], or install it on the nodes"
    text = f'\n"""\n{where}:\n{header["traceback"]}{hint}"""'
    error: Any = None
    try:
        error = pickle.loads(payload)
    except Exception:  # noqa: BLE001 - its class or its arguments are not here.
        error = None
    # The function never ran if it could not be loaded: then the sentence counts.
    never_ran = header["kind"] == "load" and hint
    if never_ran or not isinstance(error, BaseException):
        error = RemoteError(
            f"{where} raised {header['message']}{'; ' + hint if hint else ''}",
            type_name=header["type"],
            traceback=header["traceback"],
        )
    raise error from RemoteTraceback(text)
