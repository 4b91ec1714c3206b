"""One rank of a benchmark of torch.distributed's backends.

Speaks as ddp.py does. --work:

  allreduce:BYTES  dist.all_reduce of float32, in place
  fsdp             a step of fully_shard over 8 layers of 4 M parameters
"""

import argparse
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn


class AllReduce:
    """Every rank ends each operation with what it began with: the mean of equal
    values."""

    def __init__(self, size):
        self.values = torch.arange(size // 4, dtype=torch.float32) % 251

    def run(self):
        dist.all_reduce(self.values)
        self.values /= dist.get_world_size()

    def timed(self, count):
        # The division is not a part of it: as long as nothing overflows.
        self.values.fill_(0)
        start = time.monotonic_ns()
        for _ in range(count):
            dist.all_reduce(self.values)
        end = time.monotonic_ns()
        self.values.copy_(torch.arange(self.values.numel(), dtype=torch.float32) % 251)
        return start, end

    def result(self):
        self.run()
        return zlib.crc32(self.values.numpy()), self.values.double().mean().item()


class Fsdp:
    WIDTH, LAYERS, BATCH = 2048, 8, 1

    def __init__(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(1)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = nn.Sequential(*(
            nn.Linear(self.WIDTH, self.WIDTH, bias=False) for _ in range(self.LAYERS)))
        for layer in self.model:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        torch.manual_seed(dist.get_rank() + 2)
        self.batch = torch.randn(self.BATCH, self.WIDTH)
        self.loss = None

    def run(self):
        self.loss = self.model(self.batch).square().mean()
        self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def timed(self, count):
        start = time.monotonic_ns()
        for _ in range(count):
            self.run()
        return start, time.monotonic_ns()

    def result(self):
        value = 0
        for parameter in self.model.parameters():
            whole = parameter.full_tensor().detach().contiguous()
            value = zlib.crc32(whole.numpy(), value)
        loss = self.loss.detach().clone()
        dist.all_reduce(loss)
        return value, loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--core", type=int, default=-1)
    parser.add_argument("--address", help="of this host; chooses the interface")
    args = parser.parse_args()
    if args.core >= 0:
        os.sched_setaffinity(0, {args.core})
    if args.address:
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    dist.init_process_group(
        args.backend, init_method="file://" + args.store + "/rendezvous",
        rank=args.rank, world_size=args.ranks)
    kind, _, size = args.work.partition(":")
    work = AllReduce(int(size)) if kind == "allreduce" else Fsdp()
    for _ in range(3):
        work.run()
    print(f"ready\ttorch={torch.__version__}", flush=True)
    for line in sys.stdin:
        print(*work.timed(int(line.split()[0])), flush=True)
    checksum, value = work.result()
    print("end", f"{checksum:08x}", f"{value:.9g}", flush=True)


main()
