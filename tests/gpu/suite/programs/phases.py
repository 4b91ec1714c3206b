"""A rank whose phases' time is known: CUDA's events measure the same work.

Each phase ends when the device has done its work, as it does where a program reads a
loss. The phase "evaluation" only waits for work that was launched in "other": the
time of a device counts for the phase that waits for it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional

import torch
from rank import Rank

import lockstep

STEPS = {True: 40, False: 10}
# Of a phase, about.
PHASE_S = {True: 0.02, False: 0.005}


class Work:
    """Pieces of work of the same length, each a few kernels."""

    def __init__(self, rank: Rank) -> None:
        size = 4096 if rank.gpu else 128
        self.rank = rank
        self.left = torch.randn(size, size, device=rank.device)
        self.right = torch.randn(size, size, device=rank.device)
        self.out = torch.empty_like(self.left)
        host = torch.randn(size, size)
        self.host = host.pin_memory() if rank.gpu else host
        self.counts = {work: self._count(work) for work in (self.multiply, self.copy, self.update)}

    def _count(self, work: Callable[[], None]) -> int:
        for _ in range(3):
            work()
        self.rank.wait()
        start = time.perf_counter()
        for _ in range(10):
            work()
        self.rank.wait()
        one = (time.perf_counter() - start) / 10
        return max(1, int(PHASE_S[self.rank.gpu] / one))

    def multiply(self) -> None:
        torch.mm(self.left, self.right, out=self.out)

    def copy(self) -> None:
        self.left.copy_(self.host, non_blocking=True)

    def update(self) -> None:
        self.right.add_(self.left, alpha=1e-6)

    def give(self, work: Callable[[], None]) -> None:
        """Hands it to the device, and does not wait."""
        for _ in range(self.counts[work]):
            work()


class Clock:
    """The seconds of one phase: of the host, and of the device by its events."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.host, self.steps = 0.0, 0
        self._events: List[Any] = []

    def mark(self) -> None:
        if self._rank.gpu:
            self._events.append(torch.cuda.Event(enable_timing=True))
            self._events[-1].record()

    def device(self) -> Optional[float]:
        """On the CPU: None, the host's is all there is."""
        if not self._rank.gpu:
            return None
        pairs = zip(self._events[::2], self._events[1::2])
        return float(sum(start.elapsed_time(end) for start, end in pairs)) / 1e3

    def result(self, **more: str) -> Dict[str, Any]:
        return {"host": self.host, "device": self.device(), "steps": self.steps, **more}


def timed(session: lockstep.Session, name: str, clock: Clock, work: Callable[[], None]) -> None:
    """The work in the phase, until the device has done it."""
    with session.phase(name):
        start = time.perf_counter()
        clock.mark()
        work()
        clock.mark()
        clock._rank.wait()
        clock.host += time.perf_counter() - start
        clock.steps += 1


def late(session: lockstep.Session, rank: Rank, work: Work, clock: Clock) -> None:
    """Launched in one phase, waited for in another."""
    session.phase("other")
    rank.wait()
    clock.mark()
    work.give(work.multiply)
    clock.mark()
    with session.phase("evaluation"):
        start = time.perf_counter()
        rank.wait()
        clock.host += time.perf_counter() - start
        clock.steps += 1


def main() -> None:
    rank = Rank()
    work = Work(rank)
    clocks = {name: Clock(rank) for name in ("input", "compute", "optimizer", "evaluation")}
    session = lockstep.join()
    began = time.perf_counter()
    session.phase("other")
    for _ in range(STEPS[rank.gpu]):
        timed(session, "input", clocks["input"], lambda: work.give(work.copy))
        timed(session, "compute", clocks["compute"], lambda: work.give(work.multiply))
        timed(session, "optimizer", clocks["optimizer"], lambda: work.give(work.update))
        session.step(samples=1)
        if rank.gpu:
            late(session, rank, work, clocks["evaluation"])
    wall = time.perf_counter() - began
    session.close()
    results = {name: clock.result() for name, clock in clocks.items()}
    results["evaluation"]["remark"] = "waits for work of the phase before"
    if not rank.gpu:
        results["evaluation"]["left_out"] = "the CPU has done its work when it is launched"
    rank.finish({"phases": results, "wall": wall})


if __name__ == "__main__":
    main()
