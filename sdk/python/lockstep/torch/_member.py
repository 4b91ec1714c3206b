"""What a rank's part in a process group is for every PyTorch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ._collectives import Collectives
from ._forming import form
from ._monitored import MonitoredBarrier
from ._store import TorchStore
from ._work import Completer

NAME = "lockstep"

# The members that were not shut down: torch's C++ may be all that holds one, and
# without its Python object its operations are those of the base class.
_alive: set[Member] = set()


class Member(Collectives):
    """The operations, and a group that they run on. torch's classes come on top."""

    def join(self, store: Any, rank: int, size: int, timeout: timedelta, label: str) -> None:
        """Forms the group."""
        Collectives.__init__(self)
        self.label = label
        self.default_timeout_s = timeout.total_seconds()
        self.completer = Completer(f"lockstep {label}")
        found = TorchStore(store)
        self.monitored = MonitoredBarrier(found, rank, size)
        self.group = form(found, rank, size, timeout, label)
        _alive.add(self)

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

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self.sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

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
