"""The gradients of a model, in buckets that are reduced while a backward pass runs."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence

import torch

from .. import _group, _library
from ..errors import error_for

_BUCKET_BYTES = 25 << 20
ALIGNMENT = 64  # bytes

TYPES = {
    torch.float32: _library.FLOAT32,
    torch.float64: _library.FLOAT64,
    torch.float16: _library.FLOAT16,
    torch.bfloat16: _library.BFLOAT16,
}


class Buckets:
    """Gradients in buckets, and which of them a backward pass has filled.

    Buckets are filled from the last parameter to the first, as a backward pass
    makes them. A class that inherits it starts the reduction of a bucket in
    ``_start``: all ranks start them in the same order.

    Attributes:
      last_loss: of the last step.
    """

    def __init__(self, model: torch.nn.Module, room: int = 0) -> None:
        """``room``: bytes that each bucket has behind the gradients."""
        self.last_loss = float("nan")
        self.group: Optional[_group.Group] = None
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        _check(self._parameters)
        self._buckets: list[torch.Tensor] = []
        # For each bucket, the first element of each parameter.
        self._places: list[list[tuple[torch.nn.Parameter, int]]] = []
        self._bucket_of: dict[torch.nn.Parameter, int] = {}
        for bucket in _split(list(reversed(self._parameters))):
            self._add(bucket, room)
        self._waiting: list[int] = []
        self._started = 0
        self.point(self._buckets)
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def begin(self, group: Optional[_group.Group]) -> None:
        """A step begins: all gradients are zero."""
        self.group = group
        self.expect()
        for bucket in self._buckets:
            bucket.zero_()

    def expect(self) -> None:
        """A backward pass begins: no bucket is complete."""
        self._started = 0
        self._waiting = [len(places) for places in self._places]

    def complete(self) -> None:
        """The backward pass has ended: what has no gradient gets none."""
        for index in range(self._started, len(self._buckets)):
            self._start_next(index)

    def point(self, buckets: Sequence[torch.Tensor]) -> None:
        """The parameters' gradients are in ``buckets`` from now on."""
        for bucket, places in zip(buckets, self._places):
            for parameter, place in places:
                part = bucket[place : place + parameter.numel()]
                parameter.grad = part.view_as(parameter)

    def _add(self, parameters: list[torch.nn.Parameter], room: int) -> None:
        width = parameters[0].element_size()
        step = ALIGNMENT // width
        places = []
        at = 0
        for parameter in parameters:
            places.append((parameter, at))
            at += -(-parameter.numel() // step) * step
            self._bucket_of[parameter] = len(self._buckets)
        self._buckets.append(torch.zeros(at + room // width, dtype=parameters[0].dtype))
        self._places.append(places)

    def _ready(self, parameter: torch.Tensor) -> None:
        self._waiting[self._bucket_of[parameter]] -= 1
        while self._started < len(self._buckets) and self._waiting[self._started] <= 0:
            self._start_next(self._started)

    def _start_next(self, index: int) -> None:
        self._started = index + 1
        self._start(index)

    def _start(self, index: int) -> None:
        raise NotImplementedError


class Gradients(Buckets):
    """Gradients that are averaged over the ranks: the same bits on all of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self._works: list[_group.Work] = []

    def begin(self, group: Optional[_group.Group]) -> None:
        self._works = []
        super().begin(group)

    def finish(self) -> None:
        """Waits until all buckets are averaged; raises what ended a reduction."""
        self.complete()
        for work in self._works:
            work.wait()
        self._works = []

    def _start(self, index: int) -> None:
        if self.group is None:
            return
        bucket = self._buckets[index]
        span = (bucket.data_ptr(), bucket.numel())
        self._works.append(
            self.group.start(
                _library.ALL_REDUCE,
                TYPES[bucket.dtype],
                [span],
                [span],
                op=_library.MEAN,
                keep=bucket,
            )
        )


def _check(parameters: Sequence[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        if parameter.device.type != "cpu" or parameter.dtype not in TYPES:
            raise error_for(
                "INVALID_ARGUMENT",
                f"a Replica's parameters are floats on the CPU so far, not {parameter.dtype} "
                f"on {parameter.device}",
            )
    if not parameters:
        raise error_for("INVALID_ARGUMENT", "the model has no parameter that is trained")


def _split(parameters: Iterable[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Buckets of one type and of about 25 MiB."""
    buckets: list[list[torch.nn.Parameter]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not buckets or size > room or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            room = _BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= size
    return buckets
