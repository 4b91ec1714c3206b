"""DistributedDataParallel that keeps its global batch with any number of ranks.

It resumes from a checkpoint of another number of ranks, and at its end compares
the model with one that a single process has trained.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SHARD = 16  # samples of a rank and step in the whole job


def shard_of(step, shard):
    """The samples of a shard: the same in every run, whoever computes them."""
    generator = torch.Generator().manual_seed(1000 * step + shard)
    x = torch.randn(SHARD, 8, generator=generator)
    return x, x.sum(dim=1, keepdim=True)


def loss_of(model, step, shard):
    x, y = shard_of(step, shard)
    return (model(x) - y).pow(2).mean()


def make_model():
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train_alone(steps, shards):
    model, optimizer = make_model()
    for step in range(steps):
        optimizer.zero_grad()
        for shard in range(shards):
            (loss_of(model, step, shard) / shards).backward()
        optimizer.step()
    return model


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    full = int(os.environ.get("LOCKSTEP_FULL_SIZE", world))
    accumulate = max(1, round(full / world))
    model, optimizer = make_model()
    step = 0
    checkpoint = os.environ["CHECKPOINT"]
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print("starts at", step, "with", world, "of", full, flush=True)
    ddp = DistributedDataParallel(model)
    stop = torch.zeros(1)
    while stop.item() == 0:
        optimizer.zero_grad()
        for i in range(accumulate):
            shard = rank * accumulate + i
            if i + 1 < accumulate:
                with ddp.no_sync():
                    (loss_of(ddp, step, shard) / accumulate).backward()
            else:
                (loss_of(ddp, step, shard) / accumulate).backward()
        optimizer.step()
        step += 1
        if rank == 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            torch.save(state, checkpoint + ".part")
            os.replace(checkpoint + ".part", checkpoint)
            if step % 10 == 0:
                print("step", step, "by", world, flush=True)
        stop[0] = float(os.path.exists(os.environ["STOP_FILE"]))
        dist.broadcast(stop, 0)
        time.sleep(0.02)
    same = True
    if rank == 0:
        alone = train_alone(step, full)
        same = all(
            torch.allclose(a, b, atol=1e-5)
            for a, b in zip(model.parameters(), alone.parameters())
        )
        print("same", same, flush=True)
    dist.destroy_process_group()
    return 0 if same else 3


if __name__ == "__main__":
    sys.exit(main())
