"""The backend "lockstep" of torch.distributed."""

from __future__ import annotations

import atexit
import sys
from datetime import timedelta
from types import WrapperDescriptorType
from typing import Any, List, Optional

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from .. import _group
from ._collectives import Collectives
from ._compile import not_compiled
from ._member import NAME, Member
from ._older import OlderProcessGroup
from ._process_group import LockstepProcessGroup
from ._work import LockstepWork, end_completers

# The first PyTorch whose Backend can be inherited by a class in Python.
FIRST_WITH_BACKENDS = "2.14"


class LockstepBackend(Member, Backend):  # type: ignore[misc]
    """The ranks of one process group, for tensors on the CPU."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        label: str = "group",
        options: Any = None,
    ) -> None:
        Backend.__init__(self, rank, size)
        self._options = options or Backend.Options(NAME, timeout=timeout)
        self.join(store, rank, size, timeout, label)

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        Member.set_timeout(self, timeout)
        self._options._timeout = timeout

    def split(self, store: Any, ranks: List[int], opts: Any) -> Optional[Backend]:
        """Forms the group of some of these ranks; the others get nothing."""
        members = list(ranks)
        if self.rank() not in members:
            return None
        options = opts or Backend.Options(NAME, timeout=timedelta(seconds=self.default_timeout_s))
        return LockstepBackend(
            store,
            members.index(self.rank()),
            len(members),
            options._timeout,
            label=f"{self.label}, split to {members}",
            options=options,
        )


def create(opts: Any, backend_options: Any) -> Any:
    """Makes the backend of a process group, as register_backend wants it."""
    ranks = list(opts.global_ranks_in_group)
    label = f"process group {opts.group_id or 0}"
    if ranks:
        label += f" of global ranks {', '.join(map(str, ranks))}"
    alone = _alone()
    if not _takes_backends():
        if not alone:
            raise NotImplementedError(
                f"lockstep: PyTorch {torch.__version__} cannot have lockstep beside another "
                f'backend; use init_process_group("lockstep"), or PyTorch '
                f"{FIRST_WITH_BACKENDS} or newer"
            )
        return OlderProcessGroup(opts, label)
    backend = LockstepBackend(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.timeout,
        label=label,
        options=_options(opts, backend_options),
    )
    group = getattr(opts, "process_group", None)
    if group is None or not alone or dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return backend
    return LockstepProcessGroup.of(backend, opts, group)


def _takes_backends() -> bool:
    # Before, the class is there, and its constructor is the one that only raises.
    return not isinstance(vars(Backend)["__init__"], WrapperDescriptorType)


def _options(opts: Any, backend_options: Any) -> Any:
    options = backend_options
    if not isinstance(options, Backend.Options):
        options = Backend.Options(NAME, timeout=opts.timeout)
    options._timeout = opts.timeout
    options.global_ranks_in_group = opts.global_ranks_in_group
    options.group_name = opts.group_id
    return options


def _alone() -> bool:
    """Says whether the process group that is being made has no other backend.

    torch does not tell its backends; its function that makes the group knows.
    """
    frame = sys._getframe(1)
    for _ in range(4):
        if frame is None:
            break
        config = frame.f_locals.get("backend_config")
        if frame.f_code.co_name == "_new_process_group_helper" and config is not None:
            return set(config.get_device_backend_map().values()) == {NAME}
        frame = frame.f_back  # type: ignore[assignment]
    return False


def register() -> None:
    """Registers "lockstep" with torch.distributed; does no more when called again.

    PyTorch from 2.14 on calls it by itself, by the entry point of this package.
    """
    if NAME.upper() in dist.Backend._plugins:
        return
    for kind in (Collectives, LockstepBackend, LockstepProcessGroup, LockstepWork):
        not_compiled(kind)
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
    atexit.register(_close_all)


def _close_all() -> None:
    """Ends all threads before Python ends: they call the store and torch."""
    _group.close_all()
    end_completers()
