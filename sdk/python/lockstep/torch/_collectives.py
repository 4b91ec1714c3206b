"""The operations of torch.distributed on a group of lockstep.

Each takes tensors of the host in any layout. What the library does not have is
refused with its name, before anything was sent.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, List, Optional, Sequence

import torch

from .. import _library, errors
from .._group import Group, Work
from ._checks import one_list, parts, row_splits, sizes
from ._monitored import MonitoredBarrier
from ._tensors import (
    Memory,
    check_types,
    copied,
    normalise,
    overlap,
    reduced,
    separate,
)
from ._work import Completer, LockstepWork, raise_for

Tensors = List[torch.Tensor]

# torch's C++ may hold a work whose Python object is gone, and then its wait never
# returns: DDP's join keeps the work of a number that way until the backward pass. So
# as many of the last small works stay alive, and no large tensors with them.
_RECENT = 64
_SMALL = 256  # elements


class _PerThread(threading.local):
    coalesced: Optional[list[LockstepWork]] = None
    last: Optional[LockstepWork] = None


class Collectives:
    """The operations. The class that inherits it sets the attributes."""

    group: Group
    completer: Completer
    monitored: MonitoredBarrier
    default_timeout_s: float
    sequence = 0

    def __init__(self) -> None:
        self.thread = _PerThread()
        self._recent: deque[LockstepWork] = deque(maxlen=_RECENT)

    # ---- reductions

    def allreduce(self, tensors: Tensors, opts: Any) -> LockstepWork:
        return self._all_reduce("all_reduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> LockstepWork:
        return self._all_reduce("all_reduce_coalesced", tensors, opts)

    def _all_reduce(self, name: str, tensors: Tensors, opts: Any) -> LockstepWork:
        dtype = check_types(name, tensors)
        op, (memory,) = reduced(name, dtype, opts.reduceOp, self.group.world_size)
        for tensor in tensors:
            if dtype is torch.bool:
                copy = normalise(tensor).contiguous()
                memory.take(tensor, copy)
            else:
                memory.update(tensor)
        return self._do(_library.ALL_REDUCE, memory, memory, opts, op=op, result=tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> LockstepWork:
        dtype = check_types("reduce", tensors)
        op, (source, target) = reduced(
            "reduce", dtype, opts.reduceOp, self.group.world_size, both=2
        )
        root = opts.rootRank
        for tensor in tensors:
            source.read(normalise(tensor) if dtype is torch.bool else tensor)
            if root == self.group.rank:
                # Same spans or none: the input may not overlap the output.
                copy = source.keep[-1] if tensor.numel() else tensor
                if copy is tensor:
                    target.write(tensor)
                else:
                    target.take(tensor, copy)
        return self._do(_library.REDUCE, source, target, opts, op=op, root=root, result=tensors)

    def reduce_scatter(self, outputs: Tensors, inputs: List[Tensors], opts: Any) -> LockstepWork:
        one_list("reduce_scatter", outputs, inputs)
        return self._reduce_scatter("reduce_scatter", outputs[0], inputs[0], opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any
    ) -> LockstepWork:
        return self._reduce_scatter("reduce_scatter_tensor", output, [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any
    ) -> LockstepWork:
        name = "reduce_scatter_tensor_coalesced"
        return self._join(
            [
                self._reduce_scatter(name, output, [one], opts, later=True)
                for output, one in zip(outputs, inputs)
            ],
            opts,
            outputs,
        )

    def _reduce_scatter(
        self,
        name: str,
        output: torch.Tensor,
        inputs: Tensors,
        opts: Any,
        *,
        later: bool = False,
    ) -> LockstepWork:
        dtype = check_types(name, [output, *inputs])
        op, (source, target) = reduced(name, dtype, opts.reduceOp, self.group.world_size, both=2)
        sizes(name, [output], inputs, self.group.world_size)
        parts(name, inputs, output)
        for tensor in inputs:
            source.read(normalise(tensor) if dtype is torch.bool else tensor)
        if overlap([output], inputs):
            target.write_later(output)
        else:
            target.write(output)
        return self._do(
            _library.REDUCE_SCATTER,
            source,
            target,
            opts,
            op=op,
            result=[output],
            later=later,
        )

    # ---- copies

    def broadcast(self, tensors: Tensors, opts: Any) -> LockstepWork:
        source, target = copied(check_types("broadcast", tensors), both=2)
        root = opts.rootRank
        for tensor in tensors:
            if root == self.group.rank:
                source.read(tensor)
            else:
                target.write(tensor)
        return self._do(_library.BROADCAST, source, target, opts, root=root, result=tensors)

    def allgather(self, outputs: List[Tensors], inputs: Tensors, opts: Any) -> LockstepWork:
        one_list("all_gather", inputs, outputs)
        return self._all_gather("all_gather", outputs[0], inputs[0], opts, outputs)

    def all_gather_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any
    ) -> LockstepWork:
        return self._all_gather("all_gather_into_tensor", [output], source, opts, [output])

    def allgather_coalesced(
        self, outputs: List[Tensors], inputs: Tensors, opts: Any
    ) -> LockstepWork:
        # One list for each rank, with a tensor for each input.
        parts = [
            self._all_gather(
                "all_gather_coalesced",
                [rank[index] for rank in outputs],
                one,
                opts,
                None,
                later=True,
            )
            for index, one in enumerate(inputs)
        ]
        return self._join(parts, opts, outputs)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any
    ) -> LockstepWork:
        name = "all_gather_into_tensor_coalesced"
        parts = [
            self._all_gather(name, [output], one, opts, None, later=True)
            for output, one in zip(outputs, inputs)
        ]
        return self._join(parts, opts, outputs)

    def _all_gather(
        self,
        name: str,
        outputs: Tensors,
        one: torch.Tensor,
        opts: Any,
        result: Any,
        *,
        later: bool = False,
    ) -> LockstepWork:
        source, target = copied(check_types(name, [*outputs, one]), both=2)
        ranks = self.group.world_size
        if len(outputs) > 1 and any(output.numel() != outputs[0].numel() for output in outputs):
            return self._uneven_gather(name, outputs, one, opts, result, later)
        sizes(name, [one], outputs, ranks)
        source.read(separate(one, outputs))
        for output in outputs:
            target.write(output)
        return self._do(_library.ALL_GATHER, source, target, opts, result=result, later=later)

    def _uneven_gather(
        self,
        name: str,
        outputs: Tensors,
        one: torch.Tensor,
        opts: Any,
        result: Any,
        later: bool,
    ) -> LockstepWork:
        """Tensors of different sizes: all ranks see them in their outputs."""
        ranks = self.group.world_size
        if len(outputs) != ranks or outputs[self.group.rank].numel() != one.numel():
            raise ValueError(
                f"lockstep: {name} needs one output for each of {ranks} ranks, and "
                f"this rank's of the size of its input"
            )
        source, target = copied(one.dtype, both=2)
        one = separate(one, outputs)
        for _ in range(ranks):
            source.read(one)
        for output in outputs:
            target.write(output)
        return self._do(
            _library.ALL_TO_ALL,
            source,
            target,
            opts,
            input_splits=[one.numel() * source.factor] * ranks,
            output_splits=[output.numel() * source.factor for output in outputs],
            result=result,
            later=later,
        )

    def gather(self, outputs: List[Tensors], inputs: Tensors, opts: Any) -> LockstepWork:
        root = opts.rootRank
        lists = outputs[0] if root == self.group.rank else []
        one_list("gather", inputs, outputs if lists else None)
        source, target = copied(check_types("gather", [*inputs, *lists]), both=2)
        if lists:
            sizes("gather", inputs, lists, self.group.world_size)
            parts("gather", lists, inputs[0])
        source.read(separate(inputs[0], lists))
        for output in lists:
            target.write(output)
        return self._do(_library.GATHER, source, target, opts, root=root, result=outputs)

    def scatter(self, outputs: Tensors, inputs: List[Tensors], opts: Any) -> LockstepWork:
        root = opts.rootRank
        lists = inputs[0] if root == self.group.rank else []
        one_list("scatter", outputs, inputs if lists else None)
        source, target = copied(check_types("scatter", [*outputs, *lists]), both=2)
        if lists:
            sizes("scatter", outputs, lists, self.group.world_size)
            parts("scatter", lists, outputs[0])
        for one in lists:
            source.read(one)
        if overlap(outputs, lists):
            target.write_later(outputs[0])
        else:
            target.write(outputs[0])
        return self._do(_library.SCATTER, source, target, opts, root=root, result=outputs)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> LockstepWork:
        ranks = self.group.world_size
        source, target = copied(check_types("all_to_all", outputs + inputs), both=2)
        if len(inputs) != ranks or len(outputs) != ranks:
            raise ValueError(
                f"lockstep: all_to_all needs {ranks} inputs and outputs, one for "
                f"each rank, not {len(inputs)} and {len(outputs)}"
            )
        for one in inputs:
            source.read(separate(one, outputs))
        for output in outputs:
            target.write(output)
        return self._do(
            _library.ALL_TO_ALL,
            source,
            target,
            opts,
            input_splits=[one.numel() * source.factor for one in inputs],
            output_splits=[one.numel() * source.factor for one in outputs],
            result=outputs,
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        one: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> LockstepWork:
        name = "all_to_all_single"
        source, target = copied(check_types(name, [output, one]), both=2)
        ranks = self.group.world_size
        source.read(separate(one, [output]))
        target.write(output)
        return self._do(
            _library.ALL_TO_ALL,
            source,
            target,
            opts,
            input_splits=row_splits(name, one, input_splits, ranks, source.factor),
            output_splits=row_splits(name, output, output_splits, ranks, source.factor),
            result=[output],
        )

    # ---- messages, barriers

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> LockstepWork:
        source, target = copied(check_types("send", tensors), both=2)
        for tensor in tensors:
            source.read(tensor)
        return self._message(_library.SEND, source, target, rank, tag, tensors)

    def recv(self, tensors: Tensors, rank: int, tag: int = 0) -> LockstepWork:
        source, target = copied(check_types("recv", tensors), both=2)
        for tensor in tensors:
            target.write(tensor)
        return self._message(_library.RECV, source, target, rank, tag, tensors)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> LockstepWork:
        raise NotImplementedError(
            "lockstep: recv needs the rank of the sender; it does not receive from any source"
        )

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> LockstepWork:
        raise NotImplementedError(
            "lockstep: all_reduce takes dense tensors; make sparse ones dense first"
        )

    def barrier(self, opts: Any) -> LockstepWork:
        none = Memory(_library.UINT8, 1)
        return self._do(_library.BARRIER, none, none, opts, result=[])

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        timeout = opts.timeout.total_seconds()
        self.monitored.wait(self.default_timeout_s if timeout < 0 else timeout, wait_all_ranks)

    # ---- several calls as one work

    def start_coalescing(self) -> None:
        self.thread.coalesced = []

    def end_coalescing(self) -> LockstepWork:
        works, self.thread.coalesced = self.thread.coalesced or [], None
        return self._joined(works, [work.value for work in works])

    # ---- how all of them run

    def _do(
        self,
        collective: int,
        source: Memory,
        target: Memory,
        opts: Any,
        *,
        result: Any,
        op: int = 0,
        root: int = 0,
        input_splits: Optional[Sequence[int]] = None,
        output_splits: Optional[Sequence[int]] = None,
        later: bool = False,
    ) -> LockstepWork:
        """Starts a collective, or runs it where the caller would only wait."""
        timeout = opts.timeout.total_seconds()
        arguments: dict[str, Any] = {
            "op": op,
            "root": root,
            "input_splits": input_splits,
            "output_splits": output_splits,
            "timeout_s": timeout if timeout > 0 else self.default_timeout_s,
        }
        self.sequence += 1
        parts: tuple[Work, ...] = ()
        try:
            if later or getattr(opts, "asyncOp", True) or (self.thread.coalesced is not None):
                part = self.group.start(
                    collective,
                    source.kind,
                    source.spans,
                    target.spans,
                    keep=(source.keep, target.keep),
                    **arguments,
                )
                parts = (part,)
            else:
                self.group.run(collective, source.kind, source.spans, target.spans, **arguments)
        except errors.Error as error:
            raise_for(error)
        work = LockstepWork(parts, self.completer, result, target.copies)
        if parts and sum(span[1] for span in source.spans) <= _SMALL:
            self._recent.append(work)
        return self._made(work)

    def _message(
        self,
        collective: int,
        source: Memory,
        target: Memory,
        rank: int,
        tag: int,
        tensors: Tensors,
    ) -> LockstepWork:
        name = "send" if collective == _library.SEND else "recv"
        if not 0 <= tag < 1 << 32:
            raise ValueError(f"lockstep: {name} takes tags from 0, not {tag}")
        try:
            work = self.group.start(
                collective,
                source.kind,
                source.spans,
                target.spans,
                root=rank,
                tag=tag,
                timeout_s=self.default_timeout_s,
                keep=(source.keep, target.keep),
            )
        except errors.Error as error:
            raise_for(error)
        return self._made(
            LockstepWork(
                (work,),
                self.completer,
                tensors,
                target.copies,
                source=rank,
                ordered=False,
            )
        )

    def _made(self, work: LockstepWork) -> LockstepWork:
        thread = self.thread
        if thread.coalesced is not None:
            thread.coalesced.append(work)
        thread.last = work
        return work

    def _join(self, works: list[LockstepWork], opts: Any, result: Any) -> LockstepWork:
        work = self._joined(works, result)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def _joined(self, works: list[LockstepWork], result: Any) -> LockstepWork:
        work = LockstepWork(
            [part for one in works for part in one.parts],
            self.completer,
            result,
            [copy for one in works for copy in one.take_copies()],
            ordered=all(one.ordered for one in works),
        )
        self.thread.last = work
        return work
