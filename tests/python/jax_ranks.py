"""A rank of jax_test.py: runs the function that its argument names."""

from __future__ import annotations

import os
import sys
import zlib
from typing import Any, Callable

import lockstep.jax

lockstep.jax.use_collectives()
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")


def start() -> None:
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=RANKS,
        process_id=RANK,
    )


def over(mesh: Mesh, call: Callable[[Any], Any], rows: np.ndarray) -> np.ndarray:
    """Runs `call` on each process's row of `rows`; returns this process's result."""
    spread = PartitionSpec(mesh.axis_names)
    mapped = jax.jit(
        jax.shard_map(call, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False)
    )
    sharding = NamedSharding(mesh, spread)
    values = jax.make_array_from_process_local_data(sharding, rows[RANK : RANK + 1], rows.shape)
    return np.asarray(mapped(values).addressable_shards[0].data)


def line() -> Mesh:
    return Mesh(np.array(jax.devices()), ("ranks",))


def rows_of(kind: str, count: int = 6) -> np.ndarray:
    """A row for each rank, exact in every type; the top bit is in use."""
    numbers = (np.arange(RANKS)[:, None] + np.arange(count)[None, :]) % 3 + 1
    rows = numbers.astype(kind)
    if kind.startswith("uint"):
        rows[:, 0] = [np.iinfo(kind).max - rank for rank in range(RANKS)]
    elif kind.startswith("int"):
        rows[:, 0] = np.arange(RANKS) - 1
    elif kind in COMPLEX:
        rows *= 1 + 2j
    return rows


def same(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    wanted = np.asarray(wanted)
    if got.dtype != wanted.dtype or not np.array_equal(got.reshape(wanted.shape), wanted):
        raise AssertionError(f"{what}: {got} is not {wanted}")


def reductions(mesh: Mesh, kind: str) -> None:
    rows = rows_of(kind)
    total = np.add.reduce(rows, dtype=kind)
    same(over(mesh, lambda x: lax.psum(x, "ranks"), rows), total, f"psum {kind}")
    if kind not in COMPLEX:
        same(over(mesh, lambda x: lax.pmax(x, "ranks"), rows), rows.max(0), f"pmax {kind}")
        same(over(mesh, lambda x: lax.pmin(x, "ranks"), rows), rows.min(0), f"pmin {kind}")
    wide = np.tile(rows, (1, RANKS))
    part = np.add.reduce(wide, dtype=kind).reshape(RANKS, -1)[RANK]
    scattered = over(mesh, lambda x: lax.psum_scatter(x[0], "ranks", tiled=True)[None], wide)
    same(scattered, part, f"psum_scatter {kind}")


def copies(mesh: Mesh, kind: str) -> None:
    rows = rows_of(kind)
    same(over(mesh, lambda x: lax.all_gather(x[0], "ranks")[None], rows), rows, f"gather {kind}")
    ring = [(rank, (rank + 1) % RANKS) for rank in range(RANKS)]
    same(
        over(mesh, lambda x: lax.ppermute(x, "ranks", ring), rows),
        rows[(RANK - 1) % RANKS],
        f"ppermute {kind}",
    )
    # Only one pair: the others get zeros.
    one = over(mesh, lambda x: lax.ppermute(x, "ranks", [(0, 1)]), rows)
    same(one, rows[0] if RANK == 1 else np.zeros_like(rows[0]), f"one ppermute {kind}")
    wide = np.stack([np.stack([rows[r] * (p + 1) for p in range(RANKS)]) for r in range(RANKS)])
    wide = wide.astype(kind)
    same(
        over(mesh, lambda x: lax.all_to_all(x[0], "ranks", 0, 0)[None], wide),
        wide[:, RANK],
        f"all_to_all {kind}",
    )


def operations() -> None:
    start()
    mesh = line()
    for kind in (*INTEGERS, *FLOATS, *COMPLEX):
        reductions(mesh, kind)
        copies(mesh, kind)
    big = np.ones((RANKS, 1 << 20), np.float32)
    same(over(mesh, lambda x: lax.psum(x, "ranks"), big), big.sum(0), "a large psum")
    halves = rows_of("float32").astype(jnp.bfloat16)
    same(over(mesh, lambda x: lax.psum(x, "ranks"), halves), halves.sum(0), "psum bfloat16")
    bools = np.arange(RANKS * 4).reshape(RANKS, 4) % 3 == 0
    same(over(mesh, lambda x: lax.all_gather(x[0], "ranks")[None], bools), bools, "bools")


def parts() -> None:
    start()
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "columns"))
    values = np.arange(RANKS * 3, dtype=np.float32).reshape(RANKS, 3)
    grid = values.reshape(2, 2, 3)
    row, column = divmod(RANK, 2)
    for _ in range(3):
        same(over(mesh, lambda x: lax.psum(x, "columns"), values), grid[row].sum(0), "a row")
        same(over(mesh, lambda x: lax.psum(x, "rows"), values), grid[:, column].sum(0), "a column")
        same(over(mesh, lambda x: lax.psum(x, ("rows", "columns")), values), values.sum(0), "all")
    both = over(mesh, lambda x: lax.psum(lax.pmax(x, "rows"), "columns"), values)
    same(both, grid.max(0).sum(0), "a row of columns")


def training() -> None:
    """Data parallel training of two layers by jit alone: XLA adds the collectives."""
    start()
    mesh = line()
    whole = NamedSharding(mesh, PartitionSpec())
    spread = NamedSharding(mesh, PartitionSpec("ranks"))
    generator = np.random.default_rng(1)
    points = generator.normal(size=(64, 8)).astype(np.float32)
    labels = (points @ generator.normal(size=(8,)) > 0).astype(np.float32)
    mine = slice(RANK * 64 // RANKS, (RANK + 1) * 64 // RANKS)
    x = jax.make_array_from_process_local_data(spread, points[mine], points.shape)
    y = jax.make_array_from_process_local_data(spread, labels[mine], labels.shape)
    weights = [
        jax.device_put(generator.normal(size=shape).astype(np.float32) / 3, whole)
        for shape in ((8, 32), (32,))
    ]

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - y) ** 2)

    @jax.jit
    def step(weights: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return [w - 0.1 * g for w, g in zip(weights, gradients)], loss

    losses = []
    for _ in range(100):
        weights, loss = step(weights, x, y)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 2, losses
    value = 0
    for weight in weights:
        value = zlib.crc32(np.asarray(weight.addressable_shards[0].data).tobytes(), value)
    print(f"parameters {value:08x} loss {losses[-1]!r}")


def refused(call: Callable[[], Any], sentence: str) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - JAX's types are not public
        if sentence not in str(error):
            raise AssertionError(f"{error!r} does not say {sentence!r}") from error
        return
    raise AssertionError(f"nothing was raised that says {sentence!r}")


def refusals() -> None:
    start()
    mesh = line()
    rows = rows_of("complex64")
    halves = rows_of("float16")
    refused(lambda: over(mesh, lambda x: lax.psum(x, "ranks"), halves), "f16")
    # The communicator goes on.
    same(over(mesh, lambda x: lax.psum(x, "ranks"), rows), rows.sum(0), "after a refusal")


def killed() -> None:
    start()
    mesh = line()
    rows = np.ones((RANKS, 1 << 16), np.float32)
    for _ in range(3):
        over(mesh, lambda x: lax.psum(x, "ranks"), rows)
    print("reduced", flush=True)
    try:
        while True:
            over(mesh, lambda x: lax.psum(x, "ranks"), rows)
    except Exception as error:  # noqa: BLE001
        print("lost:", str(error).replace("\n", " "), flush=True)
    # Not by way of JAX's service, which waits for the lost process.
    os._exit(0)


def cannot_form() -> None:
    start()
    mesh = line()
    spread = NamedSharding(mesh, PartitionSpec("ranks"))
    ones = jax.make_array_from_callback(
        (mesh.size, 4), spread, lambda index: np.ones((1, 4), np.float32)
    )
    total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))
    try:
        print("summed", total(ones).block_until_ready())
    except Exception as error:  # noqa: BLE001
        print("refused:", str(error).replace("\n", " "), flush=True)
    os._exit(0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
