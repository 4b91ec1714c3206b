"""Gradients of shards: the same bits at every number of ranks.

The plan "shards=N": per element, the sum over shards 0 to N - 1 from left to right,
in float32 (float64 for float64), divided by N, rounded once to the parameter's type.
"""

from __future__ import annotations

import time
from typing import Optional, Sequence

import torch

from .. import _group, _library
from ..errors import Error
from ._gradients import ALIGNMENT, TYPES, Buckets

# A backward pass of this rank's own shard may go on for so long after a peer was lost.
_FINISH_S = 30.0
# The first members get the shards of ranks that are away: so many have memory for one.
_READY_FOR_ONE = 2


def assign(world_size: int, away: Sequence[int]) -> list[tuple[int, ...]]:
    """The shards of each member: its own one first, then those of ranks that are away."""
    members = [rank for rank in range(world_size) if rank not in away]
    shards = [[rank] for rank in members]
    for index, orphan in enumerate(sorted(away)):
        shards[index % len(members)].append(orphan)
    return [tuple(each) for each in shards]


class ShardGradients(Buckets):
    """The mean gradients of all shards, of which each rank computes one or several.

    A step is: ``begin``; for each own shard ``next_shard`` and a backward pass;
    ``finish``. Each shard has buckets of its own. Member m's part of each bucket, of
    all shards, goes to member m, which sums it; ``finish`` gathers the sums.

    A member's r-th shard goes in round r, where members with fewer shards send nothing.
    All start the buckets of round 0, then those of each later one: when a bucket is
    complete in the last backward pass, or when an earlier shard is complete.

    The loss of one rank needs no new memory: its first use would take longer than the
    step. Ranks 0 and 1 have some for one more shard, because they are the first that
    get one. And where a rank is lost, the gradients of the own shard stay for the
    step that is done again (``kept``).
    """

    def __init__(self, model: torch.nn.Module, world_size: int, rank: int = 0) -> None:
        # So that equal parts of whole cache lines fit, at every number of members.
        super().__init__(model, world_size * ALIGNMENT)
        self._world_size = world_size
        self._shards = assign(world_size, ())
        self._place = 0
        # The buckets of each own shard. The first ones are those of the result.
        self._own = [self._buckets]
        # Those of a shard that this rank does not have now.
        self._ready_for_one = rank < _READY_FOR_ONE and world_size > 1
        self._spare = [self._more_buckets()] if self._ready_for_one else []
        # For each bucket the memory of its rows.
        self._memory = [
            self._memory_of_rows(bucket, max(2, world_size - 1)) for bucket in self._buckets
        ]
        # For each bucket a row for each shard: this member's part of it.
        self._rows: list[torch.Tensor] = []
        # For each bucket the exchanges that have begun.
        self._works: list[list[_group.Work]] = []
        self._next = 0
        # The own shard's gradients are complete, and no result is in their place. Those
        # on a device make room for the next shard, and for the result.
        self._kept = False
        self._can_keep = all(device is None for device in self._on_device)
        # What ended the first reduction that could not start, and when that was.
        self._lost: Optional[Error] = None
        self._lost_at = 0.0

    @property
    def kept(self) -> bool:
        """Whether the gradients of this rank's own shard need not be computed again."""
        return self._kept

    def keep(self) -> bool:
        """The backward pass of this rank's own shard has ended; returns ``kept``."""
        self._kept = self._can_keep
        return self._kept

    def forget(self) -> None:
        """Gradients that are kept are not those of the next step."""
        self._kept = False

    def check(self) -> None:
        """Raises what has ended a reduction during the backward pass."""
        if self._lost is not None:
            raise self._lost

    def assign(self, place: int, shards: list[tuple[int, ...]]) -> None:
        """The group was formed: this rank is member ``place``; ``assign`` made ``shards``."""
        self.point(self._buckets)
        self._place = place
        self._shards = shards
        own = len(shards[place])
        while len(self._own) < own:
            self._own.append(self._spare.pop() if self._spare else self._more_buckets())
        while len(self._own) > own:
            buckets = self._own.pop()
            if self._ready_for_one and len(self._own) == 1:
                self._spare.append(buckets)
        self._rows = []
        if len(shards) == 1:
            return
        for index, bucket in enumerate(self._buckets):
            rows = self._world_size * self._part(bucket, len(shards))
            if self._memory[index].numel() < rows:
                self._memory[index] = self._memory_of_rows(bucket, len(shards))
            self._rows.append(self._memory[index][:rows].view(self._world_size, -1))

    def begin(self, group: Optional[_group.Group]) -> None:
        super().begin(group)
        for buckets in self._own[1:]:
            for bucket in buckets:
                bucket.zero_()
        self._works = [[] for _ in self._buckets]
        self._next = 0
        self._lost = None

    def _clear(self) -> None:
        if not self._kept:
            super()._clear()

    def next_shard(self) -> None:
        """The backward pass of the next own shard begins."""
        if self._next > 0:
            self._end_shard(self._next - 1)
        if len(self._own) > 1:
            self.point(self._own[self._next])
        self._next += 1
        self.expect()

    def _end_shard(self, number: int) -> None:
        """A shard is complete: what is on a device makes room for the next one."""
        for index, device in enumerate(self._on_device):
            if device is not None:
                self.fetch(index, self._own[number][index])
                device.zero_()
            self._exchange(number, index)

    def finish(self) -> None:
        """Waits until all buckets are reduced; raises what ended a reduction."""
        self.check()
        self.complete()
        for number in range(len(self._own), max(len(shards) for shards in self._shards)):
            for index in range(len(self._buckets)):
                self._exchange(number, index)
        gathers = [self._reduce(index) for index in range(len(self._buckets))]
        for work in gathers:
            if work is not None:
                work.wait()
        self.give_back()
        if len(self._own) > 1:
            self.point(self._buckets)
        self.put_back()

    def _more_buckets(self) -> list[torch.Tensor]:
        return [torch.zeros_like(each, pin_memory=each.is_pinned()) for each in self._buckets]

    def _memory_of_rows(self, bucket: torch.Tensor, members: int) -> torch.Tensor:
        # Zeros are written, so that this is the first use.
        size = self._world_size * self._part(bucket, members) if self._world_size > 1 else 0
        return torch.empty(size, dtype=bucket.dtype).zero_()

    def _part(self, bucket: torch.Tensor, members: int) -> int:
        """Elements of a member's part: so many that the parts have all gradients."""
        step = ALIGNMENT // bucket.element_size()
        most = bucket.numel() - self._world_size * step
        return int(-(-most // (members * step)) * step)

    def _ready(self, number: int) -> None:
        if self._next == len(self._own):
            super()._ready(number)

    def _start(self, index: int) -> None:
        self.fetch(index, self._own[-1][index])
        if self._lost is not None:
            is_last = index + 1 == len(self._buckets)
            if not is_last and time.monotonic() - self._lost_at > _FINISH_S:
                raise self._lost
            return
        try:
            self._exchange(len(self._own) - 1, index)
        except Error as error:
            # The gradients of the own shard are needed in the next group, too.
            if not (self._passing and self._can_keep and len(self._own) == 1):
                raise
            self._lost, self._lost_at = error, time.monotonic()

    def _exchange(self, number: int, index: int) -> None:
        """Starts round ``number`` of a bucket."""
        if self.group is None or len(self._shards) == 1:
            return
        rows = self._rows[index]
        part = rows.shape[1]
        width = rows.element_size()
        members = len(self._shards)
        sends = number < len(self._own)
        bucket = self._own[number][index] if sends else None
        sources = [shards[number] if number < len(shards) else None for shards in self._shards]
        work = self.group.start(
            _library.ALL_TO_ALL,
            TYPES[rows.dtype],
            [] if bucket is None else [(bucket.data_ptr(), members * part)],
            [(rows.data_ptr() + s * part * width, part) for s in sources if s is not None],
            input_splits=[part if sends else 0] * members,
            output_splits=[0 if shard is None else part for shard in sources],
            keep=(bucket, rows),
        )
        self._works[index].append(work)

    def _reduce(self, index: int) -> Optional[_group.Work]:
        bucket = self._buckets[index]
        if self.group is None or len(self._shards) == 1:
            self._kept = False
            own = self._shards[self._place]
            mean([self._own[own.index(s)][index] for s in range(self._world_size)], bucket)
            return None
        for work in self._works[index]:
            work.wait()
        self._kept = False
        rows = self._rows[index]
        part = rows.shape[1]
        mine = bucket[self._place * part : (self._place + 1) * part]
        mean(list(rows), mine)
        return self.group.start(
            _library.ALL_GATHER,
            TYPES[bucket.dtype],
            [(mine.data_ptr(), part)],
            [(bucket.data_ptr(), len(self._shards) * part)],
            keep=bucket,
        )


def mean(shards: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Writes the mean of the shards, in their order, to ``out``; it may be one of them.

    The shards are scratch memory afterwards.
    """
    wide = torch.float64 if out.dtype is torch.float64 else torch.float32
    total = shards[0] if out.dtype is wide else shards[0].to(wide)
    for shard in shards[1:]:
        total.add_(shard)
    total.div_(len(shards))
    out.copy_(total)


__all__ = ["ShardGradients", "assign", "mean"]
