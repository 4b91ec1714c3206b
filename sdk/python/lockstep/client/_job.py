"""A job: its state, its output, and how it ends."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from lockstep.client import _streams, _views
from lockstep.client._progress import Display
from lockstep.client._rpc import Rpc
from lockstep.client._spec import Seconds, bad, seconds
from lockstep.client._views import JobStatus, LogLine
from lockstep.errors import Error, NotFoundError, TimeoutError

_POLL = 0.2


class JobFailedError(Error):
    """The job ended as FAILED or CANCELLED; ``status`` is its end.

    ``reason`` is the cause, such as RANK_EXIT, OUT_OF_MEMORY or NODE_LOST.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "ABORTED",
        reason: str = "",
        status: JobStatus | None = None,
    ) -> None:
        super().__init__(message, code=code, reason=reason)
        self.status = status


def request_id() -> str:
    return str(uuid.uuid4())


def failure_of(status: JobStatus) -> JobFailedError:
    where = next((r.location for r in status.ranks if r.location and not r.victim), "")
    text = f"job {status.name} is {status.state}: {status.message}"
    return JobFailedError(
        text + (f" ({where})" if where and where not in text else ""),
        code="CANCELLED" if status.state == "CANCELLED" else "ABORTED",
        reason=status.reason,
        status=status,
    )


class Job:
    """A job of the cluster. Making one asks nothing; methods do.

    Every method may raise NotFoundError if the job is gone, and Error with the
    codes PERMISSION_DENIED and UNAVAILABLE.
    """

    def __init__(self, rpc: Rpc, name: str) -> None:
        self._rpc = rpc
        self._name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    @property
    def name(self) -> str:
        """The job's name, which is never used again."""
        return self._name

    @property
    def state(self) -> str:
        """The state now, as in JobStatus. Asks the coordinator."""
        return self.describe().state

    def describe(self) -> JobStatus:
        """Returns all that is known of the job now."""
        return _views.job_of(self._rpc.schema, self._get())

    def wait(
        self,
        timeout: Seconds | None = None,
        *,
        check: bool = False,
        progress: bool | None = None,
    ) -> JobStatus:
        """Waits for the job's end and returns it, also if the job failed.

        The coordinator may be away for five minutes meanwhile. Ctrl-C leaves the
        job running.

        Args:
          timeout: seconds to wait; None waits for ever.
          check: raise if the job has not SUCCEEDED.
          progress: show a line of progress. None: in terminals and notebooks.

        Raises:
          TimeoutError: the job has not ended after ``timeout``; it runs on.
          JobFailedError: ``check`` is set, and the job FAILED or is CANCELLED.
        """
        self._follow(timeout, progress)
        # A watch lacks some fields.
        status = self.describe()
        if check and status.state != "SUCCEEDED":
            raise failure_of(status)
        return status

    def logs(
        self,
        follow: bool = True,
        *,
        ranks: Iterable[int] = (),
        attempt: int = 0,
        tail: int = 0,
        since: datetime.datetime | None = None,
        grep: str = "",
        min_severity: str = "",
        events: bool = False,
    ) -> Iterator[LogLine]:
        """Yields the lines that the ranks wrote; each rank's are in order.

        Args:
          follow: go on until the job has ended and all lines are there.
          ranks: only these; empty for all.
          attempt: only this start of the gang, from 1; 0 for all.
          tail: only the last lines of each rank; 0 for all.
          since: only lines from then on.
          grep: only lines that contain a match of this RE2.
          min_severity: DEBUG, INFO, WARNING, ERROR or CRITICAL.
          events: include the job's events, with rank -1.
        """
        request = self._rpc.message(
            "StreamLogsRequest",
            name=self._name,
            ranks=list(ranks),
            attempt=attempt,
            follow=follow,
            tail=tail,
            grep=grep,
            include_events=events,
        )
        if min_severity:
            request.min_severity = self._severity(min_severity)
        if since is not None:
            moment = since.timestamp()
            request.since.seconds = int(moment // 1)
            request.since.nanos = int(moment % 1 * 1e9)
        return self._lines(request)

    def cancel(self, save: bool = False, *, timeout: Seconds = 300) -> JobStatus:
        """Asks every rank to end: SIGTERM, and SIGKILL 30 s later.

        Returns when the coordinator has accepted it; ``wait`` waits for the end.
        An ended job stays as it is.

        Args:
          save: let a native job save a checkpoint first.
          timeout: seconds to wait for that checkpoint.

        Raises:
          Error: FAILED_PRECONDITION: ``save``, but the job cannot save. It runs
            on, also after the TimeoutError of a checkpoint that did not come.
        """
        if save:
            self._save(seconds("timeout", timeout))
        request = self._rpc.message("CancelJobRequest", request_id=request_id(), name=self._name)
        return _views.job_of(self._rpc.schema, self._rpc.call("CancelJob", request))

    def resize(self, tasks: int) -> JobStatus:
        """Sets how many tasks of chief and workers the job has at most.

        It was submitted with ``elastic``, and ``tasks`` is between that and its size:
        it has fewer tasks at once, more as soon as there is room. The other ranks
        train on; with ``rescale``, the job saves, where it can, and restarts.

        Raises:
          Error: INVALID_ARGUMENT: fewer or more than the job may have.
            FAILED_PRECONDITION: it has ended; or the reason FIXED_SIZE: it was
            submitted without ``elastic``; or, without ``rescale``, its program has not
            said that it can train while ranks are away, or no nodes of it have so
            many tasks together.
        """
        request = self._rpc.message(
            "ResizeJobRequest", request_id=request_id(), name=self._name, tasks=tasks
        )
        return _views.job_of(self._rpc.schema, self._rpc.call("ResizeJob", request))

    def files(self, path: str = "", *, rank: int = 0) -> list[str]:
        """Lists a folder of the working directory of the rank's task.

        Folders end with "/". At most 1,000 names.
        """
        request = self._rpc.message("ListFilesRequest", name=self._name, rank=rank, path=path)
        answer = self._rpc.call("ListFiles", request)
        return [file.path + ("/" if file.directory else "") for file in answer.files]

    def read_file(self, path: str, *, rank: int = 0) -> bytes:
        """Returns a file of the working directory of the rank's task.

        It comes through the coordinator: no file system is shared.

        Raises:
          Error: UNAVAILABLE: the node with the file is silent.
            FAILED_PRECONDITION: the job sets its own working directory.
            RESOURCE_EXHAUSTED: the file exceeds the site's limit (1 GiB).
        """
        request = self._rpc.message("ReadFileRequest", name=self._name, rank=rank, path=path)
        pieces = []
        size = -1
        for answer in self._rpc.stream("ReadFile", request):
            size = answer.size if size < 0 else size
            pieces.append(answer.data)
        data = b"".join(pieces)
        if len(data) != size:
            raise Error(
                f"{path} ended after {len(data)} of {max(0, size)} bytes",
                code="DATA_LOSS",
            )
        return data

    # ---- What the methods share ----------------------------------------------

    def _get(self) -> Any:
        request = self._rpc.message("GetJobRequest", name=self._name)
        return self._rpc.call("GetJob", request)

    def _severity(self, name: str) -> int:
        try:
            return self._rpc.schema.enum_value("Severity", "SEVERITY_" + name.upper())
        except KeyError:
            known = "DEBUG, INFO, WARNING, ERROR or CRITICAL"
            raise bad("min_severity", f'"{name}" is not {known}') from None

    def _follow(self, timeout: Seconds | None, progress: bool | None) -> Any:
        """Returns the Job message of a final state."""
        limit = None if timeout is None else seconds("timeout", timeout)
        deadline = None if limit is None else time.monotonic() + limit
        display = Display(progress)

        def broken(error: Error) -> None:
            display.note(f"{error}; the job runs on, trying again")

        try:
            with self._detaching():
                for message in _streams.watch(
                    self._rpc, self._name, deadline=deadline, on_break=broken
                ):
                    final = self._take(message, display)
                    if final is not None:
                        return final
        except Error as error:
            if deadline is None or time.monotonic() < deadline - 0.01:
                raise
            if error.code not in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
                raise
            raise TimeoutError(
                f"job {self._name} has not ended after {limit:g} s; it runs on",
                code="DEADLINE_EXCEEDED",
            ) from None
        finally:
            display.close()
        raise Error(
            f"the coordinator at {self._rpc.address} ended the watch of job "
            f"{self._name} before its end; wait again",
            code="UNAVAILABLE",
        )

    def _take(self, message: Any, display: Display) -> Any:
        """Shows a message of the watch; returns the Job of a final state."""
        kind = message.WhichOneof("event")
        if kind == "job":
            status = _views.job_of(self._rpc.schema, message.job)
            if status.ended:
                return message.job
            display.show(status)
        elif kind == "progress":
            display.show_progress(_views.progress_of(message.progress))
        elif kind == "deleted":
            raise NotFoundError(f"job {self._name} was deleted", code="NOT_FOUND")
        return None

    def _lines(self, request: Any) -> Iterator[LogLine]:
        with self._detaching():
            for line in _streams.logs(self._rpc, request):
                yield _views.line_of(self._rpc.schema, line)

    def _save(self, limit: float) -> None:
        before = self._get()
        request = self._rpc.message(
            "RequestCheckpointRequest", request_id=request_id(), name=self._name
        )
        self._rpc.call("RequestCheckpoint", request)
        deadline = time.monotonic() + limit
        while True:
            job = self._get()
            if job.HasField("last_checkpoint") and (job.last_checkpoint != before.last_checkpoint):
                return
            status = _views.job_of(self._rpc.schema, job)
            if status.ended:
                raise Error(
                    f"job {self._name} is {status.state} and saved no checkpoint before",
                    code="FAILED_PRECONDITION",
                )
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"job {self._name} has no new checkpoint after {limit:g} s; it "
                    "was not cancelled",
                    code="DEADLINE_EXCEEDED",
                )
            time.sleep(_POLL)

    @contextlib.contextmanager
    def _detaching(self) -> Iterator[None]:
        """Says on Ctrl-C that the job runs on, and how to come back."""
        try:
            yield
        except KeyboardInterrupt:
            sys.stderr.write(detached(self._rpc, self._name))
            sys.stderr.flush()
            raise


def detached(rpc: Rpc, name: str) -> str:
    """Returns the words after Ctrl-C."""
    context = rpc.connection.context
    flag = f" --context {context}" if context else ""
    return (
        f"\ndetached; job {name} runs on. To follow it:  lockstep jobs wait{flag} {name}\n"
        f"its output:  lockstep jobs logs{flag} -f {name}\n"
        f"to end it:   lockstep jobs cancel{flag} {name}\n"
    )
