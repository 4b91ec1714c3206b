"""DistributedDataParallel over lockstep, with checkpoints.

Runs on any number of ranks, and goes on from its last checkpoint.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lockstep


def data(count: int = 2048) -> TensorDataset:
    """Points in ten classes: which of ten directions is the nearest."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(count, 64, generator=generator)
    directions = torch.randn(64, 10, generator=generator)
    return TensorDataset(points, (points @ directions).argmax(1))


def save(
    path: str, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, batches: int
) -> None:
    """Nothing sees half a checkpoint: it appears under its name when it is whole."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "batches": batches,  # Of that epoch.
    }
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--output", help="for checkpoints; default: the job's")
    options = parser.parse_args()

    session = lockstep.join()
    dist.init_process_group("lockstep")
    output = options.output or session.output_directory or "."
    checkpoint = os.path.join(output, "checkpoint.pt")

    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = data()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, options.batch, sampler=sampler)

    first = done = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, done = state["epoch"], state.get("batches", 0)
        session.resumed(first * len(loader) + done)
    # Every rank has read it before one writes the next.
    dist.barrier()

    session.progress(
        total_steps=options.epochs * len(loader),
        global_batch=options.batch * dist.get_world_size(),
    )

    def checkpoint_now(epoch: int, batches: int) -> None:
        if dist.get_rank() == 0:
            with session.phase("checkpoint"):
                save(checkpoint, model.module, optimizer, epoch, batches)
                session.checkpoint_saved(epoch * len(loader) + batches, checkpoint)

    stop = False
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        session.phase("input")
        for batch, (points, labels) in enumerate(loader):
            if epoch == first and batch < done:
                continue  # The checkpoint has seen it.
            session.phase("compute")
            loss = nn.functional.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.step(samples=len(points), loss=loss.item())
            session.phase("input")
            # After the same step on every rank: `lockstep jobs checkpoint`, and
            # before the job leaves a drained node.
            if session.checkpoint_due():
                checkpoint_now(epoch, batch + 1)
            stop = session.should_stop()
            if stop:
                break
        if stop:
            dist.destroy_process_group()
            return
        checkpoint_now(epoch + 1, 0)

    with torch.no_grad():
        points, labels = dataset.tensors
        right = (model(points).argmax(1) == labels).float().mean().item()
    if dist.get_rank() == 0:
        session.report(accuracy=right)
        ranks = dist.get_world_size()
        print(f"accuracy {right:.3f} after {options.epochs} epochs on {ranks} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
