"""A process group whose calls return lockstep's own works.

torch wraps the work of a backend that is written in Python, and the wrapper
forwards `wait` and `get_future` only: its `is_completed` is never true. This
class takes the same way through torch, with its hooks and modes, and then
returns the work itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup

_CPU = torch.device("cpu")


class LockstepProcessGroup(ProcessGroup):  # type: ignore[misc]
    """A process group that has no backend but lockstep."""

    _backend: Any

    @classmethod
    def of(cls, backend: Any, opts: Any, made: Any) -> LockstepProcessGroup:
        """Makes the process group in the place of the one that torch made."""
        return cls(opts.store, opts.group_rank, opts.group_size)._take(backend, made)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Returns the name for DDP's log; torch's own would be "custom"."""
        name: str = self._backend.getBackendName()
        return name

    def split_group(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the group of some of these ranks, of this class, too."""
        made = super().split_group(*args, **kwargs)
        if made is None:
            return None
        group = LockstepProcessGroup(made.get_group_store(), made.rank(), made.size())
        group._take(made._get_backend(_CPU), made)
        group._set_group_name(made.group_name)
        group._set_group_desc(made.group_desc)
        return group

    def _take(self, backend: Any, made: Any) -> LockstepProcessGroup:
        kind = ProcessGroup.BackendType.CUSTOM
        self._backend = backend
        self._set_default_backend(kind)
        self._register_backend(_CPU, kind, backend)
        if made.bound_device_id is not None:
            self.bound_device_id = made.bound_device_id
        return self


def _returning_own(name: str) -> Any:
    torchs = getattr(ProcessGroup, name)

    def call(self: LockstepProcessGroup, *args: Any, **kwargs: Any) -> Any:
        thread = self._backend.thread
        thread.last = None
        wrapped = torchs(self, *args, **kwargs)
        own, thread.last = thread.last, None
        return wrapped if wrapped is None or own is None else own

    # pybind11 finds by its name that a call comes from the override itself.
    call.__code__ = call.__code__.replace(co_name=name)
    call.__name__ = name
    call.__qualname__ = f"LockstepProcessGroup.{name}"
    return call


# The second name of a pair is the one before PyTorch 2.15. Only one of them: torch
# tries the other one where it finds that a call comes from the first.
for _names in (
    ("_end_coalescing",),
    ("all_gather_single", "_allgather_base"),
    ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"),
    ("all_to_all_single", "alltoall_base"),
    ("allgather",),
    ("allgather_coalesced",),
    ("allreduce",),
    ("allreduce_coalesced",),
    ("alltoall",),
    ("barrier",),
    ("broadcast",),
    ("gather",),
    ("recv",),
    ("reduce",),
    ("reduce_scatter",),
    ("reduce_scatter_single", "_reduce_scatter_base"),
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    ("scatter",),
    ("send",),
):
    for _name in _names:
        if hasattr(ProcessGroup, _name):
            setattr(LockstepProcessGroup, _name, _returning_own(_name))
            break
