"""Streams that go on after an interruption: changes of a job, and its lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Callable

from lockstep.client._rpc import Rpc
from lockstep.errors import Error

# Seconds that the coordinator may be away before a stream fails.
PATIENCE = 300.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0

OnBreak = Callable[[Error], None]


class _Persistence:
    """Decides when to open a broken stream again."""

    def __init__(self, on_break: OnBreak | None, deadline: float | None) -> None:
        self._on_break = on_break
        self._deadline = deadline
        # A coordinator that was never there is probably at another address.
        self._good_at: float | None = None
        self._pause = _FIRST_PAUSE
        self._told = False

    def good(self) -> None:
        self._good_at = time.monotonic()
        self._pause = _FIRST_PAUSE
        self._told = False

    def wait(self, error: Error) -> None:
        """Pauses before the next try; raises ``error`` if there is none."""
        now = time.monotonic()
        if (
            error.code not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
            or self._good_at is None
            or now - self._good_at >= PATIENCE
            or (self._deadline is not None and now + self._pause > self._deadline)
        ):
            raise error
        if self._on_break and not self._told:
            self._on_break(error)
        self._told = True
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def watch(
    rpc: Rpc,
    name: str,
    *,
    deadline: float | None = None,
    on_break: OnBreak | None = None,
) -> Iterator[Any]:
    """Yields WatchJobsResponse messages of one job, to its final state.

    ``deadline`` is a time of time.monotonic(): then the error's code is
    DEADLINE_EXCEEDED.
    """
    persistence = _Persistence(on_break, deadline)
    version = 0
    synced = False
    while True:
        request = rpc.message("WatchJobsRequest", name=name)
        request.resource_version = version if synced else 0
        try:
            for message in rpc.stream("WatchJobs", request, _left(deadline)):
                persistence.good()
                kind = message.WhichOneof("event")
                if kind == "job" and synced:
                    version = max(version, message.job.resource_version)
                elif kind in ("synced", "bookmark"):
                    synced = True
                    version = max(version, getattr(message, kind))
                yield message
            return
        except Error as error:
            # What follows the version is no longer kept: begin with a snapshot.
            if error.code == "OUT_OF_RANGE" and synced:
                synced, version = False, 0
                continue
            persistence.wait(error)


class _LineFilter:
    """Drops lines that were already delivered when a stream starts again.

    A rank's lines come in the order of time, so the newest time and the number
    of lines with it suffice.
    """

    def __init__(self) -> None:
        # (attempt, rank) -> time, lines with it, lines with it to skip.
        self._seen: dict[tuple[int, int], list[int]] = {}
        self.earliest: int | None = None

    def restart(self) -> None:
        for seen in self._seen.values():
            seen[2] = seen[1]

    def is_new(self, line: Any) -> bool:
        at = line.time.seconds * 1_000_000_000 + line.time.nanos
        self.earliest = at if self.earliest is None else min(at, self.earliest)
        seen = self._seen.setdefault((line.attempt, line.rank), [-1, 0, 0])
        if at < seen[0]:
            return False
        if at > seen[0]:
            seen[:] = [at, 1, 0]
            return True
        if seen[2] > 0:
            seen[2] -= 1
            return False
        seen[1] += 1
        return True


def logs(rpc: Rpc, request: Any, on_break: OnBreak | None = None) -> Iterator[Any]:
    """Yields LogLine messages; each line once, even after a break."""
    persistence = _Persistence(on_break, None)
    lines = _LineFilter()
    restarted = False
    while True:
        try:
            for message in rpc.stream("StreamLogs", request):
                persistence.good()
                for line in message.lines:
                    new = lines.is_new(line)
                    if new or not restarted:
                        yield line
            return
        except Error as error:
            # A reader without `follow` goes on only where it was too slow.
            if not request.follow and error.code != "RESOURCE_EXHAUSTED":
                raise
            persistence.wait(error)
        restarted = True
        lines.restart()
        # The last N lines may be others by now.
        if request.tail > 0 and lines.earliest is not None:
            request.tail = 0
            request.since.seconds, request.since.nanos = divmod(lines.earliest, 1_000_000_000)
