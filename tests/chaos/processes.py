"""The processes of this machine that belong to a run, as /proc shows them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
from typing import Iterator, Optional


@dataclasses.dataclass(frozen=True)
class Rank:
    """A process of a rank. `started` tells it from a later one of the same pid."""

    job: str
    number: int
    generation: int
    pid: int
    started: str

    def __str__(self) -> str:
        return f"rank {self.number} of {self.job}, generation {self.generation}, pid {self.pid}"


def _read(pid: int, name: str) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""  # It has ended, or is not ours.


def _stat(pid: int) -> Optional[tuple[str, str]]:
    """The state, and when it started; None where it has ended."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""  # It has ended, or is not ours.


def _all(root: pathlib.Path) -> Iterator[int]:
    """Those that work below `root` or name it in their arguments."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        directory = _directory(pid)
        stat = _stat(pid)
        ended = stat is None or stat[0] == "Z"
        below = (directory + "/").startswith(f"{root}/")
        if not ended and (below or f"{root}/" in _read(pid, "cmdline")):
            yield pid


def ranks(root: pathlib.Path) -> list[Rank]:
    """The processes of all ranks that run."""
    found = []
    for pid in _all(root):
        # An interpreter of a warm start waits there: it is no rank yet.
        if _directory(pid) in ("", "/"):
            continue
        words = (word.partition("=") for word in _read(pid, "environ").split("\0"))
        environment = {name: value for name, _, value in words}
        stat = _stat(pid)
        if stat is None or "LOCKSTEP_RANK" not in environment:
            continue
        found.append(
            Rank(
                environment["LOCKSTEP_JOB"],
                int(environment["LOCKSTEP_RANK"]),
                int(environment["LOCKSTEP_GENERATION"]),
                pid,
                stat[1],
            )
        )
    return found


def left(root: pathlib.Path, daemons: set[int]) -> list[str]:
    """What runs besides the daemons: "PID ARGUMENTS"."""
    return [
        f"{pid} {_read(pid, 'cmdline')}".replace("\0", " ")
        for pid in _all(root)
        if pid not in daemons
    ]


def kill(root: pathlib.Path) -> None:
    """All of them, for the end of a run."""
    for pid in list(_all(root)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It has just ended.


def send(rank: Rank, how: signal.Signals) -> bool:
    """False where the process has ended."""
    try:
        process = os.pidfd_open(rank.pid)
    except OSError:
        return False
    try:
        # The pid is the process's as long as it is the one that was seen.
        stat = _stat(rank.pid)
        if stat is None or stat[1] != rank.started:
            return False
        signal.pidfd_send_signal(process, how)
        return True
    except OSError:
        return False
    finally:
        os.close(process)
