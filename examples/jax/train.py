"""JAX on several processes: a sum over all devices with shard_map."""

import lockstep.jax

lockstep.jax.use_collectives()  # Before JAX is imported.
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def main() -> None:
    session = lockstep.join()
    if session.managed:
        # What it needs is in the environment.
        jax.distributed.initialize()
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    spread = PartitionSpec("ranks")
    total = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=spread, out_specs=spread
        )
    )
    count = jax.device_count()
    ours = jnp.arange(4.0) + 4 * jax.process_index()
    sharding = NamedSharding(mesh, spread)
    values = jax.make_array_from_process_local_data(sharding, np.asarray(ours), (4 * count,))
    for _ in range(10):
        result = total(values)
        result.block_until_ready()
        session.step(samples=4)
    shown = np.asarray(result.addressable_shards[0].data)
    if session.chief:
        print(f"{count} devices: sum {shown.tolist()}")


if __name__ == "__main__":
    main()
