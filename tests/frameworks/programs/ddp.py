"""DistributedDataParallel over gloo, by env:// alone."""

import gc
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    stop_at = os.environ.get("STOP_FILE")
    steps = int(os.environ.get("STEPS", "20"))
    for step in range(steps):
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 5:
            print("stepping rank", rank, "pid", os.getpid(), flush=True)
        if stop_at and step >= 10 and not os.path.exists(stop_at):
            # Goes on until the test has seen what it wants to see.
            while_waiting(model, optimizer, stop_at)
    weight = model.module.weight.detach()
    total = weight.clone()
    dist.all_reduce(total)
    same = torch.allclose(total, weight * world)
    print("rank", rank, "of", world, "local", os.environ["LOCAL_RANK"],
          "same", same, flush=True)
    dist.destroy_process_group()
    # The model holds the group, whose threads may still let go a tensor. A
    # thread that does so while Python ends aborts the process (PyTorch 2.15).
    del model, optimizer
    gc.collect()
    return 0 if same else 3


def while_waiting(model, optimizer, stop_at):
    done = torch.zeros(1)
    while done.item() == 0:
        loss = model(torch.randn(16, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done = torch.tensor([1.0 if os.path.exists(stop_at) else 0.0])
        dist.all_reduce(done, op=dist.ReduceOp.MAX)


if __name__ == "__main__":
    sys.exit(main())
