"""replica.py STEPS PAUSE OUTPUT: PyTorch that outlives lost ranks.

Each rank writes OUTPUT/result-RANK: the digest of its weights, and how many samples
the steps had that led to them.
"""

import hashlib
import os
import sys
import time

import torch

import lockstep
import lockstep.torch

STEPS, PAUSE, OUTPUT = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
BATCH = 16
CHECKPOINT_EVERY = 20


class Samples:
    """How many there were: a part of the state, as a sampler's position is."""

    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def replace(path, write):
    """Writes a file that is there with all of its content, or not at all."""
    write(path + ".new")
    os.replace(path + ".new", path)


def write_text(text):
    def write(path):
        with open(path, "w") as file:
            file.write(text)

    return write


def main():
    torch.set_num_threads(1)
    session = lockstep.join(timeout=60.0, recoverable=True)
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    samples = Samples()
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "samples": samples}
    checkpoint = os.path.join(OUTPUT, "model.pt")
    committed = 0
    if session.recovery == 0 and os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        committed = state["committed"]
        session.resumed(committed, checkpoint)
    replica = lockstep.torch.Replica(
        model,
        optimizer,
        scheduler=scheduler,
        states=[samples],
        committed=committed,
        seed=7,
        elastic=True,
    )
    session.progress(total_steps=STEPS)

    def loss():
        draw = torch.Generator().manual_seed(replica.committed * replica.world_size + replica.shard)
        x = torch.randn(BATCH, 16, generator=draw)
        # A function of what is committed: a step that is made again counts once.
        samples.count = (replica.committed + 1) * BATCH * replica.world_size
        time.sleep(PAUSE)
        return (model(x).squeeze(1) - x.sum(1)).square().mean()

    def save(path):
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save(dict(state, committed=replica.committed), path)

    while replica.committed < STEPS:
        replica.step(loss, samples=BATCH)
        due = session.checkpoint_due()
        if session.chief and (due or replica.committed % CHECKPOINT_EVERY == 0):
            replace(checkpoint, save)
            # The job's history has those that were ordered only.
            if due:
                session.checkpoint_saved(replica.committed, checkpoint)
        if session.should_stop():
            return

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    result = f"{digest.hexdigest()} {samples.count}\n"
    replace(os.path.join(OUTPUT, f"result-{replica.rank}"), write_text(result))
    replica.close()


if __name__ == "__main__":
    main()
