"""Training over the backend "lockstep": the results of gloo, and lost peers.

PYTHONPATH=build/release/python python3 tests/python/torch_training_test.py
"""

from __future__ import annotations

import os
import signal
import time
import unittest
from datetime import timedelta
from typing import Any, Callable, Dict, List

import torch_ranks

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    pass


def model() -> Any:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 4))


def batch(rank: int, step: int) -> Any:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 8, generator=generator)


def parameters(module: Any) -> Any:
    return torch.cat([one.detach().reshape(-1) for one in module.parameters()])


def train(
    group: Any,
    rank: int,
    *,
    steps: int = 3,
    prepare: Callable[[Any], None] = lambda ddp: None,
    accumulate: bool = False,
    **options: Any,
) -> Any:
    # Buckets of a few parameters each, so that several are under way.
    options.setdefault("bucket_cap_mb", 0.001)
    ddp = DistributedDataParallel(model(), process_group=group, **options)
    prepare(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        if accumulate:
            with ddp.no_sync():
                ddp(batch(rank, 50 + step)).square().mean().backward()
        ddp(batch(rank, step)).square().mean().backward()
        optimizer.step()
    return parameters(ddp)


def train_uneven(group: Any, rank: int) -> Any:
    ddp = DistributedDataParallel(model(), process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    with ddp.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            ddp(batch(rank, step)).square().mean().backward()
            optimizer.step()
    return parameters(ddp)


def train_zero(group: Any, rank: int) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp = DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), torch.optim.Adam, process_group=group, lr=0.01
    )
    for step in range(3):
        optimizer.zero_grad()
        ddp(batch(rank, step)).square().mean().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    return parameters(ddp)


def train_sharded(group: Any, rank: int) -> Any:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    module = model()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        module(batch(rank, step)).square().mean().backward()
        optimizer.step()
    return torch.cat([one.full_tensor().detach().reshape(-1) for one in module.parameters()])


def hook(name: str) -> Callable[[Any], None]:
    def prepare(ddp: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import (
            default_hooks,
            powerSGD_hook,
        )

        if name == "power":
            state = powerSGD_hook.PowerSGDState(
                ddp.process_group, start_powerSGD_iter=2, min_compression_rate=0.5
            )
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            ddp.register_comm_hook(ddp.process_group, getattr(default_hooks, name))

    return prepare


def same_as_gloo() -> None:
    rank = torch_ranks.start()
    ours = dist.group.WORLD
    gloo = dist.new_group(backend="gloo")
    ways: Dict[str, Callable[[Any], Any]] = {
        "plain": lambda g: train(g, rank),
        "long": lambda g: train(g, rank, steps=200),
        "no_sync": lambda g: train(g, rank, accumulate=True),
        "static_graph": lambda g: train(g, rank, static_graph=True),
        "unused": lambda g: train(g, rank, find_unused_parameters=True),
        "views": lambda g: train(g, rank, gradient_as_bucket_view=True),
        "allreduce_hook": lambda g: train(g, rank, prepare=hook("allreduce_hook")),
        "fp16_hook": lambda g: train(g, rank, prepare=hook("fp16_compress_hook")),
        "bf16_hook": lambda g: train(g, rank, prepare=hook("bf16_compress_hook")),
        # With several buckets the hook starts its operations in another order on
        # each rank: gloo waits for ever then.
        "power_sgd": lambda g: train(g, rank, steps=6, prepare=hook("power"), bucket_cap_mb=25),
        "join": lambda g: train_uneven(g, rank),
        "zero": lambda g: train_zero(g, rank),
        "fully_shard": lambda g: train_sharded(g, rank),
    }
    for name, way in ways.items():
        wanted, got = way(gloo), way(ours)
        # Gloo rounds 16-bit sums at each hop, lockstep once.
        near = {"rtol": 1e-2, "atol": 1e-3} if "16" in name else {"rtol": 1e-4, "atol": 1e-5}
        if name == "long" and dist.get_world_size() == 2:  # No order of more terms.
            near = {"rtol": 0.0, "atol": 1e-6}
        torch.testing.assert_close(
            got, wanted, **near, msg=lambda text, name=name: f"{name}: {text}"
        )
        alike: List[Any] = [torch.empty_like(got) for _ in range(dist.get_world_size())]
        dist.all_gather(alike, got)
        assert all(torch.equal(one, got) for one in alike), f"{name}: ranks differ"
    dist.destroy_process_group()


def killed_peer() -> None:
    """The last rank kills itself: DDP must not take what it has for a result."""
    rank = torch_ranks.start(timeout_s=60)
    last = dist.get_world_size() - 1
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    for step in range(10):
        if rank == last and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            ddp(batch(rank, step)).square().mean().backward()
        except RuntimeError as error:
            print(f"DDP step {step}: {type(error).__name__}: {error}", flush=True)
            break
    else:
        raise AssertionError("DDP did not see that a peer is gone")
    try:
        dist.all_reduce(torch.ones(3))
    except dist.DistBackendError as error:
        print(f"all_reduce: {error}", flush=True)
    work = None
    try:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
    except dist.DistBackendError as error:
        print(f"work: {error}", flush=True)
    if work is not None:
        assert work.is_completed() and not work.is_success()
        assert isinstance(work.exception(), dist.DistBackendError)
    os._exit(0)


def late_peer() -> None:
    """A rank that does not come is named, and the others end in time."""
    rank = torch_ranks.start(timeout_s=60)
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    if rank == 1:
        store.wait(["seen"], timedelta(seconds=60))
        os._exit(0)
    group = dist.group.WORLD
    began = time.monotonic()
    work = group._get_backend(torch.device("cpu"))
    work.set_timeout(timedelta(seconds=1))
    try:
        dist.all_reduce(torch.ones(3))
    except dist.DistBackendError as error:
        print(f"late: {error}", flush=True)
    else:
        raise AssertionError("all_reduce did not time out")
    assert time.monotonic() - began < 30
    store.set("seen", "1")
    time.sleep(0.5)
    os._exit(0)


def different_operations() -> None:
    """The ranks start different operations: none of them gets a result."""
    rank = torch_ranks.start(timeout_s=20)
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.broadcast(torch.ones(3), 0)
    except dist.DistBackendError as error:
        print(f"different: {error}", flush=True)
    else:
        raise AssertionError("nothing was raised")
    os._exit(0)


def gpu_tensors() -> None:
    """What is on a GPU is refused with the way to do it."""
    torch_ranks.start()
    from lockstep.torch import _tensors

    class OnGpu:
        is_cpu = False
        device = torch.device("cuda", 0)

    try:
        _tensors.check_device("all_reduce", OnGpu())  # type: ignore[arg-type]
    except RuntimeError as error:
        assert "cpu:lockstep,cuda:nccl" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    dist.destroy_process_group()


PROGRAMS = {
    "same_as_gloo": same_as_gloo,
    "killed_peer": killed_peer,
    "late_peer": late_peer,
    "different_operations": different_operations,
    "gpu_tensors": gpu_tensors,
}


class TorchTrainingTest(unittest.TestCase):
    def test_two_ranks_train_as_with_gloo(self) -> None:
        torch_ranks.run(self, __file__, "same_as_gloo", 2)

    def test_four_ranks_train_as_with_gloo(self) -> None:
        torch_ranks.run(self, __file__, "same_as_gloo", 4)

    def test_ddp_raises_where_a_peer_was_killed(self) -> None:
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                started = torch_ranks.Ranks(__file__, "killed_peer", ranks)
                printed = started.wait()
                for rank, text in enumerate(printed[:-1]):
                    self.assertEqual(started.processes[rank].returncode, 0, text)
                    self.assertRegex(text, r"DDP step [34]: .*")
                    self.assertRegex(text, f"rank {ranks - 1}")
                    self.assertIn("all_reduce: ", text)
                    self.assertIn("work: ", text)

    def test_names_the_rank_that_did_not_come(self) -> None:
        printed = torch_ranks.run(self, __file__, "late_peer", 2)
        self.assertRegex(printed[0], "late: .*rank 1")

    def test_refuses_different_operations(self) -> None:
        for text in torch_ranks.run(self, __file__, "different_operations", 2):
            self.assertIn("different: ", text)

    def test_refuses_tensors_on_gpus(self) -> None:
        torch_ranks.run(self, __file__, "gpu_tensors", 1)


if __name__ == "__main__":
    torch_ranks.main(PROGRAMS)
