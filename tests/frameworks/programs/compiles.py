"""compiles.py torch|jax: a joined rank whose framework compiles.

It prints the seconds of the calls that compile, and those of the same calls
afterwards, which do not: "compiled FIRST again AGAIN".
"""

import sys
import time

import lockstep

session = lockstep.join()
session.phase("compute")


def timed(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


if sys.argv[1] == "torch":
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(40)])
    # Dynamo traces; no C++ compiler runs.
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)

    def calls():
        # A new shape is compiled anew.
        for rows in (2, 3, 4):
            compiled(torch.ones(rows, 16)).sum().backward()

    # Importing it is no compilation.
    import torch._dynamo

    torch._dynamo.reset()
    session.step()
else:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def compiled(x):
        for i in range(60):
            x = jnp.tanh(x @ x) + i
        return x.sum()

    x = jnp.ones((32, 32))
    x.block_until_ready()

    def calls():
        jax.grad(compiled)(x).block_until_ready()


first = timed(calls)
again = timed(calls)
session.step(loss=1.0)
print(f"compiled {first:.3f} again {again:.3f}", flush=True)
session.close()
