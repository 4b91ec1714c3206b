"""The process group for a PyTorch whose backends cannot be classes in Python.

There torch takes a whole process group that is such a class. Its own functions
call the methods directly. C++ (DDP, functional collectives) reaches those that
torch passes on to Python: all_reduce, broadcast, all_gather, reduce_scatter,
all_to_all, send, recv and barrier.
"""

from __future__ import annotations

from typing import Any, List

import torch
from torch._C._distributed_c10d import AllgatherOptions, ProcessGroup

from ._collectives import Collectives, Tensors
from ._member import NAME, Member
from ._work import LockstepWork

_CPU = torch.device("cpu")


class OlderProcessGroup(Member, ProcessGroup):  # type: ignore[misc]
    """The ranks of one process group, for tensors on the CPU."""

    def __init__(self, opts: Any, label: str) -> None:
        """Makes the process group that torch's options describe."""
        ProcessGroup.__init__(self, opts.group_rank, opts.group_size)
        self._group_name = str(opts.group_id or "")
        self._group_desc = ""
        self.join(opts.store, opts.group_rank, opts.group_size, opts.timeout, label)

    # ---- what torch asks a group about its backend

    def name(self) -> str:
        return NAME

    # C++ keeps both in the group's backends, of which it sees none.

    @property
    def group_name(self) -> str:
        return self._group_name

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self._group_desc = desc

    def getGroupName(self) -> str:  # noqa: N802 - torch's name
        return self._group_name

    def getGroupDesc(self) -> str:  # noqa: N802 - torch's name
        return self._group_desc

    @property
    def _device_types(self) -> List[torch.device]:
        return [_CPU]

    def _get_backend(self, device: torch.device) -> OlderProcessGroup:
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"lockstep: this process group has no backend for {device}")
        return self

    @property
    def supports_splitting(self) -> bool:
        return False

    # ---- operations with arguments that torch leaves out, or has more of

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> LockstepWork:
        return Collectives.all_gather_single_coalesced(
            self, outputs, inputs, opts or AllgatherOptions()
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def start_coalescing(self, device: Any = None) -> None:
        Collectives.start_coalescing(self)

    def end_coalescing(self, device: Any = None) -> LockstepWork:
        return Collectives.end_coalescing(self)

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing
