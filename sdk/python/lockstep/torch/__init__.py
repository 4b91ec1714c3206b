"""lockstep for PyTorch.

``torch.distributed.init_process_group("lockstep")`` uses lockstep's collectives
for tensors on the CPU. PyTorch from 2.14 on finds the backend by itself; for an
older one import this module first.
"""

from __future__ import annotations

from ._backend import LockstepBackend, register
from ._replica import Replica
from ._watch import Watch, watch

__all__ = ["LockstepBackend", "Replica", "Watch", "register", "watch"]

register()


def __lockstep_warm__() -> None:
    """Imports what torch imports at its first optimizer: a warm start calls this."""
    import torch._dynamo  # noqa: F401
