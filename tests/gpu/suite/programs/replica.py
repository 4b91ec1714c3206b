"""A Replica whose model is on the GPU: all ranks end with the same bits, close to
those of one process that trains on the whole batch, on the CPU.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from typing import List

import torch
from rank import Rank

import lockstep
import lockstep.torch

STEPS = 30
BATCH = 32


def make() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1)
    )


def loss_of(model: torch.nn.Module, step: int, shard: int, device: torch.device) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * step + shard)
    points = torch.randn(BATCH, 256, generator=draw).to(device)
    loss: torch.Tensor = (model(points) - points.mean(1, keepdim=True)).square().mean()
    return loss


def alone(ranks: int) -> List[torch.Tensor]:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = [loss_of(model, step, shard, torch.device("cpu")) for shard in range(ranks)]
        torch.stack(losses).mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def main() -> None:
    rank = Rank()
    session = lockstep.join(recoverable=True)
    model = make().to(rank.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    replica = lockstep.torch.Replica(model, optimizer, seed=7)
    seconds = []
    while replica.committed < STEPS:
        began = time.monotonic()
        step = replica.committed
        replica.step(lambda step=step: loss_of(model, step, replica.shard, rank.device))
        rank.wait()
        seconds.append(time.monotonic() - began)
    weights = [parameter.detach().cpu() for parameter in model.parameters()]
    for mine, wanted in zip(weights, alone(rank.ranks)):
        torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-4)
    assert session.world_size == rank.ranks
    digest = hashlib.sha256(b"".join(one.numpy().tobytes() for one in weights)).hexdigest()
    print(f"rank {rank.number} ends with {digest}", flush=True)
    replica.close()
    rank.finish({"step": statistics.median(seconds), "device": str(rank.device)})


if __name__ == "__main__":
    main()
