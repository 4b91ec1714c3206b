"""One rank of R8: a model with 100 MiB of state, of which ranks are killed.

DIR/target says how many steps to commit, "N" or "N end": the rank waits there for a
larger number, or writes DIR/digest-RANK and ends. After each committed step it
appends a line to DIR/rank-RANK: the step, the time (CLOCK_MONOTONIC, nanoseconds),
its pid, the CRC of a part of its parameters, how many recoveries it has been
through, how many steps it has computed again, and how many shards it computes.

A new process waits while DIR/away exists, before it takes part.
"""

import argparse
import hashlib
import os
import time
import zlib

import torch
from torch import nn

import lockstep
import lockstep.torch

BATCH = 8  # samples of a shard
POLL_S = 0.01
# Every so many parameters are in the CRC of a step. The digest has all.
PART = 61


class Rank:
    def __init__(self, args):
        self.directory = args.directory
        self.least_s = args.least_ms / 1000
        self.begun = 0.0
        torch.manual_seed(1)
        # 8.7 million parameters: 33 MiB, and twice as much of the optimizer.
        self.model = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 1600),
                                   nn.ReLU(), nn.Linear(1600, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.join()
        self.replica = lockstep.torch.Replica(
            self.model, self.optimizer, elastic=args.elastic == 1)
        self.file = os.open(self.path(f"rank-{self.replica.rank}"),
                            os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def path(self, name):
        return os.path.join(self.directory, name)

    def join(self):
        if lockstep.join(recoverable=True).recovery > 0:
            while os.path.exists(self.path("away")):
                time.sleep(POLL_S)

    def target(self):
        """(steps, whether that is the end)."""
        with open(self.path("target")) as file:
            words = file.read().split()
        return int(words[0]), len(words) > 1

    def loss(self):
        # At the start of a step, and not of each shard of it.
        if self.replica.shard == self.replica.rank:
            time.sleep(max(0.0, self.begun + self.least_s - time.monotonic()))
            self.begun = time.monotonic()
        seed = self.replica.world_size * self.replica.committed + self.replica.shard
        points = torch.randn(BATCH, 512, generator=torch.Generator().manual_seed(seed))
        return nn.functional.cross_entropy(self.model(points), points[:, :10].argmax(1))

    def log(self):
        crc = 0
        for parameter in self.model.parameters():
            part = parameter.detach().flatten()[::PART].contiguous()
            crc = zlib.crc32(part.numpy(), crc)
        replica = self.replica
        os.write(self.file, (
            f"{replica.committed} {time.monotonic_ns()} {os.getpid()} {crc:08x} "
            f"{replica.recoveries} {replica.redone} {len(replica.shards)}\n").encode())

    def digest(self):
        whole = hashlib.sha256()
        for parameter in self.model.parameters():
            whole.update(parameter.detach().numpy())
            for _, value in sorted(self.optimizer.state[parameter].items()):
                whole.update(value.numpy())
        return whole.hexdigest()

    def train(self):
        while True:
            steps, end = self.target()
            if self.replica.committed < steps:
                self.replica.step(self.loss)
                self.log()
            elif end:
                break
            else:
                time.sleep(POLL_S)
        new = self.path(f"digest-{self.replica.rank}")
        with open(new + ".new", "w") as file:
            file.write(f"{self.replica.committed} {self.digest()}\n")
        os.replace(new + ".new", new)
        self.replica.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True)
    parser.add_argument("--elastic", type=int, required=True, help="0 or 1")
    parser.add_argument("--least-ms", type=float, default=0, help="that a step takes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    Rank(args).train()


main()
