"""Waits for conditions, each with a deadline; and the run's clock and log."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

LOOK_S = 0.3
_begun = time.monotonic()
_lock = threading.Lock()
_said: list[str] = []


class LateError(Exception):
    """What was waited for did not come within its time."""


def now() -> float:
    """Seconds since the run began."""
    return time.monotonic() - _begun


def say(text: str) -> None:
    """Prints a line with the time, and keeps it for the story of a failure."""
    with _lock:
        line = f"{now():7.2f}  {text}"
        _said.append(line)
        print(line, flush=True)


def story() -> str:
    with _lock:
        return "\n".join(_said)


def wait_for(what: str, seconds: float, condition: Callable[[], Any]) -> Any:
    """The first value of `condition` that is true. Any thread."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LateError(f"not within {seconds:.0f} s: {what}")
        pause.wait(LOOK_S)
