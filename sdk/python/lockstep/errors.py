"""The exceptions of lockstep.

Every error has a code of ``google.rpc.Code`` ("NOT_FOUND"), a reason for
programs ("NO_CAPACITY"; empty where there is none) and one sentence for people.
"""

from __future__ import annotations

import builtins

_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


class Error(Exception):
    """An error of lockstep.

    Attributes:
      code: the canonical name, such as "FAILED_PRECONDITION".
      reason: a reason for programs, such as "PEER_LOST", or "".
      message: one sentence: what failed, where, and what would work.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_make, (type(self), self.message, self.code, self.reason))


class NotFoundError(Error):
    """The job, node, file or context does not exist."""


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; nothing was done."""


class PeerLostError(Error, ConnectionError):
    """A rank of the group is gone; the message names it."""


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 - it is also that one
    """The deadline passed; the message says what was waited for."""


class AbortedError(Error):
    """The generation has ended, or the group was aborted."""


def _make(kind: type[Error], message: str, code: str, reason: str) -> Error:
    return kind(message, code=code, reason=reason)


_KINDS: dict[str, type[Error]] = {
    "NOT_FOUND": NotFoundError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": TimeoutError,
    "UNAVAILABLE": PeerLostError,
    "ABORTED": AbortedError,
}


def code_name(code: int) -> str:
    """Returns the canonical name of a number of ``google.rpc.Code``."""
    return _CODES[code] if 0 <= code < len(_CODES) else "UNKNOWN"


def error_for(code: str, message: str, reason: str = "", *, peer: bool = False) -> Error:
    """Makes the exception for ``code``.

    ``peer``: UNAVAILABLE is about a rank of a group, not about the coordinator.
    """
    kind = _KINDS.get(code, Error)
    if kind is PeerLostError and not peer:
        kind = Error
    return kind(message, code=code, reason=reason)
