"""lockstep's collectives for JAX on CPUs.

Two lines before JAX is imported::

    import lockstep.jax

    lockstep.jax.use_collectives()
    import jax

JAX then reduces arrays on CPUs of several processes over lockstep, instead of
Gloo. It finds the library by its interface for MPI, which it reads as soon as it
is imported.
"""

from __future__ import annotations

import os
import sys

from . import _library, errors

__all__ = ["use_collectives"]

_FILE = "liblockstep_mpi.so"
# What jaxlib's MPItrampoline loads, and which collectives JAX then takes.
_LIBRARY = "MPITRAMPOLINE_LIB"
_CHOICE = "JAX_CPU_COLLECTIVES_IMPLEMENTATION"


def use_collectives() -> None:
    """Makes JAX take lockstep's collectives for CPUs.

    It sets two variables of the environment, so the processes that this one starts
    take them, too. The ranks find each other by RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT, which lockstep and torchrun set. A process has one CPU device.

    Raises:
      lockstep.Error: JAX has been imported before (FAILED_PRECONDITION), or the
        library is missing (NOT_FOUND).
    """
    file = os.path.join(os.path.dirname(_library.path()), _FILE)
    if os.environ.get(_LIBRARY) == file and os.environ.get(_CHOICE) == "mpi":
        return
    if "jaxlib" in sys.modules:
        raise errors.error_for(
            "FAILED_PRECONDITION",
            "lockstep.jax.use_collectives() comes before the first import of jax, which"
            " reads what it sets",
        )
    if not os.path.exists(file):
        raise errors.error_for("NOT_FOUND", f"there is no {file}; install the wheel again")
    os.environ[_LIBRARY] = file
    os.environ[_CHOICE] = "mpi"
