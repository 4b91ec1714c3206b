"""One rank of a benchmark of JAX's collectives on CPUs: psum of float32.

Speaks as torch_rank.py does. --collectives: lockstep, or gloo as JAX brings it.
"""

import argparse
import os
import pathlib
import socket
import sys
import time
import zlib

import numpy as np

LIMIT_S = 60


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    return [one.getsockname()[1] for one in sockets]


def shared_ports(folder, rank):
    """Two ports that rank 0 found: of JAX's service, and of lockstep's store."""
    path = pathlib.Path(folder) / "ports"
    if rank == 0:
        new = path.with_suffix(".new")
        new.write_text("{} {}".format(*free_ports(2)))
        new.rename(path)
    until = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > until:
            sys.exit(f"rank 0 did not write {path}")
        time.sleep(0.01)
    return path.read_text().split()


def choose(collectives):
    if collectives == "lockstep":
        import lockstep.jax

        lockstep.jax.use_collectives()
    else:
        os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = collectives


class Psum:
    """The sum over all ranks of an array of each, as a program writes it."""

    def __init__(self, jax, size, rank, ranks):
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(jax.devices()), ("ranks",))
        spread = PartitionSpec("ranks")
        self.sum = jax.jit(jax.shard_map(
            lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=spread,
            out_specs=spread))
        count = size // 4
        own = ((np.arange(count) + rank) % 251).astype(np.float32)
        self.values = jax.make_array_from_process_local_data(
            NamedSharding(mesh, spread), own, (ranks * count,))

    def timed(self, count):
        start = time.monotonic_ns()
        for _ in range(count):
            self.sum(self.values).block_until_ready()
        return start, time.monotonic_ns()

    def result(self):
        total = np.asarray(self.sum(self.values).addressable_shards[0].data)
        return zlib.crc32(total.tobytes()), float(total.mean(dtype=np.float64))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collectives", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--core", type=int, default=-1)
    args = parser.parse_args()
    # Gloo writes to the standard output, which is for answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if args.core >= 0:
        os.sched_setaffinity(0, {args.core})
    service, store = shared_ports(args.store, args.rank)
    os.environ.update(
        JAX_PLATFORMS="cpu", RANK=str(args.rank), WORLD_SIZE=str(args.ranks),
        LOCAL_WORLD_SIZE=str(args.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=store)
    choose(args.collectives)
    import jax

    jax.distributed.initialize(f"127.0.0.1:{service}", args.ranks, args.rank)
    work = Psum(jax, args.bytes, args.rank, args.ranks)
    work.timed(3)
    print(f"ready\tjax={jax.__version__}", file=answers)
    for line in sys.stdin:
        print(*work.timed(int(line.split()[0])), file=answers)
    checksum, value = work.result()
    print("end", f"{checksum:08x}", f"{value:.9g}", file=answers)


main()
