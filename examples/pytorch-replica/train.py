"""Training in PyTorch that goes on when a rank is lost: the others stay.

Runs on any number of ranks. Kill one of them: it comes back and gets the state.
"""

import argparse
import os

import torch
from torch import nn

import lockstep
import lockstep.torch


def data(count: int = 2048) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in ten classes: which of ten directions is the nearest."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(count, 64, generator=generator)
    directions = torch.randn(64, 10, generator=generator)
    return points, (points @ directions).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64, help="samples of a rank in a step")
    parser.add_argument("--output", help="for checkpoints; default: the job's")
    parser.add_argument("--elastic", action="store_true", help="train on while ranks are away")
    options = parser.parse_args()

    session = lockstep.join(recoverable=True)
    checkpoint = os.path.join(options.output or session.output_directory or ".", "model.pt")

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    committed = 0
    # A process that replaces a lost one gets the state from the other ranks.
    if session.recovery == 0 and os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        committed = state["committed"]
        session.resumed(committed)

    replica = lockstep.torch.Replica(model, optimizer, committed=committed, elastic=options.elastic)
    print(f"rank {replica.rank} is process {os.getpid()}", flush=True)
    points, classes = data()
    each = options.batch * replica.world_size
    session.progress(total_steps=options.steps, global_batch=each)

    def loss() -> torch.Tensor:
        # The shard is the rank's own; with --elastic also those of ranks that are away.
        first = (replica.committed * each + replica.shard * options.batch) % len(points)
        part = torch.arange(first, first + options.batch) % len(points)
        return nn.functional.cross_entropy(model(points[part]), classes[part])

    while replica.committed < options.steps:
        replica.step(loss, samples=options.batch)
        if session.checkpoint_due() and session.chief:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "committed": replica.committed,
            }
            torch.save(state, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
            session.checkpoint_saved(replica.committed, checkpoint)
        if session.should_stop():
            return

    accuracy = (model(points).argmax(1) == classes).float().mean().item()
    session.report(accuracy=accuracy)
    print(
        f"rank {replica.rank}: accuracy {accuracy:.3f} after {replica.committed} steps on "
        f"{replica.world_size} ranks, {replica.recoveries} recoveries"
    )
    replica.close()


if __name__ == "__main__":
    main()
