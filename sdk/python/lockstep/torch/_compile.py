"""torch.compile leaves lockstep's functions as they are.

torch calls them inside compiled programs: DDP's reducer does. To compile them would
gain nothing, and fails, because a process group is an object that it cannot see into.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

try:
    from torch._C._dynamo.eval_frame import (
        _FrameAction,
        _FrameExecStrategy,
        set_code_exec_strategy,
    )
except ImportError:  # An older torch asks each function whether it is worth it.
    set_code_exec_strategy = None


def not_compiled(kind: type) -> None:
    """Leaves the methods of a class, and what they call, out of torch.compile."""
    if set_code_exec_strategy is None:
        return
    skip: Any = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for value in vars(kind).values():
        if isinstance(value, FunctionType):
            set_code_exec_strategy(value.__code__, skip)
