"""The backend "lockstep" of torch.distributed: operations, types, refusals.

PYTHONPATH=build/release/python python3 tests/python/torch_backend_test.py
"""

from __future__ import annotations

import gc
import os
import re
import threading
import time
import unittest
from datetime import timedelta
from typing import Any, Callable, List

import torch_ranks

try:
    import torch
    import torch.distributed as dist
    from torch.distributed import ReduceOp
except ImportError:
    pass
else:
    FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
    COMPLEX = [torch.complex64, torch.complex128]
    REDUCED = [*FLOATS, *INTEGERS]
    COPIED = [
        *REDUCED,
        *COMPLEX,
        torch.bool,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.uint16,
        torch.uint32,
    ]
    OPS = {
        ReduceOp.SUM: lambda t: t.sum(0),
        ReduceOp.MIN: lambda t: t.amin(0),
        ReduceOp.MAX: lambda t: t.amax(0),
        ReduceOp.PRODUCT: lambda t: t.prod(0),
        ReduceOp.AVG: lambda t: t.mean(0),
    }


def value(rank: int, dtype: Any, count: int = 6, salt: int = 0) -> Any:
    """A tensor whose values all ranks know, exact in every type."""
    numbers = [(rank + salt + index) % 3 + 1 for index in range(count)]
    if dtype is torch.bool:
        return torch.tensor([number == 1 for number in numbers])
    return torch.tensor(numbers, dtype=torch.float32).to(dtype)


def same(got: Any, wanted: Any, what: str) -> None:
    if got.dtype is not wanted.dtype or got.shape != wanted.shape:
        raise AssertionError(f"{what}: {got} is not {wanted}")
    if not torch.equal(got.contiguous().view(torch.uint8), wanted.view(torch.uint8)):
        raise AssertionError(f"{what}: {got} is not {wanted}")


def refused(call: Callable[[], Any], pattern: str, kind: Any = Exception) -> None:
    try:
        call()
    except kind as error:
        if not re.search(pattern, str(error)):
            raise AssertionError(f"{error!r} does not say {pattern!r}") from error
        return
    raise AssertionError(f"nothing was raised that says {pattern!r}")


def reduction(op: Any, rows: Any, dtype: Any) -> Any:
    """The reduction of the rows; a mean of integers is cut towards zero."""
    if op == ReduceOp.AVG and dtype not in FLOATS:
        return torch.div(rows.sum(0).to(dtype), len(rows), rounding_mode="trunc")
    return OPS[op](rows).to(dtype)


def reductions() -> None:
    rank, n = torch_ranks.start(), dist.get_world_size()
    for dtype in REDUCED:
        for op in OPS:
            wide = torch.float64 if dtype in FLOATS else torch.int64
            rows = torch.stack([value(r, dtype).to(wide) for r in range(n)])
            wanted = reduction(op, rows, dtype)
            what = f"{dtype} {op}"
            got = value(rank, dtype)
            dist.all_reduce(got, op)
            if op == ReduceOp.AVG:
                torch.testing.assert_close(got, wanted)
                wanted = got
            same(got, wanted, f"all_reduce {what}")
            got = value(rank, dtype)
            dist.reduce(got, n - 1, op)
            if rank == n - 1:
                same(got, wanted, f"reduce {what}")
            parts = [value(rank, dtype, salt=part) for part in range(n)]
            mine = torch.stack([value(r, dtype, salt=rank).to(wide) for r in range(n)])
            wanted = reduction(op, mine, dtype)
            got = torch.empty(6, dtype=dtype)
            dist.reduce_scatter(got, parts, op)
            torch.testing.assert_close(got, wanted)
            got = torch.empty(6, dtype=dtype)
            dist.reduce_scatter_tensor(got, torch.cat(parts), op)
            torch.testing.assert_close(got, wanted)
    bools_and_complex(rank, n)
    coalesced(rank, n)
    dist.destroy_process_group()


def bools_and_complex(rank: int, n: int) -> None:
    rows = torch.stack([value(r, torch.bool) for r in range(n)])
    for op, wanted in (
        (ReduceOp.SUM, rows.any(0)),
        (ReduceOp.MAX, rows.any(0)),
        (ReduceOp.BOR, rows.any(0)),
        (ReduceOp.MIN, rows.all(0)),
        (ReduceOp.PRODUCT, rows.all(0)),
        (ReduceOp.BAND, rows.all(0)),
    ):
        got = value(rank, torch.bool)
        dist.all_reduce(got, op)
        same(got, wanted, f"all_reduce of bools, {op}")
    # Bytes that are not 0 or 1 are true all the same.
    odd = torch.tensor([2, 0, 128, 1], dtype=torch.uint8).view(torch.bool)
    dist.all_reduce(odd)
    same(odd, torch.tensor([True, False, True, True]), "bools of other bytes")
    for dtype in COMPLEX:
        got = value(rank, dtype) * (1 + 2j)
        wanted = sum(value(r, dtype) for r in range(n)) * (1 + 2j)
        dist.all_reduce(got)
        torch.testing.assert_close(got, wanted)


def coalesced(rank: int, n: int) -> None:
    tensors = [torch.full((k + 1,), float(rank)) for k in range(3)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        assert tensor.eq(n * (n - 1) / 2).all(), tensor
    ones = [torch.full((2,), float(rank + k)) for k in range(3)]
    gathered = [torch.empty(2 * n) for _ in ones]
    with dist._coalescing_manager(async_ops=True) as manager:
        for one, output in zip(ones, gathered):
            dist.all_gather_into_tensor(output, one)
    manager.wait()
    for k, output in enumerate(gathered):
        assert output.tolist() == [float(r + k) for r in range(n) for _ in (0, 1)]
    scattered = [torch.empty(2) for _ in ones]
    with dist._coalescing_manager(async_ops=False):
        for output, whole in zip(scattered, gathered):
            dist.reduce_scatter_tensor(output, whole)
    for k, output in enumerate(scattered):
        assert output.eq(float(n * (rank + k))).all(), output
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        many = [torch.ones(3), torch.ones(2)]
        dist.broadcast(many[0], 0)
        dist.all_reduce(many[1])
    manager.wait()


def copies() -> None:
    rank, n = torch_ranks.start(), dist.get_world_size()
    for dtype in COPIED:
        mine, what = value(rank, dtype), f"{dtype}"
        got = mine.clone()
        dist.broadcast(got, n - 1)
        same(got, value(n - 1, dtype), f"broadcast {what}")
        lists = [torch.empty(6, dtype=dtype) for _ in range(n)]
        dist.all_gather(lists, mine)
        for r in range(n):
            same(lists[r], value(r, dtype), f"all_gather {what}")
        if dtype not in (torch.uint16, torch.uint32):
            got = torch.empty(6 * n, dtype=dtype)
            dist.all_gather_into_tensor(got, mine)
            same(got, torch.cat(lists), f"all_gather_into_tensor {what}")
        lists = [torch.empty(6, dtype=dtype) for _ in range(n)] if rank == 0 else None
        dist.gather(mine, lists, 0)
        for r in range(n if rank == 0 else 0):
            same(lists[r], value(r, dtype), f"gather {what}")
        got = torch.empty(6, dtype=dtype)
        parts = [value(9, dtype, salt=p) for p in range(n)] if rank == 1 else None
        dist.scatter(got, parts, 1)
        same(got, value(9, dtype, salt=rank), f"scatter {what}")
        lists = [torch.empty(6, dtype=dtype) for _ in range(n)]
        dist.all_to_all(lists, [value(rank, dtype, salt=p) for p in range(n)])
        for r in range(n):
            same(lists[r], value(r, dtype, salt=rank), f"all_to_all {what}")
        if rank < 2:
            got = torch.empty(6, dtype=dtype)
            if rank == 0:
                dist.send(mine, 1)
            else:
                dist.recv(got, 0)
                same(got, value(0, dtype), f"recv {what}")
    splits(rank, n)
    messages(rank, n)
    dist.destroy_process_group()


def splits(rank: int, n: int) -> None:
    # Rank r sends p + 1 rows to rank p.
    rows = sum(p + 1 for p in range(n))
    source = torch.full((rows, 2), float(rank))
    got = torch.empty((rank + 1) * n, 2)
    dist.all_to_all_single(got, source, [rank + 1] * n, [p + 1 for p in range(n)])
    assert got[:, 0].tolist() == [float(r) for r in range(n) for _ in range(rank + 1)]
    got = torch.empty(n)
    dist.all_to_all_single(got, torch.arange(float(n)) + 10 * rank)
    assert got.tolist() == [10.0 * r + rank for r in range(n)], got
    # Tensors of different sizes.
    lists = [torch.empty(r + 1) for r in range(n)]
    dist.all_gather(lists, torch.full((rank + 1,), float(rank)))
    for r, one in enumerate(lists):
        assert one.eq(float(r)).all(), lists


def messages(rank: int, n: int) -> None:
    right, left = (rank + 1) % n, (rank - 1) % n
    works = [
        dist.isend(torch.full((3,), float(10 * rank + tag)), right, tag=tag) for tag in (0, 1, 7)
    ]
    got = {tag: torch.empty(3) for tag in (7, 1, 0)}
    works += [dist.irecv(got[tag], left, tag=tag) for tag in (7, 1, 0)]
    for work in works:
        work.wait()
        assert work.is_completed()
    for tag, tensor in got.items():
        assert tensor.eq(float(10 * left + tag)).all(), (tag, tensor)
    got_now = torch.empty(4)
    ops = [
        dist.P2POp(dist.isend, torch.full((4,), float(rank)), right),
        dist.P2POp(dist.irecv, got_now, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got_now.eq(float(left)).all()
    future = dist.irecv(got_now, left, tag=3).get_future()
    dist.send(torch.full((4,), -1.0), right, tag=3)
    future.wait()
    assert got_now.eq(-1).all()


def layouts() -> None:
    rank, n = torch_ranks.start(), dist.get_world_size()
    total = float(n * (n + 1) / 2)
    matrix = torch.full((4, 6), float(rank + 1))
    for view in (matrix[:, ::2], matrix.t(), matrix[1]):
        view.fill_(float(rank + 1))
        dist.all_reduce(view)
        assert view.eq(total).all(), view
    work = dist.all_reduce(matrix.fill_(float(rank + 1)).t(), async_op=True)
    work.wait()
    assert matrix.eq(total).all()
    scalar = torch.tensor(float(rank + 1), requires_grad=True)
    dist.all_reduce(scalar.detach())
    assert scalar.item() == total
    for shape in ((0,), (3, 0)):
        dist.all_reduce(torch.empty(shape))
        dist.broadcast(torch.empty(shape), 0)
    # The input is a part of the output, as sharded parameters are.
    flat = torch.full((n, 3), -1.0)
    flat[rank] = float(rank)
    dist.all_gather_into_tensor(flat.view(-1), flat[rank])
    assert flat[:, 0].tolist() == [float(r) for r in range(n)], flat
    dist.reduce_scatter_tensor(flat[rank], flat.view(-1))
    assert flat[rank].eq(float(n * rank)).all(), flat
    lists = [torch.empty(3, 2).t() for _ in range(n)]
    dist.all_gather(lists, torch.full((2, 3), float(rank)))
    for r, one in enumerate(lists):
        assert one.eq(float(r)).all(), lists
    # Works that no thread waits for, and whose tensors are gone.
    for _ in range(40):
        dist.all_reduce(torch.ones(1000), async_op=True)
    dist.barrier()
    futures(rank, n)
    dist.destroy_process_group()


def futures(rank: int, n: int) -> None:
    tensor = torch.ones(5)
    work = dist.all_reduce(tensor, async_op=True)
    chained = work.get_future().then(lambda done: done.value()[0].sum().item())
    assert chained.wait() == 5 * n
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.result()[0].eq(n).all()

    def nested(_: Any) -> Any:
        # What is chained to a future may wait for another one.
        inner = dist.all_reduce(torch.ones(2), async_op=True)
        return inner.get_future().wait()[0]

    works: List[Any] = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
    results = [work.get_future().then(nested) for work in works]
    for result in results:
        assert result.wait().eq(n).all()


def groups() -> None:
    rank, n = torch_ranks.start(), dist.get_world_size()
    pairs = {(a, b): dist.new_group([a, b]) for a in range(n) for b in range(a + 1, n)}
    mine = {pair: group for pair, group in pairs.items() if rank in pair}
    works = []
    # All groups at once.
    for pair, group in mine.items():
        tensor = torch.tensor([float(rank)])
        works.append((pair, tensor, dist.all_reduce(tensor, group=group, async_op=True)))
    for pair, tensor, work in reversed(works):
        work.wait()
        assert tensor.item() == sum(pair), (pair, tensor)
    backward = dist.new_group(list(reversed(range(n))))
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, 0, group=backward)
    assert tensor.item() == 0.0
    if n == 4:
        split(rank)
    objects: List[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": rank, "list": list(range(rank))})
    assert [one["rank"] for one in objects] == list(range(n))
    some = [f"from {rank}", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(some, 0)
    assert some == ["from 0", 0]
    got: List[Any] = [None]
    dist.scatter_object_list(got, [f"to {r}" for r in range(n)] if rank == 0 else None, 0)
    assert got == [f"to {rank}"]
    lists: Any = [None] * n if rank == 0 else None
    dist.gather_object(rank * rank, lists, 0)
    assert rank or lists == [r * r for r in range(n)]
    if torch_ranks.takes_backends():
        dist.monitored_barrier(timeout=timedelta(seconds=30))
    assert "lockstep" in dist.get_backend(), dist.get_backend()
    dist.destroy_process_group()


def monitored() -> None:
    """A barrier names who did not come, and breaks nothing."""
    rank, n = torch_ranks.start(), dist.get_world_size()
    if not torch_ranks.takes_backends():
        # torch has it for gloo alone there.
        refused(dist.monitored_barrier, "only implemented for GLOO", ValueError)
        return
    for _ in range(3):
        dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)
    if rank == 0:
        for all_of_them, who in ((False, "Rank 1"), (True, "Ranks 1, 2")):
            refused(
                lambda all_of_them=all_of_them: dist.monitored_barrier(
                    timeout=timedelta(milliseconds=50), wait_all_ranks=all_of_them
                ),
                f"^lockstep: {who} failed to pass monitoredBarrier in 50 ms$",
                dist.DistBackendError,
            )
    # The late ranks hear of it, and the next barrier is one of all ranks again.
    dist.barrier()
    if rank:
        for who in ("Rank 1", "Ranks 1, 2"):
            refused(
                lambda: dist.monitored_barrier(timeout=timedelta(seconds=60)),
                f"Rank {rank} successfully reached .*rank 0: {who} failed to pass",
                dist.DistBackendError,
            )
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    assert n == 3
    dist.destroy_process_group()


def lifetimes() -> None:
    """torch's C++ may be all that holds a work or a group."""
    rank, n = torch_ranks.start(), dist.get_world_size()
    # DDP's reducer waits for a work in the backward pass, which Python does not keep.
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(rank + 1):
            model(torch.ones(1, 2)).sum().backward()
    assert model.module.weight.grad.eq(rank + 1).all(), model.module.weight.grad
    one = torch.full((1,), float(n))
    work = dist.all_reduce(one, async_op=True)
    work.wait()
    # DDP's join takes the value at once.
    future = work.get_future()
    assert future.done() and future.value()[0].item() == n * n
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group()
    gc.collect()
    got = torch.empty(n)
    dist.all_gather_into_tensor(got, one, group=group)
    assert got.eq(n * n).all()
    dist.destroy_process_group()


def split(rank: int) -> None:
    def make() -> Any:
        return dist.split_group(split_ranks=[[0, 2], [3, 1]])

    if torch_ranks.version() < (2, 15):
        # torch has it for devices alone there.
        refused(make, "No device associated with the default pg", RuntimeError)
        return
    half = make()
    tensor = torch.tensor([float(rank)])
    dist.broadcast(tensor, group_src=0, group=half)
    assert tensor.item() == (0.0 if rank in (0, 2) else 3.0), tensor
    work = dist.all_reduce(tensor, group=half, async_op=True)
    work.wait()
    assert work.is_completed()


def refusals() -> None:
    rank = torch_ranks.start()
    ones = torch.ones(4)
    refused(lambda: dist.all_reduce(ones, dist._make_nccl_premul_sum(2.0)), "PREMUL_SUM")
    for op in ("BAND", "BOR", "BXOR"):
        refused(lambda op=op: dist.all_reduce(ones.int(), getattr(ReduceOp, op)), op)
    refused(lambda: dist.all_reduce(ones.to(torch.float8_e5m2)), "float8_e5m2")
    refused(lambda: dist.recv(ones), "any source")
    refused(lambda: dist.send(ones, 1 - rank, tag=-1), "tags from 0")
    refused(lambda: dist.all_reduce(ones.to_sparse()), "sparse|dense")
    refused(lambda: dist.reduce_scatter_tensor(ones[:3].clone(), ones), "reduce_scatter")
    refused(lambda: dist.all_to_all_single(ones.clone(), ones, [3, 3], [2, 2]), "split")
    # Nothing was sent: the group is still good.
    dist.all_reduce(ones)
    assert ones.eq(2).all()
    dist.destroy_process_group()


def mixed() -> None:
    """Groups of lockstep for the CPU and another backend for GPUs, without a GPU."""
    if not torch_ranks.takes_backends():
        refused(
            lambda: torch_ranks.start("cpu:lockstep,cuda:gloo"),
            r'init_process_group\("lockstep"\), or PyTorch 2\.',
            NotImplementedError,
        )
        return
    if not torch.cuda.is_available():
        # PyTorch itself makes no NCCL group then, whatever has the CPU.
        refused(
            lambda: torch_ranks.start("cpu:lockstep,cuda:nccl", store="refused"),
            "no GPUs found|at least one CUDA device|NCCL built in",
            (ValueError, RuntimeError),
        )
        assert not dist.is_initialized()
    rank = torch_ranks.start("cpu:lockstep,cuda:gloo")
    n = dist.get_world_size()
    assert "cpu:lockstep" in dist.get_backend_config(), dist.get_backend_config()
    tensors = [torch.full((1000,), float(rank)) for _ in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for tensor, work in zip(tensors, works):
        work.wait()
        assert tensor.eq(n * (n - 1) / 2).all(), tensor
        future = work.get_future()
        assert future.wait()[0].eq(n * (n - 1) / 2).all() and future.done()
    gathered = torch.empty(n)
    dist.all_gather_into_tensor(gathered, torch.tensor([float(rank)]))
    assert gathered.tolist() == [float(r) for r in range(n)], gathered
    objects: List[Any] = [None] * n
    dist.all_gather_object(objects, rank)
    assert objects == list(range(n)), objects
    dist.barrier()
    group = dist.new_group(list(range(n)))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(n).all(), tensor
    model = torch.nn.Linear(4, 2)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(torch.full((1, 4), float(rank))).sum().backward()
    assert model.weight.grad.eq((n - 1) / 2).all(), model.weight.grad
    dist.destroy_process_group()


def two_jobs() -> None:
    """Processes of two jobs share a store by mistake: every rank gets the sentence."""
    rank = int(os.environ["RANK"])
    os.environ["LOCKSTEP_JOB"] = "mnist" if rank < 2 else "bert"
    os.environ["LOCKSTEP_GENERATION"] = "3"
    torch_ranks.find()
    # Rank 0 has the store, and ends as soon as it has the sentence.
    port = dist.FileStore(os.environ["RANK_FOLDER"] + "/port")
    store = dist.TCPStore("127.0.0.1", 0 if rank == 0 else int(port.get("port")), None, rank == 0)
    if rank == 0:
        port.set("port", str(store.port))
    refused(
        lambda: dist.init_process_group("lockstep", store=store, rank=rank, world_size=3),
        r"process group .* has processes of different jobs \(ranks 0, 1: mnist, generation 3; "
        r"rank 2: bert, generation 3\); give each job a store",
        dist.DistBackendError,
    )


def two_generations() -> None:
    """A process that outlived its generation, and one of the next."""
    rank = int(os.environ["RANK"])
    os.environ["LOCKSTEP_JOB"], os.environ["LOCKSTEP_GENERATION"] = "mnist", str(3 - rank)
    refused(torch_ranks.start, "rank 1: mnist, generation 2", dist.DistBackendError)


def one_job() -> None:
    """A job's ranks, and a process that no job started."""
    if os.environ["RANK"] != "1":
        os.environ["LOCKSTEP_JOB"], os.environ["LOCKSTEP_GENERATION"] = "mnist", "3"
    torch_ranks.start()
    dist.barrier()
    dist.destroy_process_group()


def absent() -> None:
    """The ranks that did not come are named on all that did."""
    if os.environ["RANK"] in "13":
        return
    refused(lambda: torch_ranks.start(timeout_s=3), "ranks 1, 3 of .* did not come", RuntimeError)


def exits() -> None:
    """The process ends while a callback of a future is still in torch."""
    torch_ranks.start()
    running = threading.Event()

    def compute(done: Any) -> float:
        total = 0.0
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            running.set()
            total += torch.ones(10_000).cumsum(0)[-1].item()
        return total

    dist.all_reduce(torch.ones(4), async_op=True).get_future().then(compute)
    assert running.wait(60)


PROGRAMS = {
    "reductions": reductions,
    "copies": copies,
    "layouts": layouts,
    "groups": groups,
    "lifetimes": lifetimes,
    "refusals": refusals,
    "mixed": mixed,
    "exits": exits,
    "monitored": monitored,
    "two_jobs": two_jobs,
    "two_generations": two_generations,
    "one_job": one_job,
    "absent": absent,
}


class TorchBackendTest(unittest.TestCase):
    def test_a_monitored_barrier(self) -> None:
        torch_ranks.run(self, __file__, "monitored", 3)

    def test_two_ranks(self) -> None:
        for name in PROGRAMS.keys() - {"monitored", "two_jobs", "one_job", "absent"}:
            with self.subTest(name):
                torch_ranks.run(self, __file__, name, 2)

    def test_four_ranks(self) -> None:
        for name in ("reductions", "copies", "layouts", "groups", "absent"):
            with self.subTest(name):
                torch_ranks.run(self, __file__, name, 4)

    def test_a_group_has_processes_of_one_job(self) -> None:
        for name in ("two_jobs", "one_job"):
            with self.subTest(name):
                torch_ranks.run(self, __file__, name, 3)


if __name__ == "__main__":
    torch_ranks.main(PROGRAMS)
