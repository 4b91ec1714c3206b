"""The backend "lockstep" of torch.distributed."""

from __future__ import annotations

import atexit
import sys
from datetime import timedelta
from typing import Any, List, Optional

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from .. import _group, _library, errors
from ._collectives import Collectives
from ._compile import not_compiled
from ._monitored import MonitoredBarrier
from ._process_group import LockstepProcessGroup
from ._store import TorchStore, bind_address, shared_key
from ._work import Completer, LockstepWork, end_completers, raise_for

NAME = "lockstep"

# The backends that were not shut down: torch's C++ may be all that holds one, and
# without its Python object its operations are those of the base class.
_alive: set[LockstepBackend] = set()


class LockstepBackend(Collectives, Backend):  # type: ignore[misc]
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
        Collectives.__init__(self)
        self.default_timeout_s = timeout.total_seconds()
        self._label = label
        self._options = options or Backend.Options(NAME, timeout=timeout)
        self.completer = Completer(f"lockstep {label}")
        _library.library()  # Where it is not there, no rank need be told.
        found = TorchStore(store)
        self.monitored = MonitoredBarrier(found, rank, size)
        try:
            self.group = _group.Group(
                found,
                rank=rank,
                world_size=size,
                label=label,
                bind_address=bind_address(),
                key=shared_key(found, rank, timeout),
                forming_timeout_s=self.default_timeout_s,
                operation_timeout_s=self.default_timeout_s,
            )
        except errors.Error as error:
            raise_for(error)
        except TimeoutError as error:
            raise dist.DistBackendError(
                f"lockstep: rank 0 of {label} did not come within {timeout}"
            ) from error
        _alive.add(self)

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        # Several calls need not be one here: batch_isend_irecv starts each.
        return False

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return NAME

    # The names of these operations before PyTorch 2.15.
    _allgather_base = Collectives.all_gather_single
    _reduce_scatter_base = Collectives.reduce_scatter_single
    alltoall_base = Collectives.all_to_all_single
    allgather_into_tensor_coalesced = Collectives.all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = Collectives.reduce_scatter_single_coalesced
    _start_coalescing = Collectives.start_coalescing
    _end_coalescing = Collectives.end_coalescing

    def set_timeout(self, timeout: timedelta) -> None:
        self.default_timeout_s = timeout.total_seconds()
        self._options._timeout = timeout

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        self.sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

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
            label=f"{self._label}, split to {members}",
            options=options,
        )

    def describe(self) -> str:
        """Says how the group reduces, and why."""
        return self.group.describe()

    def shutdown(self) -> None:
        _alive.discard(self)
        self.completer.stop()
        self.group.close("the process group was destroyed")

    def abort(self) -> None:
        self.group.abort("the process group was aborted")
        self.shutdown()


def create(opts: Any, backend_options: Any) -> Any:
    """Makes the backend of a process group, as register_backend wants it."""
    ranks = list(opts.global_ranks_in_group)
    label = f"process group {opts.group_id or 0}"
    if ranks:
        label += f" of global ranks {', '.join(map(str, ranks))}"
    backend = LockstepBackend(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.timeout,
        label=label,
        options=_options(opts, backend_options),
    )
    group = getattr(opts, "process_group", None)
    if group is None or not _alone() or dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return backend
    return LockstepProcessGroup.of(backend, opts, group)


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

    PyTorch from 2.15 on calls it by itself, by the entry point of this package.
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
