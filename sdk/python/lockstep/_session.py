"""A rank's membership in its job.

All functions and methods may be called from any thread.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import operator
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, SupportsFloat, Union

from . import _compiling, _data_position, _files, _library, _profiler
from .errors import Error, InvalidArgumentError

Number = SupportsFloat

_PHASES = {
    "input": 0,
    "compute": 1,
    "allreduce": 2,
    "optimizer": 4,
    "checkpoint": 5,
    "evaluation": 6,
    "other": 7,
    "compile": 8,
}

_lock = threading.Lock()
_current: Optional[Session] = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _current is not None:
        _current._forked = True
        # The parent's threads, which may hold the lock or ask, are not here.
        _current._lock = threading.RLock()
        _current._answered = threading.Condition(_current._lock)
        _current._asking = 0


os.register_at_fork(after_in_child=_after_fork)


def join(*, timeout: float = 10.0, recoverable: bool = False) -> Session:
    """Joins the job that started this process, and returns its session.

    It may be called after imports, and after threads were started. A process
    that lockstep did not start becomes rank 0 of 1.

    Args:
      timeout: seconds to wait for the worker daemon of this host.
      recoverable: this process stays when other ranks of the job are lost, where
        all ranks are recoverable (lockstep.torch.Replica).

    Raises:
      Error: ALREADY_EXISTS: this process has joined, or another process of the
        same rank has. PERMISSION_DENIED: the daemon refuses this process;
        where it does not understand this version of the package, the sentence
        has both versions and says what to install.
      TimeoutError: the daemon did not answer.
    """
    global _current
    with _lock:
        if _current is not None and not _current.closed:
            raise Error(
                "this process has joined already; lockstep.session() returns its session",
                code="ALREADY_EXISTS",
            )
        _current = Session(timeout, recoverable)
        # So that the last step and what was reported last arrive.
        atexit.register(_current.close)
        return _current


def session() -> Session:
    """Returns the session of this process. Joins if it has not joined yet."""
    with _lock:
        current = _current
    if current is not None and not current.closed:
        return current
    return join()


def session_for_recovery() -> Session:
    """Returns the session of this process, which is recoverable. Joins if it must."""
    with _lock:
        current = _current
    if current is None or current.closed:
        return join(recoverable=True)
    if not current.recoverable:
        raise Error(
            "this process has joined its job as one that ends with the others; call "
            "lockstep.join(recoverable=True) first",
            code="FAILED_PRECONDITION",
        )
    return current


def _is_count(value: Any) -> bool:
    try:
        return operator.index(value) >= 0
    except TypeError:
        return False


class Step:
    """A step that has ended, or one that ends with its ``with`` block.

    Attributes ``samples``, ``loss`` and ``learning_rate`` may be set inside the
    block. A block that raises is not a step.
    """

    # A plain call and a ``with`` statement look alike until ``__enter__``. So the
    # report of a plain call is made when its result is dropped, which is at once,
    # or by the session's next call, where somebody keeps the result (a notebook).
    __slots__ = (
        "__weakref__",
        "_session",
        "_state",
        "learning_rate",
        "loss",
        "samples",
        "step",
    )

    def __init__(
        self,
        owner: Session,
        step: int,
        samples: int,
        loss: Optional[Number],
        learning_rate: Optional[Number],
    ) -> None:
        self._session = owner
        # 0: a plain call, not reported yet. 1: in a block. 2: done.
        self._state = 0
        self.step = step
        self.samples = samples
        self.loss = loss
        self.learning_rate = learning_rate

    def __enter__(self) -> Step:
        if self._state != 0:
            raise Error("this step has ended", code="FAILED_PRECONDITION")
        self._state = 1
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._state = 2
        if kind is None:
            self._session._report_step(self)

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        if self._state == 0:
            self._state = 2
            self._session._report_step(self)


class Phase:
    """A phase of a rank. As a context manager it ends with the block."""

    __slots__ = ("_before", "_session")

    def __init__(self, owner: Session, before: int) -> None:
        self._session = owner
        self._before = before

    def __enter__(self) -> Phase:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.end()

    def end(self) -> None:
        """The phase before comes back."""
        self._session._enter(self._before)


class Session:
    """The one session of this process. ``join`` makes it.

    Attributes (constant):
      job: the job's name; "local" outside lockstep.
      role: "chief", "worker", "ps" or "evaluator"; "" outside lockstep.
      task_index: the number of the task within its role.
      rank: 0 to world_size - 1; None for parameter servers and evaluators.
      world_size, local_rank, local_world_size: as torch.distributed has them.
      generation: counts the starts of the gang, from 1.
      attempt: counts the starts of this task, from 1.
      output_directory: of the job; "" where there is none.
      cpus: cores of this rank; 0.0: not limited.
      gpus: indices of this rank's GPUs.
      checkpoint_interval_steps: as the job asks; 0: it does not.
      checkpoint_keep: how many checkpoints to keep.
      managed: whether lockstep started this process.
      recoverable: whether this process stays when other ranks are lost.
    """

    def __init__(self, timeout: float = 10.0, recoverable: bool = False) -> None:
        lib = _library.library()
        options = _library.JoinOptions(timeout_ns=int(timeout * 1e9), recoverable=recoverable)
        handle = ctypes.c_void_p()
        error = _library.ErrorRecord()
        _library.check(
            lib.join(ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)),
            error,
        )
        self._lib = lib
        self._handle: Optional[ctypes.c_void_p] = handle
        self._chief = False
        self._lock = threading.RLock()
        self._pending: Optional[weakref.ref[Step]] = None
        self._forked = False
        # Where in the data: said by the program, or the resumed checkpoint's.
        self._position: Any = None
        self._said_position = False
        self._step = _library.Step()
        self._step_pointer = ctypes.byref(self._step)
        # Threads that are in _ask, outside of the lock.
        self._asking = 0
        self._answered = threading.Condition(self._lock)
        self._error = error
        self._error_pointer = ctypes.byref(error)
        info = _library.SessionInfo()
        _library.check(lib.session_get_info(handle, ctypes.byref(info), self._error_pointer), error)
        self.job: str = info.job.decode()
        self.role: str = info.role.decode()
        self.task_index: int = info.task_index
        self.rank: Optional[int] = info.rank if info.rank >= 0 else None
        self.world_size: int = info.world_size
        self.local_rank: int = info.local_rank
        self.local_world_size: int = info.local_world_size
        self.generation: int = info.generation
        self.attempt: int = info.attempt
        self.output_directory: str = os.fsdecode(info.output_directory)
        self.cpus: float = info.cpus
        self.gpus: list[int] = [info.gpus[i] for i in range(info.gpu_count)]
        self.checkpoint_interval_steps: int = info.checkpoint_interval_steps
        self.checkpoint_keep: int = info.checkpoint_keep
        self.managed: bool = info.managed != 0
        self.recoverable = recoverable
        self._compilations = _compiling.watch(self._enter_if_open)
        self._watch = _profiler.watch(self.managed, self.output_directory, self.artifact)

    def __repr__(self) -> str:
        return f"<lockstep.Session job={self.job!r} rank={self.rank} of {self.world_size}>"

    @property
    def closed(self) -> bool:
        return self._handle is None

    @property
    def chief(self) -> bool:
        """Whether this rank speaks for all, and writes what the job saves.

        Rank 0, or while that is away (`lockstep.torch.Replica` with elastic=True) the
        first rank that is not. It changes between two steps only.
        """
        with self._lock:
            if self._handle is not None and not self._forked:
                try:
                    self._chief = self._lib.session_is_chief(self._handle) != 0
                except Error:  # An older library.
                    self._chief = self.rank == 0
            return self._chief

    def step(
        self,
        *,
        samples: int = 0,
        loss: Optional[Number] = None,
        learning_rate: Optional[Number] = None,
        step: Optional[int] = None,
    ) -> Step:
        """Reports that a training step has ended.

        No system call, but a stat each half second, for `lockstep jobs profile`.
        As a context manager, the step ends with the block.

        Args:
          samples: of this rank in this step; 0: not known.
          loss: of this rank in this step. NaN is shown as no loss.
          learning_rate: of this step.
          step: its number; None: the last one and 1. A program that resumes
            names its first step.
        """
        # The report is made later, where no error would reach the program.
        if not _is_count(samples) or not (step is None or _is_count(step)):
            raise InvalidArgumentError(
                "a step has a number and samples, whole numbers from 0, "
                f"not {step!r} and {samples!r}",
                code="INVALID_ARGUMENT",
            )
        self._flush()
        self._open()
        watch = self._watch
        if watch is not None and time.monotonic() >= watch.due:
            watch.look()
        ended = Step(self, -1 if step is None else step, samples, loss, learning_rate)
        self._pending = weakref.ref(ended)
        return ended

    def phase(self, name: str) -> Phase:
        """From now on the time of this rank counts for phase ``name``.

        As a context manager, the phase before comes back after the block.

        Args:
          name: "input", "compute", "allreduce", "optimizer", "checkpoint",
            "evaluation", "compile" or "other".
        """
        number = _PHASES.get(name)
        if number is None:
            raise InvalidArgumentError(
                f"{name!r} is no phase; the phases are {', '.join(_PHASES)}",
                code="INVALID_ARGUMENT",
            )
        self._flush()
        self._compilations.on_phase()
        return Phase(self, self._enter(number))

    def progress(self, *, total_steps: int = 0, epoch: int = 0, global_batch: int = 0) -> None:
        """Says what is planned, for progress bars. 0: not known."""
        self._call(self._lib.session_plan, total_steps, epoch, global_batch)

    def report(self, **values: Number) -> None:
        """Reports measured values, shown with the job: ``report(accuracy=0.89)``.

        At most 16 names of at most 31 bytes.
        """
        for name, value in values.items():
            self._call(self._lib.session_report, name.encode(), float(value))

    def event(self, sentence: str) -> None:
        """Adds a sentence to the job's events."""
        self._call(self._lib.session_event, sentence.encode())

    def artifact(self, name: str, path: Union[str, os.PathLike[str]]) -> None:
        """Reports a file or directory that this rank made."""
        self._call(self._lib.session_artifact, name.encode(), os.fsencode(path))

    def checkpoint_saved(
        self,
        step: int,
        path: Union[str, os.PathLike[str]],
        size: Optional[int] = None,
        *,
        data_position: Any = None,
    ) -> None:
        """Reports that a complete checkpoint of ``step`` is at ``path``; the chief.

        Args:
          step: the step whose state it holds.
          path: a file or a directory.
          size: in bytes; None: it is measured.
          data_position: kept with the checkpoint; None: what data_position() said.
        """
        if size is None:
            size = _files.size(path)
        if data_position is None and self._said_position:
            data_position = self._position
        if data_position is not None:
            self.data_position(data_position)
            if self.chief and step >= 0:
                _data_position.write(path, step, data_position)
        self._call(self._lib.session_checkpoint_saved, step, os.fsencode(path), size)

    def resumed(self, step: int, path: Union[None, str, os.PathLike[str]] = None) -> None:
        """Reports the step from which this rank resumed; 0: from the start.

        Args:
          step: the step whose state it has.
          path: of the checkpoint; then data_position() returns what belongs to it.
        """
        self._call(self._lib.session_resumed, step)
        self._position = None if path is None else _data_position.read(path, step)
        self._said_position = False

    def data_position(self, value: Any = None) -> Any:
        """Where in the data the job is: an epoch, samples, a list of shards.

        With a value, which JSON can hold in 64 KiB: the position that the next
        checkpoint_saved() keeps with its checkpoint. It is one for the job, said by
        the chief; where each rank has a position of its own, a list of all of them.

        Returns:
          The last value, and after resumed(step, path) what was kept with that
          checkpoint. None: the checkpoint has none, or nothing was said.
        """
        if value is not None:
            self._open()
            _data_position.check(value)
            self._position, self._said_position = value, True
        return self._position

    def checkpoint_due(self) -> bool:
        """Whether a checkpoint of the step that ended last was asked for.

        True once for each request, after the same step on every rank, also before
        a stop. Ask after each step, on every rank, and before should_stop(). A
        request is done when the chief calls checkpoint_saved(). Outside lockstep it
        is always False.

        Raises:
          TimeoutError: the ranks agree on a request for this step, and the
            decision did not arrive within 5 minutes.
        """
        return self._ask(self._lib.session_checkpoint_due)

    def should_stop(self) -> bool:
        """Whether to end now, with the exit code 0; from then on True.

        So a job leaves a drained node, or ends after `lockstep jobs cancel
        --save`. Ask after each step, on every rank: all see it after the same
        step. Outside lockstep it is always False.

        Raises:
          TimeoutError: as checkpoint_due().
        """
        return self._ask(self._lib.session_should_stop)

    @property
    def recovery(self) -> int:
        """The newest recovery of this generation; 0: none.

        Not 0 at the start of a process: it replaces a lost one, and gets its state
        from the other ranks, so it need not load a checkpoint.
        """
        number = ctypes.c_uint32()
        if self.recoverable:
            self._wait(self._lib.session_recovery, ctypes.byref(number))
        return number.value

    def close(self) -> None:
        """Hands over what is queued, for at most a second. Later calls raise."""
        self._flush()
        if self._watch is not None and not self._forked:
            self._watch.close()
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        atexit.unregister(self.close)
        self._lib.session_close(handle, None)
        with self._lock:
            # It has ended every wait. Should one go on, its memory must stay.
            if self._answered.wait_for(lambda: self._asking == 0, timeout=5.0):
                self._lib.session_free(handle)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise Error("the session is closed", code="FAILED_PRECONDITION")
        if self._forked:
            raise Error(
                "this process was forked after lockstep.join(); a child cannot use its"
                " parent's session",
                code="FAILED_PRECONDITION",
            )
        return self._handle

    def _flush(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            ended = pending()
            if ended is not None:
                ended._end()

    def _enter(self, phase: int) -> int:
        with self._lock:
            before: int = self._lib.session_enter(self._open(), phase)
            return before

    def _enter_if_open(self, phase: int) -> Optional[int]:
        with self._lock:
            return None if self.closed or self._forked else self._enter(phase)

    def _call(self, function: Callable[..., int], *arguments: object) -> None:
        self._flush()
        with self._lock:
            _library.check(function(self._open(), *arguments, self._error_pointer), self._error)

    def _ask(self, function: Callable[..., int]) -> bool:
        self._flush()
        answer = ctypes.c_int32()
        self._wait(function, ctypes.byref(answer))
        return answer.value != 0

    def _wait(self, function: Callable[..., int], *arguments: object) -> None:
        # It may wait for minutes: other threads go on, and close() ends the wait.
        with self._lock:
            handle = self._open()
            self._asking += 1
        try:
            record = _library.error_record()
            _library.check(function(handle, *arguments, ctypes.byref(record)), record)
        finally:
            with self._lock:
                self._asking -= 1
                self._answered.notify_all()

    def _report_step(self, ended: Step) -> None:
        _compiling.renew()
        with self._lock:
            if self._handle is None or self._forked:
                return
            struct = self._step
            struct.step = ended.step
            struct.samples = ended.samples
            struct.has_loss = struct.has_learning_rate = 0
            if ended.loss is not None:
                struct.loss = loss = float(ended.loss)
                struct.has_loss = math.isfinite(loss)
            if ended.learning_rate is not None:
                struct.learning_rate = float(ended.learning_rate)
                struct.has_learning_rate = 1
            code = self._lib.session_step(self._handle, self._step_pointer, self._error_pointer)
            if code:
                _library.check(code, self._error)
