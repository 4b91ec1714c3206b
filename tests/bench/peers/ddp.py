"""One rank of a step benchmark in PyTorch's DistributedDataParallel.

Speaks as step_probe does: "ready" and versions, then for each line "N" or
"N word" on its input N steps and "START END" (CLOCK_MONOTONIC, nanoseconds), in
the end "end HASH LOSS". One intra-op thread, SGD without momentum, one fixed synthetic
batch, gradients set to None. --start: weights and batch as step_probe left them
(step_models.h), else its own.

  default  what DistributedDataParallel(model) gives
  best     gradient_as_bucket_view, static_graph, no broadcast of buffers, and
           buckets of --bucket-mb

"word": no gradient is exchanged, one all-reduce of 4 bytes a step, and the
optimizer's rate is 0, so that weights stay.
"""

import argparse
import ctypes
import gc
import os
import sys
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


class Shallow(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.fc1 = nn.Linear(32 * 26 * 26, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x)).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * 4
        self.main = nn.Sequential(
            conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(),
            conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(),
            conv(width, outputs, 1), nn.BatchNorm2d(outputs))
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(conv(inputs, outputs, 1, stride),
                                      nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.main(x) + (self.down(x) if self.down else x))


class Resnet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 7, 2), nn.BatchNorm2d(64),
                                  nn.ReLU())
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(inputs, 64 << stage, stride))
                inputs = (64 << stage) * 4
        self.stages = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, x):
        x = functional.max_pool2d(self.stem(x), 3, 2, 1)
        return self.fc(self.stages(x).mean((2, 3)))


class Wide(nn.Module):
    """25.6 M parameters, little to compute."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3200, 4000)
        self.fc2 = nn.Linear(4000, 3200)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


MODELS = {"shallow": (Shallow, 64, (1, 28, 28), 10),
          "wide": (Wide, 1, (3200,), 3200),
          "resnet50": (Resnet50, 4, (3, 64, 64), 1000)}


def blas():
    """What computes its matrices."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "openblas" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        texts = []
        for name in ("openblas_get_config", "openblas_get_corename"):
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype = ctypes.c_char_p
                texts.append(function().decode())
        if texts:
            return ", runs ".join(texts)
    shown = torch.__config__.show()
    found = [part.strip() for part in shown.replace(",", "\n").splitlines()
             if "BLAS_INFO" in part or "Math Kernel" in part]
    return "; ".join(found) or "unknown"


def numbers(path, kind):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=kind)


def begin_as(path, model, images, labels, rank):
    """Puts in what step_probe has left."""
    weights = numbers(path + ".weights", torch.float32)
    at = 0
    with torch.no_grad():
        for parameter in model.parameters():
            size = parameter.numel()
            parameter.copy_(weights[at:at + size].view_as(parameter))
            at += size
    assert at == weights.numel(), "another network"
    path = "%s.batch-%d" % (path, rank)
    pixels = images.numel()
    images.copy_(numbers(path, torch.float32)[:pixels].view_as(images))
    labels.copy_(numbers(path, torch.int32)[pixels:])


def hash_of(model):
    value = 0
    for parameter in model.parameters():
        value = zlib.crc32(
            bytes(parameter.detach().contiguous().view(-1).numpy()), value)
    return "%08x" % value


# DDP's default first.
BUCKETS_MB = 25, 1, 5, 100


def wrap(network, mode, bucket):
    options = {}
    if mode == "best":
        options = {"gradient_as_bucket_view": True, "static_graph": True,
                   "broadcast_buffers": False, "bucket_cap_mb": bucket}
    return DistributedDataParallel(network, **options)


def best_bucket(network, images, labels):
    """The quickest for both ranks: measured as lockstep measures its own."""
    times = {}
    for bucket in BUCKETS_MB:
        model = wrap(network, "best", bucket)
        for step in range(8):
            # Of the first two DDP learns the order.
            if step == 3:
                dist.barrier()
                start = time.monotonic()
            functional.cross_entropy(model(images), labels).backward()
        spent = torch.tensor([time.monotonic() - start])
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        times[bucket] = spent.item()
        # Its hooks go with it, and gradients that are views of its buckets.
        del model
        gc.collect()
        network.zero_grad(set_to_none=True)
    return min(times, key=times.get)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="shallow")
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--core", type=int, default=-1)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--start")
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--mode", choices=["default", "best"],
                        default="default")
    args = parser.parse_args()
    if args.core >= 0:
        os.sched_setaffinity(0, {args.core})
    torch.set_num_threads(1)
    dist.init_process_group(
        args.backend, init_method="file://" + args.store + "/rendezvous",
        rank=args.rank, world_size=args.ranks)
    make, batch, shape, classes = MODELS[args.model]
    torch.manual_seed(args.rank + 1)
    images = torch.randn(batch, *shape)
    labels = torch.randint(classes, (batch,))
    torch.manual_seed(1)
    network = make()
    if args.start:
        begin_as(args.start, network, images, labels, args.rank)
    bucket = BUCKETS_MB[0]
    if args.mode == "best":
        bucket = best_bucket(network, images, labels)
    model = wrap(network, args.mode, bucket)
    print("rank %d: %d parameters, torch %s" % (
        args.rank, sum(p.numel() for p in model.parameters()),
        torch.__version__), file=sys.stderr)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    word = torch.zeros(1)

    def pass_once():
        functional.cross_entropy(model(images), labels).backward()

    def step():
        optimizer.zero_grad(set_to_none=True)
        pass_once()
        optimizer.step()

    def step_with_word():
        optimizer.zero_grad(set_to_none=True)
        with model.no_sync():
            pass_once()
        dist.all_reduce(word)
        optimizer.step()

    for _ in range(args.warm_up):
        step()
    print("ready\ttorch=%s\tblas=%s\tbuckets=%d MiB" % (
        torch.__version__, blas(), bucket), flush=True)
    for line in sys.stdin:
        count, *what = line.split()
        run, rate = (step_with_word, 0.0) if what else (step, args.rate)
        optimizer.param_groups[0]["lr"] = rate
        start = time.monotonic_ns()
        for _ in range(int(count)):
            run()
        print(start, time.monotonic_ns(), flush=True)
    with torch.no_grad():
        loss = functional.cross_entropy(network(images), labels).item()
    print("end", hash_of(network), "%.9g" % loss, flush=True)


main()
