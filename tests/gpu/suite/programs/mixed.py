"""Ranks in a group of lockstep for tensors on the CPU and NCCL for those on the GPU.

On the CPU "cuda" gets gloo, and what needs tensors on a GPU is left out.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
from rank import Rank, skip
from torch.nn.parallel import DistributedDataParallel

try:
    import lockstep.torch  # noqa: F401
except ImportError as error:
    skip(f"PyTorch {torch.__version__} cannot have the backend lockstep: {error}")


def same(got: torch.Tensor, wanted: Any, what: str) -> None:
    wanted = torch.as_tensor(wanted, dtype=got.dtype)
    if not torch.equal(got.cpu(), wanted.expand_as(got)):
        raise AssertionError(f"{what}: {got} is not {wanted}")


def total(rank: Rank) -> float:
    return rank.ranks * (rank.ranks + 1) / 2


def reductions(rank: Rank, device: torch.device) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        for count in (1, 1000, 1 << 20):
            tensor = torch.full((count,), rank.number + 1, dtype=dtype, device=device)
            dist.all_reduce(tensor)
            same(tensor, total(rank), f"all_reduce of {count} {dtype}")
    tensor = torch.full((5,), float(rank.number), device=device)
    dist.broadcast(tensor, rank.ranks - 1)
    same(tensor, float(rank.ranks - 1), "broadcast")
    gathered = torch.empty(5 * rank.ranks, device=device)
    dist.all_gather_into_tensor(gathered, torch.full((5,), float(rank.number), device=device))
    same(gathered, torch.arange(rank.ranks).repeat_interleave(5), "all_gather_into_tensor")
    scattered = torch.empty(3, device=device)
    dist.reduce_scatter_tensor(scattered, torch.ones(3 * rank.ranks, device=device))
    same(scattered, float(rank.ranks), "reduce_scatter_tensor")


def on_the_cpu(rank: Rank) -> None:
    reductions(rank, torch.device("cpu"))


def on_the_gpu(rank: Rank) -> None:
    reductions(rank, rank.device)


def at_once(rank: Rank) -> None:
    """Operations of both backends are in flight together, in many turns."""
    works: List[Any] = []
    tensors: List[torch.Tensor] = []
    for _ in range(20):
        for device in (rank.device, torch.device("cpu")):
            tensor = torch.full((100_000,), float(rank.number + 1), device=device)
            works.append(dist.all_reduce(tensor, async_op=True))
            tensors.append(tensor)
    for work in works:
        work.wait()
    for tensor in tensors:
        same(tensor, total(rank), f"all_reduce on {tensor.device}, with others")


def objects_and_barrier(rank: Rank) -> None:
    objects: List[Any] = [None] * rank.ranks
    dist.all_gather_object(objects, {"rank": rank.number})
    assert [one["rank"] for one in objects] == list(range(rank.ranks)), objects
    dist.barrier()


def new_group(rank: Rank) -> None:
    group = dist.new_group(list(range(rank.ranks)))
    for device in {torch.device("cpu"), rank.device}:
        tensor = torch.ones(10, device=device)
        dist.all_reduce(tensor, group=group)
        same(tensor, float(rank.ranks), f"all_reduce on {device} in a new group")


def lockstep_alone_refuses_the_gpu(rank: Rank) -> None:
    group = dist.new_group(list(range(rank.ranks)), backend="lockstep")
    try:
        dist.all_reduce(torch.ones(3, device=rank.device), group=group)
    except (RuntimeError, ValueError):
        pass
    else:
        raise AssertionError("a group of lockstep alone took a tensor on the GPU")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    same(tensor, float(rank.ranks), "all_reduce after the refusal")


def ddp(rank: Rank) -> None:
    """DDP's gradients are the mean of the ranks' own, which the CPU's backend brings."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model.to(rank.device)
    parallel = DistributedDataParallel(model)
    batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(rank.number))
    batch = batch.to(rank.device)
    with parallel.no_sync():
        parallel(batch).square().mean().backward()
    own = [parameter.grad.cpu() for parameter in model.parameters()]
    model.zero_grad()
    parallel(batch).square().mean().backward()
    for mine, parameter in zip(own, model.parameters()):
        dist.all_reduce(mine)
        torch.testing.assert_close(parameter.grad.cpu(), mine / rank.ranks)


ANYWHERE = (on_the_cpu, objects_and_barrier, new_group, ddp)
ON_A_GPU = (on_the_gpu, at_once, lockstep_alone_refuses_the_gpu)


def main() -> None:
    rank = Rank()
    rank.form("cpu:lockstep,cuda:nccl" if rank.gpu else "cpu:lockstep,cuda:gloo")
    checks: Dict[str, str] = {}
    programs: Dict[Callable[[Rank], None], bool] = dict.fromkeys(ANYWHERE, True)
    programs.update(dict.fromkeys(ON_A_GPU, rank.gpu))
    for check, here in programs.items():
        if here:
            check(rank)
        checks[check.__name__.replace("_", " ")] = "good" if here else "left out"
    dist.destroy_process_group()
    rank.finish({"checks": checks})


if __name__ == "__main__":
    main()
