"""The C interface of lockstep, ``lockstep.h``, as ctypes sees it.

Only declarations and the two ways from a code to an exception are here. The
structs have the names and the fields of the header. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Callable

from . import errors

FILE = "liblockstep.so.0"

# Codes of google.rpc.Code.
OK = 0
CANCELLED = 1
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15

# lockstep_type
FLOAT32 = 0
FLOAT64 = 1
FLOAT16 = 2
BFLOAT16 = 3
INT32 = 4
INT64 = 5
UINT8 = 6
INT8 = 7
INT16 = 8
BOOL = 9

# lockstep_reduce_op
SUM = 0
MIN = 1
MAX = 2
MEAN = 3
PRODUCT = 4

# lockstep_collective
ALL_REDUCE = 0
REDUCE = 1
BROADCAST = 2
ALL_GATHER = 3
REDUCE_SCATTER = 4
GATHER = 5
SCATTER = 6
ALL_TO_ALL = 7
BARRIER = 8
SEND = 9
RECV = 10

# lockstep_phase
PHASE_INPUT = 0
PHASE_COMPUTE = 1
PHASE_ALLREDUCE = 2
PHASE_OPTIMIZER = 4
PHASE_CHECKPOINT = 5
PHASE_EVALUATION = 6
PHASE_OTHER = 7
PHASE_COMPILE = 8


class ErrorRecord(Structure):
    """``lockstep_error``."""

    _fields_ = [("code", c_int32), ("reason", c_char * 60), ("message", c_char * 2048)]


STORE_PUT = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
STORE_GET = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_void_p, c_size_t, POINTER(c_size_t))


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **values)


class Store(Sized):
    """``lockstep_store``."""

    _fields_ = [
        ("size", c_size_t),
        ("context", c_void_p),
        ("put", STORE_PUT),
        ("get", STORE_GET),
    ]


class GroupOptions(Sized):
    """``lockstep_group_options``."""

    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("label", c_char_p),
        ("backend", c_char_p),
        ("bind_address", c_char_p),
        ("key", c_char_p),
        ("key_bytes", c_size_t),
        ("forming_timeout_ns", c_int64),
        ("operation_timeout_ns", c_int64),
        ("store", POINTER(Store)),
    ]


class Span(Structure):
    """``lockstep_span``."""

    _fields_ = [("data", c_void_p), ("count", c_uint64)]


class Operation(Sized):
    """``lockstep_operation``."""

    _fields_ = [
        ("size", c_size_t),
        ("collective", c_int32),
        ("type", c_int32),
        ("op", c_int32),
        ("root", c_int32),
        ("tag", c_uint32),
        ("reserved", c_uint32),
        ("input", POINTER(Span)),
        ("input_spans", c_size_t),
        ("output", POINTER(Span)),
        ("output_spans", c_size_t),
        ("input_splits", POINTER(c_uint64)),
        ("output_splits", POINTER(c_uint64)),
        ("timeout_ns", c_int64),
        ("cookie", c_uint64),
    ]


class JoinOptions(Sized):
    """``lockstep_join_options``."""

    _fields_ = [
        ("size", c_size_t),
        ("timeout_ns", c_int64),
        ("recoverable", c_int32),
        ("reserved", c_int32),
    ]


class SessionInfo(Sized):
    """``lockstep_session_info``."""

    _fields_ = [
        ("size", c_size_t),
        ("job", c_char_p),
        ("role", c_char_p),
        ("output_directory", c_char_p),
        ("gpus", POINTER(c_int32)),
        ("gpu_count", c_uint64),
        ("cpus", c_double),
        ("generation", c_uint64),
        ("checkpoint_interval_steps", c_int64),
        ("checkpoint_keep", c_int32),
        ("task_index", c_int32),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("local_rank", c_int32),
        ("local_world_size", c_int32),
        ("attempt", c_int32),
        ("managed", c_int32),
    ]


class Step(Sized):
    """``lockstep_step``."""

    _fields_ = [
        ("size", c_size_t),
        ("step", c_int64),
        ("samples", c_uint64),
        ("loss", c_double),
        ("learning_rate", c_double),
        ("has_loss", c_int32),
        ("has_learning_rate", c_int32),
    ]


class Level(Sized):
    """``lockstep_level``."""

    _fields_ = [
        ("size", c_size_t),
        ("memory", POINTER(Span)),
        ("spans", c_size_t),
        ("has_state", c_int32),
        ("reserved", c_int32),
        ("committed", c_int64),
        ("small_part", c_char_p),
        ("small_bytes", c_size_t),
        ("digest", c_void_p),
    ]


class Leveled(Sized):
    """``lockstep_leveled``."""

    _fields_ = [
        ("size", c_size_t),
        ("committed", c_int64),
        ("bytes", c_int64),
        ("time_ns", c_int64),
        ("received", c_int32),
        ("source", c_int32),
        ("small_bytes", c_size_t),
    ]


_CODE = c_int32
_ERROR = POINTER(ErrorRecord)
# Objects are opaque addresses. Operations, spans and what comes back in a
# word are addresses, too: the callers of the hot functions keep the memory.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (c_char_p, ()),
    "group_form": (_CODE, (POINTER(GroupOptions), POINTER(c_void_p), _ERROR)),
    "group_free": (None, (c_void_p,)),
    "group_abort": (None, (c_void_p, c_char_p)),
    "group_describe": (c_char_p, (c_void_p,)),
    "group_start": (_CODE, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "group_run": (_CODE, (c_void_p, c_void_p, c_void_p)),
    "work_wait": (_CODE, (c_void_p, c_int64, c_void_p)),
    "work_ended": (c_int32, (c_void_p,)),
    "work_free": (None, (c_void_p,)),
    "group_next_ended": (
        _CODE,
        (c_void_p, c_int64, POINTER(c_uint64), c_size_t, POINTER(c_size_t)),
    ),
    "digest_of": (_CODE, (POINTER(Span), c_size_t, POINTER(c_void_p), _ERROR)),
    "digest_free": (None, (c_void_p,)),
    "group_level": (_CODE, (c_void_p, POINTER(Level), POINTER(Leveled), _ERROR)),
    "group_small_part": (_CODE, (c_void_p, c_void_p, c_size_t, _ERROR)),
    "join": (_CODE, (POINTER(JoinOptions), POINTER(c_void_p), _ERROR)),
    "session_close": (_CODE, (c_void_p, _ERROR)),
    "session_free": (None, (c_void_p,)),
    "session_get_info": (_CODE, (c_void_p, POINTER(SessionInfo), _ERROR)),
    "session_enter": (c_int32, (c_void_p, c_int32)),
    "session_step": (_CODE, (c_void_p, POINTER(Step), _ERROR)),
    "session_plan": (_CODE, (c_void_p, c_uint64, c_uint64, c_uint64, _ERROR)),
    "session_report": (_CODE, (c_void_p, c_char_p, c_double, _ERROR)),
    "session_event": (_CODE, (c_void_p, c_char_p, _ERROR)),
    "session_artifact": (_CODE, (c_void_p, c_char_p, c_char_p, _ERROR)),
    "session_checkpoint_saved": (
        _CODE,
        (c_void_p, c_int64, c_char_p, c_int64, _ERROR),
    ),
    "session_resumed": (_CODE, (c_void_p, c_int64, _ERROR)),
    "session_checkpoint_due": (_CODE, (c_void_p, POINTER(c_int32), _ERROR)),
    "session_should_stop": (_CODE, (c_void_p, POINTER(c_int32), _ERROR)),
    "session_recovery": (_CODE, (c_void_p, POINTER(c_uint32), _ERROR)),
    "session_park": (_CODE, (c_void_p, c_uint32, POINTER(c_int32), c_size_t, _ERROR)),
    "session_await_recovery": (
        _CODE,
        (c_void_p, c_uint32, c_int64, POINTER(c_uint32), _ERROR),
    ),
    "session_joined": (_CODE, (c_void_p, c_uint32, _ERROR)),
    "session_is_chief": (c_int32, (c_void_p,)),
    "session_set_elastic": (_CODE, (c_void_p, c_int32, _ERROR)),
    "session_away": (
        _CODE,
        (c_void_p, c_uint32, POINTER(c_int32), c_size_t, POINTER(c_size_t), _ERROR),
    ),
    "session_put": (_CODE, (c_void_p, c_uint32, c_char_p, c_char_p, c_size_t, _ERROR)),
    "session_get": (
        _CODE,
        (
            c_void_p,
            c_uint32,
            c_char_p,
            c_int64,
            c_void_p,
            c_size_t,
            POINTER(c_size_t),
            _ERROR,
        ),
    ),
}
# $LOCKSTEP_LIBRARY may name a library from before there were these.
_LATER = (
    "session_set_elastic",
    "session_away",
    "session_is_chief",
    "digest_of",
    "digest_free",
)


class Library:
    """The functions of the header, without their prefix ``lockstep_``."""

    version: Callable[..., bytes]
    group_form: Callable[..., int]
    group_free: Callable[..., None]
    group_abort: Callable[..., None]
    group_describe: Callable[..., bytes]
    group_start: Callable[..., int]
    group_run: Callable[..., int]
    work_wait: Callable[..., int]
    work_ended: Callable[..., int]
    work_free: Callable[..., None]
    group_next_ended: Callable[..., int]
    digest_of: Callable[..., int]
    digest_free: Callable[..., None]
    group_level: Callable[..., int]
    group_small_part: Callable[..., int]
    join: Callable[..., int]
    session_close: Callable[..., int]
    session_free: Callable[..., None]
    session_get_info: Callable[..., int]
    session_enter: Callable[..., int]
    session_step: Callable[..., int]
    session_plan: Callable[..., int]
    session_report: Callable[..., int]
    session_event: Callable[..., int]
    session_artifact: Callable[..., int]
    session_checkpoint_saved: Callable[..., int]
    session_resumed: Callable[..., int]
    session_checkpoint_due: Callable[..., int]
    session_should_stop: Callable[..., int]
    session_recovery: Callable[..., int]
    session_park: Callable[..., int]
    session_await_recovery: Callable[..., int]
    session_joined: Callable[..., int]
    session_is_chief: Callable[..., int]
    session_set_elastic: Callable[..., int]
    session_away: Callable[..., int]
    session_put: Callable[..., int]
    session_get: Callable[..., int]

    def __init__(self, path: str) -> None:
        self.path = path
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            if name in _LATER and not hasattr(loaded, "lockstep_" + name):
                setattr(self, name, _absent(path, name))
                continue
            function = getattr(loaded, "lockstep_" + name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)


def _absent(path: str, name: str) -> Callable[..., int]:
    """Stands for a function that the library does not have."""

    def refuse(*_: object) -> int:
        raise errors.error_for(
            "UNIMPLEMENTED",
            f"{path} has no lockstep_{name}: it is older than this package; install the "
            "library of the same version",
        )

    return refuse


def path() -> str:
    """Returns the file of the library: $LOCKSTEP_LIBRARY, else the package's own."""
    named = os.environ.get("LOCKSTEP_LIBRARY", "")
    if named:
        return named
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", FILE)
    if os.path.exists(own):
        return own
    raise errors.error_for(
        "FAILED_PRECONDITION",
        f"{own} is not there: install the wheel of lockstep, or set "
        f"LOCKSTEP_LIBRARY to the path of {FILE}",
    )


_lock = threading.Lock()
_loaded: Library | None = None


def library() -> Library:
    """Loads the library once in a process."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load(path())
    return _loaded


def _load(file: str) -> Library:
    try:
        return Library(file)
    except (OSError, AttributeError) as error:
        raise errors.error_for(
            "FAILED_PRECONDITION", f"lockstep's library cannot be loaded: {error}"
        ) from error


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.record = ErrorRecord()
        self.address = ctypes.addressof(self.record)


_per_thread = _PerThread()


def error_record() -> ErrorRecord:
    """Returns this thread's record: one is 2 KiB, so calls share it."""
    return _per_thread.record


def error_address() -> int:
    """Returns the address of this thread's record."""
    return _per_thread.address


def error_of(code: int, record: ErrorRecord, *, peer: bool = False) -> errors.Error:
    """Makes the exception for a code that is not 0 and what came with it.

    ``peer``: UNAVAILABLE is about a rank of a group.
    """
    message = record.message.decode("utf-8", "replace")
    reason = record.reason.decode("utf-8", "replace")
    name = errors.code_name(code)
    return errors.error_for(name, message or f"lockstep: {name}", reason, peer=peer)


def check(code: int, record: ErrorRecord, *, peer: bool = False) -> None:
    """Raises the exception for ``code`` where it is not 0."""
    if code != OK:
        raise error_of(code, record, peer=peer)
