"""Traces that `lockstep jobs profile` asks a joined program for.

The request and the answer are files (_mailbox.py). The program looks for a request
at a step's end, at most every half second, which is one stat; nothing else runs
where nobody asks. Whatever fails here is the answer's sentence and never the
program's.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Optional, Protocol

from . import _mailbox

INTERVAL_S = 0.5
# A job keeps 64 artifacts; traces of many ranks leave room for the program's own.
_RANKS_WITH_ARTIFACTS = 32
# For a trace that is being written when the program ends.
_LAST_WRITE_S = 60.0
_RENEWAL_S = 3600.0


class _Refused(Exception):
    """The program has no such profiler."""


class _Recorder(Protocol):
    name: str
    # Of a file; "": it writes a folder.
    ending: str

    def start(self) -> None: ...
    def step(self) -> None: ...
    def stop(self) -> None:
        """In the thread of start()."""

    def write(self, path: str) -> None:
        """In any thread, after stop()."""

    def close(self) -> None:
        """After write(), or in its place."""


class _Torch:
    name = "torch"
    ending = ".json.gz"

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        profiler: Any = torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        # Whether there is a GPU at all may cost seconds to find out.
        if torch.cuda.is_initialized():
            activities.append(profiler.ProfilerActivity.CUDA)
        # A schedule marks the steps in the trace.
        self._profile: Any = profiler.profile(
            activities=activities, schedule=lambda _: profiler.ProfilerAction.RECORD
        )

    def start(self) -> None:
        self._profile.start()

    def step(self) -> None:
        self._profile.step()

    def stop(self) -> None:
        self._profile.stop()

    def write(self, path: str) -> None:
        self._profile.export_chrome_trace(path)

    def close(self) -> None:
        pass


class _Jax:
    name = "jax"
    ending = ""

    def __init__(self) -> None:
        self._jax: Any = sys.modules["jax"]
        # JAX writes where it was told to at the start.
        self._folder = tempfile.mkdtemp(prefix="lockstep-profile-")
        # With the mode of any directory of the program.
        self._trace = os.path.join(self._folder, "trace")
        self._started = False

    def start(self) -> None:
        try:
            self._jax.profiler.start_trace(self._trace)
            self._started = True
        except BaseException:
            self.close()
            raise

    def step(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def write(self, path: str) -> None:
        self._started = False
        self._jax.profiler.stop_trace()
        shutil.copytree(self._trace, path)

    def close(self) -> None:
        if self._started:
            self._started = False
            with contextlib.suppress(Exception):
                self._jax.profiler.stop_trace()
        shutil.rmtree(self._folder, ignore_errors=True)


def watch(managed: bool, output: str, artifact: Callable[[str, str], None]) -> Optional[Watch]:
    """Returns what a session looks for requests with; None: nobody can ask."""
    link_file = os.environ.get("LOCKSTEP_LINK_FILE", "")
    return Watch(link_file, output, artifact) if managed and link_file else None


def _recorder(wanted: str) -> _Recorder:
    """Raises _Refused."""
    loaded = {name for name in ("torch", "jax") if name in sys.modules}
    if wanted and wanted not in loaded:
        raise _Refused(f"the program has not imported {wanted}")
    if not loaded:
        raise _Refused("the program has imported neither torch nor jax")
    # Programs of JAX import torch for their data. lockstep.jax says which it is.
    jax = "torch" not in loaded or ("jax" in loaded and "lockstep.jax" in sys.modules)
    return _Jax() if (wanted or ("jax" if jax else "torch")) == "jax" else _Torch()


def _copied(path: str) -> str:
    """The Chrome trace: the file itself, or the one of the folder. "": it has none."""
    if os.path.isfile(path):
        return path
    found = glob.glob(os.path.join(glob.escape(path), "**", "*.json.gz"), recursive=True)
    return found[0] if len(found) == 1 else ""


class Watch:
    """Looks for requests, for a session. Any thread may call each method.

    Attributes:
      due: seconds of time.monotonic(); from then on a step's end must call look().
    """

    def __init__(self, link_file: str, output: str, artifact: Callable[[str, str], None]) -> None:
        self.due = float("inf")
        self._output = output if os.path.isabs(output) else ""
        self._artifact = artifact
        self._turn = threading.Lock()
        self._pid = os.getpid()
        self._recorder: Optional[_Recorder] = None
        self._request: dict[str, Any] = {}
        self._renewal = 0.0
        self._until = 0.0
        self._thread = 0
        self._writer: Optional[threading.Thread] = None
        folder = _mailbox.make_folder()
        if folder is None:
            return
        self._box = _mailbox.Mailbox(folder, link_file)
        self._ready = _mailbox.Ready(
            link_file,
            sys.executable,
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            self._pid,
            _mailbox.start_of(self._pid),
            _mailbox.pid_namespace(),
        )
        # A shell reads it by lines.
        if not sys.executable or self._ready.text().count("\n") != 6:
            return
        # Names that are not UTF-8 are ValueErrors.
        with contextlib.suppress(OSError, ValueError):
            _sweep(folder)
            # Of a process before this one.
            _mailbox.remove(self._box.request)
            self._renew()
            self.due = time.monotonic() + INTERVAL_S

    def look(self) -> None:
        """Begins, goes on with or ends a trace. Raises nothing."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._recorder is None:
                self.due = time.monotonic() + INTERVAL_S
                self._begin()
            else:
                self._go_on(self._recorder)
        except Exception as error:
            recorder, self._recorder = self._recorder, None
            self.due = time.monotonic() + INTERVAL_S
            if recorder is not None:
                with contextlib.suppress(Exception):
                    recorder.stop()
                recorder.close()
            self._fail(error)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Writes a trace that is being made, and leaves no file for requesters."""
        if self.due == float("inf") or self._pid != os.getpid():
            return
        if not self._turn.acquire(timeout=_LAST_WRITE_S):
            return
        try:
            self.due = float("inf")
            recorder, self._recorder = self._recorder, None
            if recorder is not None:
                recorder.stop()
                self._write(recorder)
        except Exception as error:
            self._fail(error)
        finally:
            self._turn.release()
        if _mailbox.read_ready(self._box.ready) == self._ready:
            _mailbox.remove(self._box.ready)
        if self._writer is not None:
            self._writer.join(_LAST_WRITE_S)

    def _renew(self) -> None:
        """What cleans up /tmp takes files that nobody touches for days."""
        self._renewal = time.monotonic() + _RENEWAL_S
        if _mailbox.make_folder() == self._box.folder:
            with contextlib.suppress(OSError):
                _mailbox.write(self._box.ready, self._ready.text())

    def _begin(self) -> None:
        if time.monotonic() > self._renewal:
            self._renew()
        try:
            os.stat(self._box.request)
        except OSError:
            return
        if self._writer is not None and self._writer.is_alive():
            return
        request = _mailbox.read_object(self._box.request)
        _mailbox.remove(self._box.request)
        if request is None or not _valid(request) or request["expires"] < time.time():
            return
        self._request = request
        if request["version"] != _mailbox.VERSION:
            raise _Refused(
                "the program and the lockstep.profile that asks are of different releases of"
                " lockstep: start the job again"
            )
        recorder = _recorder(request["framework"])
        recorder.start()
        self._recorder = recorder
        self._thread = threading.get_ident()
        self._until = time.monotonic() + request["seconds"]
        self.due = 0.0
        self._answer(state="recording")

    def _go_on(self, recorder: _Recorder) -> None:
        # PyTorch's profiler belongs to its thread, unless that has ended.
        if threading.get_ident() != self._thread and any(
            thread.ident == self._thread for thread in threading.enumerate()
        ):
            return
        if time.monotonic() < self._until:
            recorder.step()
            return
        self._recorder = None
        self.due = time.monotonic() + INTERVAL_S
        self._answer(state="writing")
        recorder.stop()
        # A trace of seconds takes seconds to write; the program goes on meanwhile.
        self._writer = threading.Thread(
            target=self._write, args=(recorder,), name="lockstep-profile", daemon=True
        )
        self._writer.start()

    def _write(self, recorder: _Recorder) -> None:
        rank = self._request["rank"]
        try:
            folder = os.path.join(self._output or self._request["directory"], "profiles")
            os.makedirs(folder, exist_ok=True)
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            name = f"{stamp}-rank{rank}-{recorder.name}{recorder.ending}"
            path = os.path.join(folder, name)
            part = os.path.join(folder, f".{self._request['nonce'][:8]}-{name}")
            try:
                recorder.write(part)
                os.rename(part, path)
            except BaseException:
                _mailbox.remove(part)
                shutil.rmtree(part, ignore_errors=True)
                raise
            if rank < _RANKS_WITH_ARTIFACTS:
                # The session may have been closed.
                with contextlib.suppress(Exception):
                    self._artifact(f"profile-rank{rank}", path)
            self._answer(state="done", path=path, copy=_copied(path))
        except Exception as error:
            self._fail(error)
        finally:
            recorder.close()

    def _fail(self, error: Exception) -> None:
        none = isinstance(error, _Refused)
        self._answer(state="failed", message=_sentence(error), none=none)

    def _answer(self, **fields: Any) -> None:
        if not self._request:
            return
        text = json.dumps({"nonce": self._request["nonce"], **fields})
        with contextlib.suppress(OSError):
            _mailbox.write(self._box.answer, text)


def _valid(request: dict[str, Any]) -> bool:
    kinds: dict[str, Any] = {"version": int, "nonce": str, "framework": str, "rank": int,
                             "directory": str, "seconds": int, "expires": (int, float)}  # fmt: skip
    return (
        all(isinstance(request.get(name), kind) for name, kind in kinds.items())
        and request["framework"] in ("", "torch", "jax")
        and 0 < request["seconds"] <= _mailbox.MOST_SECONDS
        and request["rank"] >= 0
        and request["nonce"].isalnum()
        and os.path.isabs(request["directory"])
    )


def _sentence(error: Exception) -> str:
    if isinstance(error, (_Refused, OSError)):
        return str(error)
    return f"the profiler failed: {type(error).__name__}: {error}"


def _sweep(folder: str) -> None:
    """Removes what programs left that were killed, of this PID namespace."""
    namespace = _mailbox.pid_namespace()
    for name in os.listdir(folder):
        if not name.endswith(".ready"):
            continue
        path = os.path.join(folder, name)
        ready = _mailbox.read_ready(path)
        if ready is not None and ready.namespace == namespace and not ready.alive():
            for ending in (".request", ".answer", ".ready"):
                _mailbox.remove(path[: -len(".ready")] + ending)
