"""Tensors as the library sees them: spans of memory of one element type."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import torch

from .. import _library
from .._group import Span

# What the library reduces: its number, and elements of it in one of torch's.
_REDUCED = {
    torch.float32: (_library.FLOAT32, 1),
    torch.float64: (_library.FLOAT64, 1),
    torch.float16: (_library.FLOAT16, 1),
    torch.bfloat16: (_library.BFLOAT16, 1),
    torch.int32: (_library.INT32, 1),
    torch.int64: (_library.INT64, 1),
    torch.uint8: (_library.UINT8, 1),
    torch.int8: (_library.INT8, 1),
    torch.int16: (_library.INT16, 1),
    torch.bool: (_library.BOOL, 1),
    torch.complex32: (_library.FLOAT16, 2),
    torch.complex64: (_library.FLOAT32, 2),
    torch.complex128: (_library.FLOAT64, 2),
}
_FLOATS = frozenset((_library.FLOAT32, _library.FLOAT64, _library.FLOAT16, _library.BFLOAT16))

_NAMES = {
    "SUM": _library.SUM,
    "AVG": _library.MEAN,
    "MIN": _library.MIN,
    "MAX": _library.MAX,
    "PRODUCT": _library.PRODUCT,
}

# A tensor, the memory that an operation used for it (a copy where the tensor is not
# plain memory), and what the result is divided by: 1, or the number of ranks for a
# mean of integers.
Copies = List[Tuple[torch.Tensor, torch.Tensor, int]]


def plain(tensor: torch.Tensor) -> bool:
    """Says whether the library can use the tensor's memory as it is."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check_device(name: str, tensor: torch.Tensor) -> None:
    """Refuses what is not dense memory of the host."""
    if tensor.is_cpu and tensor.layout is torch.strided:
        return
    if tensor.is_cpu:
        raise NotImplementedError(f"lockstep: {name} takes dense tensors, not {tensor.layout}")
    device = tensor.device.type
    raise RuntimeError(
        f"lockstep: {name} got a tensor on {device!r}, and lockstep moves only "
        f'tensors on the CPU; use init_process_group("cpu:lockstep,cuda:nccl") so '
        f"that NCCL has those on GPUs"
    )


class Memory:
    """The tensors of one side of an operation.

    ``kind`` is the element type, ``keep`` what must stay alive until the end.
    """

    __slots__ = ("copies", "divisor", "keep", "kind", "spans", "factor")

    def __init__(self, kind: int, factor: int, divisor: int = 1) -> None:
        self.divisor = divisor
        self.kind = kind
        self.factor = factor
        self.spans: list[Span] = []
        self.keep: list[torch.Tensor] = []
        self.copies: Copies = []

    def add(self, tensor: torch.Tensor) -> None:
        """Adds a plain tensor."""
        count = tensor.numel()
        if count:
            self.spans.append((tensor.data_ptr(), count * self.factor))
            self.keep.append(tensor)

    def read(self, tensor: torch.Tensor) -> None:
        """Adds a tensor that the operation reads."""
        self.add(tensor if plain(tensor) else _plain_copy(tensor))

    def write(self, tensor: torch.Tensor) -> None:
        """Adds a tensor that the operation writes, and does not read."""
        if plain(tensor):
            self.add(tensor)
            self.divide(tensor)
        else:
            self.write_later(tensor)

    def write_later(self, tensor: torch.Tensor) -> None:
        """Adds a tensor that takes its value after the end."""
        self.take(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))

    def update(self, tensor: torch.Tensor) -> None:
        """Adds a tensor that the operation reads, then writes."""
        if plain(tensor):
            self.add(tensor)
            self.divide(tensor)
        else:
            self.take(tensor, _plain_copy(tensor))

    def take(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        """Adds a copy, from which the tensor takes its value after the end."""
        self.add(copy)
        self.copies.append((tensor, copy, self.divisor))

    def divide(self, tensor: torch.Tensor) -> None:
        """Where the mean is one of integers, divides a plain tensor after the end."""
        if self.divisor != 1:
            self.copies.append((tensor, tensor, self.divisor))


def _plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        copy = tensor.detach().resolve_conj().resolve_neg()
        return (
            copy.contiguous()
            if copy.data_ptr() != tensor.data_ptr()
            else (copy.clone(memory_format=torch.contiguous_format))
        )


def overlap(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Says whether some memory is in both: the library does not take that."""
    ranges = [_range(other) for other in others if other.numel()]
    return any(
        begin < end and at < stop
        for begin, stop in map(_range, ones)
        for at, end in ranges
        if begin < end
    )


def separate(tensor: torch.Tensor, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns an input in memory that is not an output's."""
    return tensor.detach().clone() if overlap([tensor], outputs) else tensor


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def write_back(copies: Copies) -> None:
    """Copies the results to where the caller wants them."""
    for tensor, copy, divisor in copies:
        # A leaf that requires a gradient takes a value here, not an operation.
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if divisor != 1:
                # Towards zero, as NCCL does it.
                copy = torch.div(copy, divisor, rounding_mode="trunc")
            tensor.copy_(copy)


def check_types(name: str, tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Returns the type of all of the tensors."""
    if not tensors:
        raise ValueError(f"lockstep: {name} needs a tensor")
    dtype = tensors[0].dtype
    for tensor in tensors:
        check_device(name, tensor)
        if tensor.dtype is not dtype:
            raise ValueError(
                f"lockstep: {name} takes tensors of one type, not {dtype} and {tensor.dtype}"
            )
    return dtype


def copied(dtype: torch.dtype, *, both: int = 1) -> list[Memory]:
    """Returns ``both`` empty memories for an operation that only copies."""
    kind = _REDUCED.get(dtype)
    if kind is None:
        # As bytes: float8, unsigned and quantized types.
        kind = (_library.UINT8, torch.empty(0, dtype=dtype).element_size())
    return [Memory(*kind) for _ in range(both)]


def reduced(
    name: str, dtype: torch.dtype, op: object, ranks: int, *, both: int = 1
) -> tuple[int, list[Memory]]:
    """Returns the number of ``op``, and empty memories of the type it reduces."""
    divisor = 1
    op_name = _name_of(op)
    kind = _REDUCED.get(dtype)
    if kind is None:
        raise NotImplementedError(
            f"lockstep: {name} cannot reduce {dtype}; it can copy it, so gather the "
            f"tensors, or convert them to float32 first"
        )
    number = _NAMES.get(op_name)
    if dtype is torch.bool and op_name in ("BAND", "BOR"):
        number = _library.MIN if op_name == "BAND" else _library.MAX
    if number is None:
        raise NotImplementedError(
            f"lockstep: {name} does not have ReduceOp.{op_name} for {dtype}; it has "
            f"SUM, AVG, MIN, MAX and PRODUCT"
        )
    if number == _library.MEAN and kind[0] not in _FLOATS:
        if dtype is torch.bool:
            raise NotImplementedError(f"lockstep: {name} does not have ReduceOp.AVG for {dtype}")
        number, divisor = _library.SUM, ranks
    if kind[1] == 2 and number not in (_library.SUM, _library.MEAN):
        raise NotImplementedError(
            f"lockstep: {name} does not have ReduceOp.{op_name} for {dtype}; it has SUM and AVG"
        )
    return number, [Memory(*kind, divisor) for _ in range(both)]


def _name_of(op: object) -> str:
    # A ReduceOp has the enum as its `op`; the enum's members have a name.
    kind = getattr(op, "op", op)
    return str(getattr(kind, "name", kind))


def normalise(tensor: torch.Tensor) -> torch.Tensor:
    """Returns bools whose bytes are 0 or 1: views of bytes may have others."""
    return tensor.detach().view(torch.uint8).ne(0)
