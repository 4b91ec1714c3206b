"""jax.distributed with nothing but the environment."""

import os
import time

import jax

jax.distributed.initialize(
    coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]))
print("process", jax.process_index(), "of", jax.process_count(), "devices",
      jax.device_count(), flush=True)

stop = os.environ.get("STOP_FILE")
while stop and not os.path.exists(stop):
    time.sleep(0.05)
