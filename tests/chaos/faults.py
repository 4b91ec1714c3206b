"""Draws faults from a seed, and makes them."""

from __future__ import annotations

import dataclasses
import heapq
import os
import pathlib
import random
import signal
import threading
from typing import Optional

import processes
from cluster import COORDINATOR, Cluster
from hosts import NAMES
from jobs import NAMES as JOBS
from jobs import RECOVERING
from processes import Rank
from waiting import now, say

# How often each kind comes after the first of each, and how long it lasts in seconds.
KINDS = {
    "kill rank": (5, (0.0, 0.0)),
    "stop rank": (2, (1.0, 8.0)),
    "kill worker": (2, (0.3, 5.0)),
    "kill coordinator": (2, (0.2, 4.0)),
    "cut host": (3, (2.0, 6.0)),
    "fill disk": (1, (3.0, 8.0)),
}
NEED_HOSTS = ("cut host", "fill disk")
BETWEEN_S = (1.5, 4.5)


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str
    at: float  # Seconds after the begin of the faults.
    lasts: float
    # Chooses among the ranks that are there then.
    pick: float
    host: str
    way: str  # "in", "out", "both"


def draw(seed: int, seconds: int, hosts_apart: bool) -> list[Fault]:
    """Each kind once, then by their weights. One of a kind does not overlap the next."""
    dice = random.Random(seed)
    kinds = [kind for kind in KINDS if hosts_apart or kind not in NEED_HOSTS]
    first = dice.sample(kinds, len(kinds))
    free_at = dict.fromkeys(kinds, 0.0)
    faults = []
    at = 1.0
    while at < seconds - 1:
        may = [kind for kind in kinds if free_at[kind] <= at]
        kind = first.pop() if first else dice.choices(may, [KINDS[k][0] for k in may])[0]
        lasts = min(dice.uniform(*KINDS[kind][1]), seconds - at)
        host, way = dice.choice(NAMES), dice.choice(("in", "out", "both"))
        faults.append(Fault(kind, at, lasts, dice.random(), host, way))
        free_at[kind] = at + lasts
        at += dice.uniform(*BETWEEN_S)
    return faults


class Injector:
    """Makes the faults. One thread; `disk_is_full` may be read by any."""

    def __init__(self, cluster: Cluster, disk: pathlib.Path, kills_each: int) -> None:
        self._cluster = cluster
        self._disk = disk
        # Of the jobs that wait longer after each failure.
        self._kills_left = {job: kills_each for job in JOBS if job not in RECOVERING}
        self._stopped: list[Rank] = []
        self._killed: set[str] = set()
        self.disk_is_full = False
        self.problems: list[str] = []

    def run(self, faults: list[Fault]) -> None:
        """Makes all of them at their times, and ends those that last."""
        begin = now()
        queue: list[tuple[float, int, bool, Fault]] = []
        for number, fault in enumerate(faults):
            heapq.heappush(queue, (fault.at, number, True, fault))
            if fault.lasts > 0:
                heapq.heappush(queue, (fault.at + fault.lasts, number, False, fault))
        pause = threading.Event()
        while queue:
            at, _, begins, fault = heapq.heappop(queue)
            pause.wait(max(0.0, begin + at - now()))
            self._look()
            (self._begin if begins else self._end)(fault)

    def heal(self) -> None:
        """Ends what lasts: all runs, and reaches each other."""
        self._look()
        self._go_on()
        if self._cluster.hosts.apart:
            self._cluster.hosts.mend()
            self._empty()
        for name in (COORDINATOR, *NAMES):
            self._start(name)

    def _begin(self, fault: Fault) -> None:
        if fault.kind in ("kill rank", "stop rank"):
            self._signal(fault)
        elif fault.kind == "kill worker":
            self._kill(fault.host)
        elif fault.kind == "kill coordinator":
            self._kill(COORDINATOR)
        elif fault.kind == "cut host":
            say(f"FAULT cut {fault.host} from all ({fault.way}) for {fault.lasts:.1f} s")
            self._cluster.hosts.cut(fault.host, fault.way)
        else:
            self._fill(fault.lasts)

    def _end(self, fault: Fault) -> None:
        if fault.kind == "stop rank":
            self._go_on()
        elif fault.kind == "kill worker":
            self._start(fault.host)
        elif fault.kind == "kill coordinator":
            self._start(COORDINATOR)
        elif fault.kind == "cut host":
            say(f"mend {fault.host}")
            self._cluster.hosts.mend()
        else:
            self._empty()

    def _signal(self, fault: Fault) -> None:
        ranks = [
            rank
            for rank in processes.ranks(self._cluster.root)
            if rank.job in JOBS and self._kills_left.get(rank.job, 1) > 0
        ]
        rank = self._pick(ranks, fault.pick)
        if rank is None:
            say(f"no rank for: {fault.kind}")
            return
        kill = fault.kind == "kill rank"
        if kill and rank.job in self._kills_left:
            self._kills_left[rank.job] -= 1
        words = "SIGKILL" if kill else f"SIGSTOP for {fault.lasts:.1f} s"
        say(f"FAULT {words}: {rank}")
        if processes.send(rank, signal.SIGKILL if kill else signal.SIGSTOP) and not kill:
            self._stopped.append(rank)

    @staticmethod
    def _pick(ranks: list[Rank], pick: float) -> Optional[Rank]:
        """First the job, so that one with many ranks is not chosen more often."""
        jobs = sorted({rank.job for rank in ranks})
        if not jobs:
            return None
        place = pick * len(jobs)
        own = sorted((r for r in ranks if r.job == jobs[int(place)]), key=lambda r: r.number)
        return own[int((place % 1) * len(own))]

    def _go_on(self) -> None:
        for rank in self._stopped:
            gone = "" if processes.send(rank, signal.SIGCONT) else ", which is gone"
            say(f"SIGCONT: {rank}{gone}")
        self._stopped.clear()

    def _kill(self, name: str) -> None:
        if self._cluster.daemons[name].end(signal.SIGKILL) is not None:
            say(f"FAULT SIGKILL: the daemon {name}")
            self._killed.add(name)

    def _start(self, name: str) -> None:
        if name in self._killed:
            self._killed.discard(name)
            say(f"start {name}")
            self._cluster.start_daemon(name)

    def _look(self) -> None:
        """Daemons that were not killed run."""
        for name, daemon in self._cluster.daemons.items():
            if name not in self._killed and not daemon.runs():
                self.problems.append(f"{name} ended by itself, see {daemon.log}")
                say(self.problems[-1])
                self._killed.add(name)

    def _fill(self, seconds: float) -> None:
        say(f"FAULT the disk {self._disk} is full for {seconds:.1f} s")
        self.disk_is_full = True
        descriptor = os.open(self._disk / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (1 << 20, 1 << 10):
                try:
                    while os.write(descriptor, b"x" * size) == size:
                        pass
                except OSError:
                    pass  # Nothing more fits.
        finally:
            os.close(descriptor)

    def _empty(self) -> None:
        if self.disk_is_full:
            say(f"the disk {self._disk} has room")
        (self._disk / "filler").unlink(missing_ok=True)
        self.disk_is_full = False
