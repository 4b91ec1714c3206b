"""A group of ranks and the operations that it runs, over ``_library``.

The frameworks' adapters use it. Memory is given as (address, number of
elements); a work keeps what its caller hands it until the operation has ended.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
import weakref
from typing import Any, Callable, NamedTuple, Optional, Protocol, Sequence, Tuple

from . import _library, errors

# (address, number of elements)
Span = Tuple[int, int]

_OPERATION = struct.Struct("=QiiiiIIQQQQQQqQ")
_SLICE_S = 0.1  # a wait of Python returns to the interpreter so often: Ctrl-C
_SPANS = 64  # for more of them an array is made for the call
_SWEEP_AT = 16
NANOSECONDS = 1_000_000_000

if _OPERATION.size != ctypes.sizeof(_library.Operation):
    raise ImportError("lockstep needs a platform with pointers of 64 bits")


class KeyValueStore(Protocol):
    """What the ranks exchange their first messages through."""

    def put(self, key: str, value: bytes) -> None:
        """Writes a key, once."""

    def get(self, key: str, timeout_s: float) -> bytes:
        """Waits for a key and returns its value, or raises TimeoutError."""


class _Scratch(threading.local):
    """The memory of one thread's calls: the library copies all of it."""

    def __init__(self) -> None:
        self.operation = bytearray(_OPERATION.size)
        holder = (ctypes.c_char * _OPERATION.size).from_buffer(self.operation)
        self.operation_at = ctypes.addressof(holder)
        self.inputs = (ctypes.c_uint64 * (2 * _SPANS))()
        self.outputs = (ctypes.c_uint64 * (2 * _SPANS))()
        self.inputs_at = ctypes.addressof(self.inputs)
        self.outputs_at = ctypes.addressof(self.outputs)
        self.work = ctypes.c_void_p()
        self.work_at = ctypes.addressof(self.work)
        self._holder = holder


_scratch = _Scratch()


def _put_spans(spans: Sequence[Span], into: Any, at: int) -> tuple[int, Any]:
    """Returns the address of the spans, and what keeps them there."""
    count = len(spans)
    if count == 1:
        into[0], into[1] = spans[0]
        return at, into
    if count == 0:
        return 0, None
    if count > _SPANS:
        into = (ctypes.c_uint64 * (2 * count))()
        at = ctypes.addressof(into)
    into[0 : 2 * count] = [number for span in spans for number in span]
    return at, into


class Work:
    """An operation that was started. Every function may be called anywhere."""

    __slots__ = ("_error", "_group", "_handle", "_keep", "_lock", "__weakref__")

    def __init__(self, group: Group, handle: int, keep: object) -> None:
        self._group = group
        self._handle = handle
        self._keep = keep
        self._error: Optional[errors.Error] = None
        # Held while the handle is in use; it is freed when the end is known.
        self._lock = threading.Lock()

    @property
    def error(self) -> errors.Error | None:
        """The result, once the operation has ended."""
        return self._error

    def ended(self) -> bool:
        """Says whether the operation has ended; does not wait."""
        if not self._handle:
            return True
        # Where another thread is waiting, that one sees the end first.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._poll(0)
        finally:
            self._lock.release()

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Waits for the end: False where ``timeout_s`` passed, negative: none.

        Raises what the operation ended with.
        """
        if self._handle and not self._wait(timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s if timeout_s >= 0 else None
        while True:
            left = _SLICE_S
            if until is not None:
                left = min(left, max(0.0, until - time.monotonic()))
            if self._lock.acquire(timeout=left):
                try:
                    if self._poll(int(left * NANOSECONDS)):
                        return True
                finally:
                    self._lock.release()
            if until is not None and time.monotonic() >= until:
                return not self._handle

    def _poll(self, timeout_ns: int) -> bool:
        handle = self._handle
        if not handle:
            return True
        library = self._group.library
        code = library.work_wait(handle, timeout_ns, _library.error_address())
        if code != _library.OK:
            record = _library.error_record()
            if code == _library.DEADLINE_EXCEEDED and record.reason == b"NOT_ENDED":
                return False
            self._error = _library.error_of(code, record, peer=True)
        self._handle = 0
        self._keep = None
        self._group.forget(self)
        library.work_free(handle)
        return True


class Leveled(NamedTuple):
    """What `Group.level` has done."""

    committed: int  # steps that all ranks have now
    bytes: int  # that each receiver got
    seconds: float
    received: bool  # this rank received
    source: int  # the first rank that sent


class Digest:
    """What ranks compare of their states, for `Group.level`."""

    def __init__(self, memory: Sequence[Span]) -> None:
        """Reads all of the memory: (address, bytes)."""
        self._library = _library.library()
        spans = _spans_of(memory)
        handle = ctypes.c_void_p()
        record = _library.error_record()
        code = self._library.digest_of(spans, len(memory), handle, record)
        _library.check(code, record)
        self.handle = handle.value or 0

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self._library.digest_free(self.handle)


class Group:
    """A fixed set of ranks. Forming it blocks until all of them have come."""

    def __init__(
        self,
        store: KeyValueStore,
        *,
        rank: int,
        world_size: int,
        label: str = "group",
        backend: str = "auto",
        bind_address: str = "",
        key: bytes = b"",
        forming_timeout_s: float = 30.0,
        operation_timeout_s: float = 300.0,
    ) -> None:
        self.library = _library.library()
        self.rank = rank
        self.world_size = world_size
        self.label = label
        self.spoiled = False
        self._pid = os.getpid()
        self._live: dict[int, Work] = {}
        self._running = 0
        self._closing = threading.Condition()
        self._functions = _store_functions(store)
        put, get = self._functions
        options = _library.GroupOptions(
            rank=rank,
            world_size=world_size,
            label=label.encode(),
            backend=backend.encode(),
            bind_address=bind_address.encode() or None,
            key=key or None,
            key_bytes=len(key),
            forming_timeout_ns=int(forming_timeout_s * NANOSECONDS),
            operation_timeout_ns=int(operation_timeout_s * NANOSECONDS),
            store=ctypes.pointer(_library.Store(context=None, put=put, get=get)),
        )
        handle = ctypes.c_void_p()
        record = _library.error_record()
        _library.check(self.library.group_form(options, handle, record), record, peer=True)
        self._handle = handle.value or 0
        _groups.add(self)

    def describe(self) -> str:
        """Says which backend was taken, how it reduces, and why."""
        with _InUse(self) as handle:
            return self.library.group_describe(handle).decode("utf-8", "replace")

    def start(
        self,
        collective: int,
        kind: int = 0,
        inputs: Sequence[Span] = (),
        outputs: Sequence[Span] = (),
        *,
        op: int = 0,
        root: int = 0,
        tag: int = 0,
        input_splits: Sequence[int] | None = None,
        output_splits: Sequence[int] | None = None,
        timeout_s: float = 0.0,
        keep: object = None,
    ) -> Work:
        """Starts an operation. ``keep`` stays alive until it has ended."""
        arguments = (collective, kind, op, root, tag, inputs, outputs)
        with _InUse(self) as handle:
            # The splits' arrays must outlive the call.
            at, _arrays = _fill(arguments, (input_splits, output_splits), timeout_s)
            scratch = _scratch
            code = self.library.group_start(handle, at, scratch.work_at, _library.error_address())
            if code != _library.OK:
                raise _library.error_of(code, _library.error_record(), peer=True)
            work = Work(self, scratch.work.value or 0, keep)
            self._live[id(work)] = work
        if len(self._live) > _SWEEP_AT:
            for one in list(self._live.values()):
                one.ended()
        return work

    def run(
        self,
        collective: int,
        kind: int = 0,
        inputs: Sequence[Span] = (),
        outputs: Sequence[Span] = (),
        *,
        op: int = 0,
        root: int = 0,
        tag: int = 0,
        input_splits: Sequence[int] | None = None,
        output_splits: Sequence[int] | None = None,
        timeout_s: float = 0.0,
    ) -> None:
        """Runs an operation and waits for its end."""
        arguments = (collective, kind, op, root, tag, inputs, outputs)
        with _InUse(self) as handle:
            at, _arrays = _fill(arguments, (input_splits, output_splits), timeout_s)
            code = self.library.group_run(handle, at, _library.error_address())
            if code != _library.OK:
                raise _library.error_of(code, _library.error_record(), peer=True)

    def level(
        self,
        memory: Sequence[Span],
        small: bytes,
        committed: Optional[int],
        digest: Optional[Digest] = None,
    ) -> tuple[Leveled, bytes]:
        """Gives all ranks the state of the most advanced ones; all ranks call it.

        Args:
          memory: (address, bytes) of the state; the same sizes on all ranks.
          small: what belongs to the state besides.
          committed: the steps of this rank's state; None: it has none.
          digest: of ``memory``, which has not changed since. None: it is made here.

        Returns:
          What happened, and the small part of the rank that sent first. After an
          error ``spoiled`` says whether this rank's memory is no state any more.
        """
        self.spoiled = False
        level = _library.Level(
            memory=_spans_of(memory),
            spans=len(memory),
            has_state=committed is not None,
            committed=committed or 0,
            small_part=small or None,
            small_bytes=len(small),
            digest=digest.handle if digest is not None else None,
        )
        leveled = _library.Leveled()
        record = _library.error_record()
        with _InUse(self) as handle:
            code = self.library.group_level(handle, level, leveled, record)
            self.spoiled = code != _library.OK and leveled.received != 0
            _library.check(code, record, peer=True)
            part = ctypes.create_string_buffer(max(1, leveled.small_bytes))
            _library.check(
                self.library.group_small_part(handle, part, leveled.small_bytes, record), record
            )
        return (
            Leveled(
                committed=leveled.committed,
                bytes=leveled.bytes,
                seconds=leveled.time_ns / NANOSECONDS,
                received=leveled.received != 0,
                source=leveled.source,
            ),
            part.raw[: leveled.small_bytes],
        )

    def forget(self, work: Work) -> None:
        """The operation has ended: its work keeps nothing any more."""
        self._live.pop(id(work), None)

    def abort(self, reason: str) -> None:
        """Ends every operation, now and later."""
        with self._closing:
            if self._handle and os.getpid() == self._pid:
                self.library.group_abort(self._handle, reason.encode())

    def close(self, reason: str = "the group was closed") -> None:
        """Aborts what is under way here and frees the group.

        Where nothing is, there is nothing to abort, and the others may still be
        at the end of an operation that has ended here.
        """
        with self._closing:
            handle, self._handle = self._handle, 0
            # A child that forked cannot free what its parent made.
            if not handle or os.getpid() != self._pid:
                return
            ended = [work.ended() for work in list(self._live.values())]
            if self._running or not all(ended):
                self.library.group_abort(handle, reason.encode())
            while self._running:
                self._closing.wait(1.0)
        for work in list(self._live.values()):
            work._wait(-1.0)
        self.library.group_free(handle)

    def enter(self) -> int:
        """The handle, which stays valid until `leave`."""
        with self._closing:
            if not self._handle:
                raise errors.error_for("ABORTED", f"{self.label} was closed; make a new one")
            self._running += 1
            return self._handle

    def leave(self) -> None:
        """The end of what `enter` began."""
        with self._closing:
            self._running -= 1
            if self._running == 0:
                self._closing.notify_all()


def digest_of(memory: Sequence[Span]) -> Optional[Digest]:
    """None where the library is from before there were digests."""
    try:
        return Digest(memory)
    except errors.Error as error:
        if error.code == "UNIMPLEMENTED":
            return None
        raise


def _spans_of(memory: Sequence[Span]) -> Any:
    return (_library.Span * len(memory))(*[_library.Span(*part) for part in memory])


class _InUse:
    """Keeps a group's handle while a call uses it."""

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    def __enter__(self) -> int:
        return self._group.enter()

    def __exit__(self, *_: object) -> None:
        self._group.leave()


def _fill(
    arguments: tuple[int, int, int, int, int, Sequence[Span], Sequence[Span]],
    splits: tuple[Sequence[int] | None, Sequence[int] | None],
    timeout_s: float,
) -> tuple[int, object]:
    """Writes the operation: its address, and what must outlive the call."""
    collective, kind, op, root, tag, inputs, outputs = arguments
    scratch = _scratch
    inputs_at, input_array = _put_spans(inputs, scratch.inputs, scratch.inputs_at)
    outputs_at, output_array = _put_spans(outputs, scratch.outputs, scratch.outputs_at)
    arrays = [input_array, output_array]
    at = [0, 0]
    for index, numbers in enumerate(splits):
        if numbers is not None:
            array = (ctypes.c_uint64 * len(numbers))(*numbers)
            arrays.append(array)
            at[index] = ctypes.addressof(array)
    _OPERATION.pack_into(
        scratch.operation,
        0,
        _OPERATION.size,
        collective,
        kind,
        op,
        root,
        tag,
        0,
        inputs_at,
        len(inputs),
        outputs_at,
        len(outputs),
        at[0],
        at[1],
        int(timeout_s * NANOSECONDS),
        0,
    )
    return scratch.operation_at, arrays


def _store_functions(store: KeyValueStore) -> tuple[Any, Any]:
    """The store's functions for C. They run on threads of the library."""

    def put(_context: int, key: bytes, value: int, count: int) -> int:
        return _code_of(lambda: store.put(key.decode(), ctypes.string_at(value, count)))

    def get(_context: int, key: bytes, timeout_ns: int, into: int, room: int, count: Any) -> int:
        def call() -> None:
            value = store.get(key.decode(), timeout_ns / NANOSECONDS)
            if len(value) > room:
                raise ValueError(f"a value of {len(value)} bytes does not fit {room}")
            ctypes.memmove(into, value, len(value))
            count[0] = len(value)

        return _code_of(call)

    return _library.STORE_PUT(put), _library.STORE_GET(get)


def _code_of(call: Callable[[], None]) -> int:
    # An exception cannot pass through C.
    try:
        call()
    except TimeoutError:
        return _library.DEADLINE_EXCEEDED
    except ValueError:
        return _library.OUT_OF_RANGE
    except Exception:  # noqa: BLE001 - a store of somebody else
        return _library.UNAVAILABLE
    return _library.OK


_groups: weakref.WeakSet[Group] = weakref.WeakSet()


def close_all() -> None:
    """Closes every group of this process.

    The library's threads call the stores, so they must end before Python does.
    """
    for group in list(_groups):
        group.close("the process exits")
