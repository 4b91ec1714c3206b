"""Counts the time in which PyTorch and JAX compile for the phase "compile".

Both announce the begin and the end of a compilation: PyTorch to callbacks of
TorchDynamo (2.4 and later), JAX to listeners of jax.monitoring (versions that
announce the begin, by a scalar). Nothing is imported: a framework that the
program imports later is noticed by a finder of the import system, which is
asked about every import and answers only for the two modules.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

from . import _library

# Tracing, lowering, and XLA.
_JAX_EVENTS = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Compilations:
    """Those that are under way in a session.

    ``enter`` makes a phase the present one and returns the phase before; it does
    nothing and returns None where the session is closed or a parent's.
    """

    def __init__(self, enter: Callable[[int], Optional[int]]) -> None:
        self._enter = enter
        self._lock = threading.RLock()
        self._depth = 0
        self._before = _library.PHASE_OTHER
        # The program's: the last that named a phase.
        self.thread = threading.get_ident()

    def on_phase(self) -> None:
        """The program's thread names a phase."""
        self.thread = threading.get_ident()
        renew()

    def begin(self) -> None:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                before = self._enter(_library.PHASE_COMPILE)
                if before is not None:
                    self._before = before

    def end(self) -> None:
        with self._lock:
            if self._depth == 0:
                return
            self._depth -= 1
            if self._depth > 0:
                return
            now = self._enter(self._before)
            # Another thread has named a phase meanwhile, which stays.
            if now not in (None, _library.PHASE_COMPILE):
                self._enter(now)


_current: Optional[Compilations] = None
_handler: Any = None  # TorchDynamo's.


def watch(enter: Callable[[int], Optional[int]]) -> Compilations:
    """From now on compilations belong to the session whose phase ``enter`` sets."""
    global _current
    _current = compilations = Compilations(enter)
    for name, hook in _HOOKS.items():
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            hook(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return compilations


def renew() -> None:
    """Puts the callbacks back that torch._dynamo.reset() has taken away."""
    if _handler is not None and _torch_begin not in _handler.start_callbacks:
        _handler.start_callbacks.append(_torch_begin)
        _handler.end_callbacks.append(_torch_end)


# A compilation never fails for this.
def _torch_begin(*_: Any) -> None:
    if _current is not None:
        _current.begin()


def _torch_end(*_: Any) -> None:
    if _current is not None:
        _current.end()


# Another thread's compilation does not hold up the program's.
def _of_program(event: str) -> Optional[Compilations]:
    current = _current
    if event not in _JAX_EVENTS or current is None or current.thread != threading.get_ident():
        return None
    return current


def _jax_begin(event: str, *_: Any, **__: Any) -> None:
    current = _of_program(event)
    if current is not None:
        current.begin()


def _jax_end(event: str, *_: Any, **__: Any) -> None:
    current = _of_program(event)
    if current is not None:
        current.end()


def _hook_torch(module: ModuleType) -> None:
    global _handler
    handler = getattr(module, "callback_handler", None)
    lists = (getattr(handler, "start_callbacks", None), getattr(handler, "end_callbacks", None))
    if all(isinstance(one, list) for one in lists):
        _handler = handler
        renew()


def _hook_jax(module: ModuleType) -> None:
    if getattr(module, "_lockstep_listens", False):
        return
    begins = getattr(module, "register_scalar_listener", None)
    ends = getattr(module, "register_event_duration_secs_listener", None)
    if callable(begins) and callable(ends):
        begins(_jax_begin)
        ends(_jax_end)
        module._lockstep_listens = True  # type: ignore[attr-defined]


_HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "torch._dynamo.callback": _hook_torch,
    "jax.monitoring": _hook_jax,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the two modules as the import system does, and calls their hooks."""

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]],
        target: Optional[ModuleType] = None,
    ) -> Optional[importlib.machinery.ModuleSpec]:
        hook = _HOOKS.get(fullname)
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if spec is None or spec.loader is None or execute is None:
            return None

        def exec_module(module: ModuleType) -> None:
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
