"""A step of DDP over NCCL, by turns with session.step() and without.

Blocks of as many steps each, in pairs whose order alternates, so that what the
machine does meanwhile is in both. The loss is not read: that would wait for the
device, with lockstep or without it.
"""

from __future__ import annotations

import time
from typing import Dict, List

import torch
import torch.distributed as dist
from rank import Rank
from torch.nn.parallel import DistributedDataParallel

import lockstep

# Of the model: its width, its layers, samples of a step.
ON_GPU = (2048, 8, 2048)
ON_CPU = (128, 4, 32)
BLOCK_S = {True: 0.5, False: 0.05}
ROUNDS = {True: 40, False: 6}


class Training:
    def __init__(self, rank: Rank) -> None:
        width, layers, self.samples = ON_GPU if rank.gpu else ON_CPU
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        self.rank = rank
        self.model = DistributedDataParallel(model.to(rank.device))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(self.samples, width, device=rank.device)
        self.session = lockstep.session()
        self.reported = 0

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    def block(self, steps: int, report: bool) -> float:
        """Seconds of as many steps on all ranks."""
        self.rank.wait()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
            if report:
                self.session.step(samples=self.samples)
        self.rank.wait()
        if report:
            self.reported += steps
        return time.perf_counter() - start


def steps_of(training: Training, seconds: float) -> int:
    """How many steps take about as long: the same number on all ranks."""
    training.block(5, report=False)
    count = torch.tensor([seconds / (training.block(5, report=False) / 5)])
    count = count.to(training.rank.device)
    dist.broadcast(count, 0)
    return max(1, int(count.item()))


def main() -> None:
    rank = Rank()
    backend = "nccl" if rank.gpu else "gloo"
    rank.form(backend)
    training = Training(rank)
    steps = steps_of(training, BLOCK_S[rank.gpu])
    times: Dict[bool, List[float]] = {True: [], False: []}
    for number in range(ROUNDS[rank.gpu]):
        for report in (True, False) if number % 2 else (False, True):
            times[report].append(training.block(steps, report))
    dist.destroy_process_group()
    rank.finish(
        {
            "backend": backend,
            "steps": steps,
            "with": times[True],
            "without": times[False],
            "reported": training.reported,
        }
    )


if __name__ == "__main__":
    main()
