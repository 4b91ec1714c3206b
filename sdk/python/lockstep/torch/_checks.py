"""What an operation's tensors must be: the sentences for the ones that are not."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch


def one_list(name: str, ones: Sequence[Any], lists: Optional[Sequence[Any]]) -> None:
    if len(ones) != 1 or (lists is not None and len(lists) != 1):
        raise ValueError(f"lockstep: {name} takes the tensors of one device")


def sizes(
    name: str, part: Sequence[torch.Tensor], whole: Sequence[torch.Tensor], ranks: int
) -> None:
    """Checks that ``whole`` has a part for each rank."""
    one = sum(tensor.numel() for tensor in part)
    all_of_them = sum(tensor.numel() for tensor in whole)
    if all_of_them != one * ranks:
        raise ValueError(
            f"lockstep: {name} of {ranks} ranks needs {one} x {ranks} elements on "
            f"its longer side, not {all_of_them}"
        )


def parts(name: str, many: Sequence[torch.Tensor], one: torch.Tensor) -> None:
    """Checks that a list of tensors has equal ones."""
    if len(many) > 1 and any(part.numel() != one.numel() for part in many):
        raise ValueError(
            f"lockstep: {name} takes tensors of one size, not "
            f"{sorted({part.numel() for part in many} | {one.numel()})} elements"
        )


def row_splits(
    name: str, tensor: torch.Tensor, splits: Sequence[int], ranks: int, factor: int
) -> Optional[list[int]]:
    """Returns the elements for each rank; None: equal parts."""
    rows = tensor.size(0) if tensor.dim() else tensor.numel()
    if not splits:
        if rows % ranks:
            raise ValueError(
                f"lockstep: {name} without split sizes needs a first dimension that "
                f"{ranks} ranks divide, not {rows}"
            )
        return None
    if len(splits) != ranks or sum(splits) != rows:
        raise ValueError(
            f"lockstep: {name} needs {ranks} split sizes whose sum is the first "
            f"dimension, {rows}, not {list(splits)}"
        )
    row = (tensor.numel() // rows if rows else 0) * factor
    return [split * row for split in splits]
