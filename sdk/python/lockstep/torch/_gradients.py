"""The gradients of a model, in buckets that are reduced while a backward pass runs.

Ranks reduce the host's memory. Gradients of parameters on the CPU lie there. Those
of parameters on a GPU lie in memory of the GPU, one piece for each bucket, which is
copied to the bucket when it is complete, and back when it is reduced.
"""

from __future__ import annotations

import functools
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


def on_host(tensor: torch.Tensor) -> bool:
    """Whether ranks can reduce the tensor's memory as it is."""
    kind: str = tensor.device.type
    return kind == "cpu"


class Buckets:
    """Gradients in buckets, and which of them a backward pass has filled.

    Buckets are filled from the last parameter to the first, as a backward pass
    makes them. A class that inherits it starts the reduction of a bucket in
    ``_start``: all ranks start them in the same order.

    Attributes:
      last_loss: of the last step.
      partial: the next backward pass is not the last one of its shard: its gradients
        stay and the others are added to them.
      computing: the program computes a loss: it runs no backward pass of its own.
    """

    def __init__(self, model: torch.nn.Module, room: int = 0) -> None:
        """``room``: bytes that each bucket has behind the gradients."""
        self.last_loss = float("nan")
        self.partial = False
        self.computing = False
        # A backward pass of the step runs.
        self._passing = False
        self.group: Optional[_group.Group] = None
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        _check(self._parameters)
        self._buckets: list[torch.Tensor] = []
        # For each bucket the memory of its gradients, where that is not the bucket.
        self._on_device: list[Optional[torch.Tensor]] = []
        # For each bucket, the first element of each parameter, which has a number.
        self._places: list[list[tuple[int, int]]] = []
        # For each parameter its bucket, and the place of its gradient. Lists, because
        # a look into a dict of tensors takes as long as the rest of the hook.
        self._bucket_of = [0] * len(self._parameters)
        self._views = [parameter.detach() for parameter in self._parameters]
        self._addresses = [0] * len(self._parameters)
        numbers = {parameter: number for number, parameter in enumerate(self._parameters)}
        for bucket in _split(list(reversed(self._parameters))):
            self._add([numbers[parameter] for parameter in bucket], room)
        self._waiting: list[int] = []
        self._started = 0
        self.point(self._buckets)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._made, number))
            for number, parameter in enumerate(self._parameters)
        ]

    def close(self) -> None:
        """The model's gradients are the program's again."""
        for hook in self._hooks:
            hook.remove()

    def begin(self, group: Optional[_group.Group]) -> None:
        """A step begins: all gradients are zero."""
        self.group = group
        self.expect()
        # Between steps the program may have taken them elsewhere.
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is not view:
                parameter.grad = view
        self._clear()

    def _clear(self) -> None:
        for bucket, device in zip(self._buckets, self._on_device):
            bucket.zero_()
            if device is not None:
                device.zero_()

    def expect(self) -> None:
        """A backward pass begins: no bucket is complete."""
        self._started = 0
        self._waiting = [len(places) for places in self._places]

    def backward(self, loss: torch.Tensor) -> None:
        """Runs a backward pass of the step."""
        self._passing = True
        try:
            loss.backward()
        finally:
            self._passing = False

    def complete(self) -> None:
        """The backward pass has ended: what has no gradient gets none."""
        for index in range(self._started, len(self._buckets)):
            self._start_next(index)

    def point(self, buckets: Sequence[torch.Tensor]) -> None:
        """The gradients of parameters on the CPU are in ``buckets`` from now on."""
        for bucket, device, places in zip(buckets, self._on_device, self._places):
            memory = bucket if device is None else device
            for number, place in places:
                parameter = self._parameters[number]
                self._views[number] = parameter.grad = _view(memory, place, parameter)
                self._addresses[number] = parameter.grad.data_ptr()

    def put_back(self) -> None:
        """Gives parameters that this rank has not used the gradients of the others.

        They have none after zero_grad().
        """
        for parameter, view in zip(self._parameters, self._views):
            if parameter.grad is None:
                parameter.grad = view

    def fetch(self, index: int, bucket: torch.Tensor) -> None:
        """Copies gradients from the device to ``bucket``, and waits for them."""
        device = self._on_device[index]
        if device is not None:
            bucket[: device.numel()].copy_(device)

    def give_back(self) -> None:
        """Copies what was reduced to the device."""
        for bucket, device in zip(self._buckets, self._on_device):
            if device is not None:
                device.copy_(bucket[: device.numel()])

    def _add(self, numbers: list[int], room: int) -> None:
        first = self._parameters[numbers[0]]
        width = first.element_size()
        step = ALIGNMENT // width
        places = []
        at = 0
        for number in numbers:
            places.append((number, at))
            at += -(-self._parameters[number].numel() // step) * step
            self._bucket_of[number] = len(self._buckets)
        bucket = torch.zeros(
            at + room // width, dtype=first.dtype, pin_memory=first.device.type == "cuda"
        )
        self._buckets.append(bucket)
        device = None if on_host(first) else torch.zeros(at, dtype=first.dtype, device=first.device)
        self._on_device.append(device)
        self._places.append(places)

    def _made(self, number: int, parameter: torch.Tensor) -> None:
        if not self._passing:
            # Between steps it is the program's: the next step begins with zeros.
            if not self.computing:
                return
            raise error_for(
                "FAILED_PRECONDITION",
                "the function of step() ran a backward pass through the Replica's parameters: it "
                "only returns the loss, and torch.autograd.grad computes other gradients",
            )
        made = parameter.grad
        # After zero_grad() autograd makes a gradient elsewhere. What the step has
        # added up so far is still here.
        if made is not None and made.data_ptr() != self._addresses[number]:
            with torch.no_grad():
                self._views[number].add_(made)
            parameter.grad = self._views[number]
        self._ready(number)

    def _ready(self, number: int) -> None:
        if self.partial:
            return
        self._waiting[self._bucket_of[number]] -= 1
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
        if self.group is not None:
            self.give_back()
        self.put_back()

    def _start(self, index: int) -> None:
        if self.group is None:
            return
        bucket = self._buckets[index]
        self.fetch(index, bucket)
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
        if parameter.dtype not in TYPES:
            raise error_for(
                "INVALID_ARGUMENT",
                f"a Replica's parameters are floats of 16 bits or more, not {parameter.dtype}",
            )
    if not parameters:
        raise error_for("INVALID_ARGUMENT", "the model has no parameter that is trained")
    # Autograd has a thread for each device, and all ranks must start buckets in one order.
    devices = sorted({str(parameter.device) for parameter in parameters})
    if len(devices) > 1 or devices[0] == "meta":
        raise error_for(
            "INVALID_ARGUMENT",
            f"a Replica's parameters are on the CPU or on one GPU, not on {', '.join(devices)}",
        )


def _view(memory: torch.Tensor, place: int, parameter: torch.Tensor) -> torch.Tensor:
    """The gradient's place, laid out as the parameter: fused optimizers want it so."""
    part = memory[place : place + parameter.numel()]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = formats.get(parameter.dim())
    if layout is not None and not parameter.is_contiguous():
        if parameter.is_contiguous(memory_format=layout):
            return part.as_strided(parameter.size(), parameter.stride())
    return part.view(parameter.shape)


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
