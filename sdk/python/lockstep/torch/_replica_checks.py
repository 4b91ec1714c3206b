"""What a Replica refuses, each with one sentence that says what would work."""

from __future__ import annotations

import hashlib
from typing import Any, Sequence

import torch

from ..errors import Error, error_for
from ._gradients import on_host

# They communicate in the backward pass, and do not outlive a lost rank.
_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


def _wrong(message: str) -> Error:
    return error_for("INVALID_ARGUMENT", message)


def check_model(model: Any, world_size: int) -> None:
    """Refuses models whose gradients a Replica cannot average, or whose states differ."""
    if not isinstance(model, torch.nn.Module):
        raise _wrong(f"a Replica's model is a torch.nn.Module, not {_named(model)}")
    for name, module in model.named_modules():
        kind = type(module)
        if kind.__name__ in _WRAPPERS and kind.__module__.startswith("torch."):
            raise _wrong(
                f"{name or 'the model'} is wrapped in {kind.__name__}, and a Replica averages "
                "the gradients itself: give it the module that is inside"
            )
        norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        if norm and module.running_mean is not None and world_size > 1:
            raise _wrong(
                f"{name or 'the model'} is a {kind.__name__} with running statistics, "
                "which differ from rank to rank, and the ranks of a Replica must have equal "
                "states: use track_running_stats=False, or another normalisation"
            )
    for tensor in model.state_dict().values():
        if isinstance(tensor, torch.Tensor) and world_size > 1:
            check_layout(tensor)


def check_layout(tensor: torch.Tensor) -> None:
    if type(tensor.detach()).__name__ == "DTensor":
        raise _wrong("a Replica has the whole model on each rank, without fully_shard")
    if tensor.layout is not torch.strided:
        raise _wrong(f"a Replica's state is of dense tensors, not of {tensor.layout} ones")
    if on_host(tensor) and not tensor.is_contiguous():
        raise _wrong(
            "a Replica's state on the CPU is of contiguous tensors; a tensor of it has "
            f"strides {tensor.stride()}"
        )


def check_parts(optimizer: Any, scheduler: Any, states: Sequence[Any]) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise _wrong(f"a Replica's optimizer is a torch.optim.Optimizer, not {_named(optimizer)}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise _wrong("a Replica's optimizer takes no closure, as LBFGS does")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise _wrong(
            "a Replica gives its scheduler no metric: put the ReduceLROnPlateau into states, "
            "and call its step(metric) after the replica's, with the same metric on all ranks"
        )
    parts = [("scheduler", scheduler)] if scheduler is not None else []
    for name, part in [*parts, *(("states", state) for state in states)]:
        for method in ("state_dict", "load_state_dict"):
            if not callable(getattr(part, method, None)):
                raise _wrong(f"{name} has {_named(part)}, which has no {method}()")


def check_call(compute: Any, samples: Any, accumulate: Any, optimize: Any) -> None:
    if not callable(compute):
        raise _wrong(f"step takes a function that returns the loss, not {_named(compute)}")
    if optimize is not None and not callable(optimize):
        raise _wrong(f"optimize is a function that runs the optimizer, not {_named(optimize)}")
    if not _is_number(samples) or samples < 0:
        raise _wrong(f"samples is a whole number from 0, not {samples!r}")
    if not _is_number(accumulate) or accumulate < 1:
        raise _wrong(f"accumulate is a whole number from 1, not {accumulate!r}")


def check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor):
        raise _wrong(f"the function returns the loss as a tensor, not {_named(loss)}")
    if loss.numel() != 1:
        raise _wrong(
            "the function returns the mean loss, a tensor of one element, not of shape "
            f"{tuple(loss.shape)}"
        )
    if not loss.requires_grad:
        raise _wrong(
            "the loss that the function returned has no gradient: it does not depend on the "
            "model's parameters, or was computed under torch.no_grad()"
        )


def traits(parameters: Sequence[torch.Tensor], elastic: bool) -> dict[str, Any]:
    """What must be equal on all ranks, for `check_alike`."""
    layout = [(str(each.dtype), tuple(each.shape), each.requires_grad) for each in parameters]
    return {
        "elastic": elastic,
        "parameters": len(parameters),
        "elements": sum(each.numel() for each in parameters),
        "layout": hashlib.blake2b(repr(layout).encode(), digest_size=16).hexdigest(),
    }


def check_alike(every: Sequence[dict[str, Any]], ranks: Sequence[int], own: Sequence[int]) -> None:
    """Compares with the first rank that has a state, or the first one.

    Args:
      every: what the ranks said; "shapes" is None where a rank has no state.
      ranks: their numbers.
      own: the places in ``ranks`` that are compared. In a recovery it is this rank's
        alone: the others keep their state, and another new process may do better.
    """
    at = next((i for i, said in enumerate(every) if said["shapes"] is not None), 0)
    for place in own:
        first, other = every[at], every[place]
        if other["elastic"] != first["elastic"]:
            raise _wrong(
                f"rank {ranks[at]} has a Replica with elastic={first['elastic']}, and rank "
                f"{ranks[place]} one with elastic={other['elastic']}"
            )
        if other["layout"] != first["layout"]:
            raise _wrong(
                f"rank {ranks[at]} has a model of {_size(first)}, and rank {ranks[place]} one of "
                f"{_size(other)}: their types, shapes and which of them are trained must be the "
                "same"
            )


def _size(said: dict[str, Any]) -> str:
    return f"{said['parameters']} parameters with {said['elements']} elements"


def _named(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a {type(value).__name__}"


def _is_number(value: Any) -> bool:
    # NumPy's numbers are, too.
    return hasattr(value, "__index__") and not isinstance(value, (bool, torch.Tensor))


__all__ = [
    "check_alike",
    "check_call",
    "check_layout",
    "check_loss",
    "check_model",
    "check_parts",
    "traits",
]
