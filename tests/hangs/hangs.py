"""hangs.py DIR FRAMEWORK HOW ODD: ranks step together until rank ODD hangs.

FRAMEWORK is torch, ddp (DistributedDataParallel, which reduces in C++), joined
(PyTorch that joined its job, over lockstep's backend), tensorflow or jax. HOW is
what rank ODD does from step 10 on: lock, loader, spin, skip (it leaves out one
all-reduce, so that it waits in the next barrier for ranks that still reduce), left
(it exits with 0), or stop (it steps on; the test stops it). DIR/ready-ODD is made
at that moment.
"""

import os
import queue
import re
import sys
import threading
import time

DIRECTORY, FRAMEWORK, HOW = sys.argv[1:4]
RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
IS_ODD = RANK == int(sys.argv[4])
HANG_AT = 10
BARRIER_AT = 12


def say_when():
    open(os.path.join(DIRECTORY, f"ready-{RANK}"), "w").close()


class Batches:
    """What a DataLoader reads; from step 10 on the odd rank's has no more."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if IS_ODD and HOW == "loader" and index >= HANG_AT:
            say_when()
            time.sleep(100_000)
        return float(index)


def next_batch(batches):
    """Stands for the loaders of TensorFlow and JAX programs."""
    step = batches.get(timeout=100_000)
    if IS_ODD and HOW == "loader" and step == HANG_AT:
        say_when()
        return batches.get(timeout=100_000)
    batches.put(step + 1)
    return step


def wait_for_lock():
    lock = threading.Lock()
    with lock, lock:
        pass


def spin():
    re.match(r"(a+)+$", "a" * 64 + "b")


def hang():
    say_when()
    if HOW == "lock":
        wait_for_lock()
    elif HOW == "spin":
        spin()
    elif HOW == "left":
        sys.exit(0)


def train(batches, reduce, step_done=lambda: None, barrier=lambda: None):
    for step, _ in enumerate(batches):
        print(f"step {step}/1000", flush=True)
        if IS_ODD and step == HANG_AT and HOW != "loader":
            hang()
            if HOW == "skip":
                continue
        if step == BARRIER_AT:
            barrier()
        reduce()
        step_done()
        time.sleep(0.05)


def torch_program(backend, step_done=lambda: None):
    import torch
    import torch.distributed as dist

    dist.init_process_group(backend)
    gradient = torch.ones(1000)
    loader = torch.utils.data.DataLoader(Batches(), num_workers=1, prefetch_factor=2)
    train(loader, lambda: dist.all_reduce(gradient), step_done, dist.barrier)


def ddp_program():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(100, 10))
    batch = torch.ones(4, 100)
    loader = torch.utils.data.DataLoader(Batches(), num_workers=1, prefetch_factor=2)
    train(loader, lambda: model(batch).sum().backward(), barrier=dist.barrier)


def joined_program():
    import lockstep
    import lockstep.torch  # noqa: F401  (the backend)

    session = lockstep.join()
    torch_program("lockstep", session.step)


def queue_batches():
    batches = queue.Queue()
    batches.put(0)
    while True:
        yield next_batch(batches)


def tensorflow_program():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def train_step():
        def reduce():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([1000]))

        return strategy.run(reduce)

    train(queue_batches(), lambda: train_step().numpy())


def jax_program():
    import jax
    import numpy as np

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=RANKS,
        process_id=RANK,
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("ranks",))
    spread = jax.sharding.PartitionSpec("ranks")
    add = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=spread, out_specs=spread
        )
    )
    ones = jax.make_array_from_process_local_data(
        jax.sharding.NamedSharding(mesh, spread), np.ones((1, 1000), "float32"), (RANKS, 1000)
    )

    def train_step():
        add(ones).block_until_ready()

    train(queue_batches(), train_step)


if __name__ == "__main__":
    {
        "torch": lambda: torch_program("gloo"),
        "ddp": ddp_program,
        "joined": joined_program,
        "tensorflow": tensorflow_program,
        "jax": jax_program,
    }[FRAMEWORK]()
