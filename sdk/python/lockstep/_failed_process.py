"""Ends a process that has failed and does not end by itself.

The other ranks wait until a lost one has ended. A thread that is no daemon, as
loggers and loaders have, keeps a Python process alive after an exception has ended
its main thread.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Optional

_LINGER_S = 60.0
_watching = False


def watch(linger_s: float = _LINGER_S) -> None:
    """From now on an exception that ends the main thread ends the process, too.

    The process has ``linger_s`` for that by itself, functions of atexit included. Not
    where a person types: there the main thread goes on. Later calls change nothing.
    """
    global _watching
    if _watching:
        return
    _watching = True
    before = sys.excepthook

    def failed(
        kind: type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        try:
            before(kind, error, trace)
        finally:
            if not sys.flags.interactive and not hasattr(sys, "ps1"):
                threading.Thread(target=_end, args=(linger_s, kind.__name__), daemon=True).start()

    sys.excepthook = failed


def _end(linger_s: float, what: str) -> None:
    time.sleep(linger_s)
    # Another thread's hook may have called this one.
    if threading.main_thread().is_alive():
        return
    try:
        _explain(linger_s, what)
    finally:
        os._exit(1)


def _explain(linger_s: float, what: str) -> None:
    others = [
        thread.name
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    names = f" (threads: {', '.join(others)})" if others else ""
    sys.stderr.write(
        f"lockstep: {what} ended the main thread, and the process has not ended {linger_s:.0f} s "
        f"later{names}: it ends now, because the other ranks wait for that\n"
    )
    sys.stderr.flush()


__all__ = ["watch"]
