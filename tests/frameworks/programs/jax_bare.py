"""jax.distributed without arguments."""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()
print("process", jax.process_index(), "of", jax.process_count(), "devices",
      jax.device_count(), flush=True)
ranks = multihost_utils.process_allgather(jnp.array(jax.process_index()))
print("gathered", ranks.tolist(), flush=True)
