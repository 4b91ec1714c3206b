"""One line for a plain PyTorch loop: ``lockstep.torch.watch(optimizer)``."""

from __future__ import annotations

from typing import Any, Protocol

from .._session import Phase, session


class _Removable(Protocol):
    def remove(self) -> None: ...


class Watch:
    """What ``watch`` has put on an optimizer; ``remove()`` takes it off."""

    def __init__(self, handles: list[_Removable]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []


def watch(optimizer: Any, *, samples: int = 0) -> Watch:
    """Counts each ``optimizer.step()`` as a step of this rank.

    The time inside it counts for the phase "optimizer", the time between two
    steps for the phase that the program has set, else "compute". With a gradient
    scaler, a step that it skips is not counted.

    Args:
      optimizer: a ``torch.optim.Optimizer``.
      samples: of this rank in a step; 0: not known.
    """
    current = session()
    current.phase("compute")
    phases: list[Phase] = []

    def begin(*_: Any) -> None:
        phases.append(current.phase("optimizer"))

    def end(*_: Any) -> None:
        if phases:
            phases.pop().end()
        current.step(samples=samples)

    return Watch(
        [
            optimizer.register_step_pre_hook(begin),
            optimizer.register_step_post_hook(end),
        ]
    )
