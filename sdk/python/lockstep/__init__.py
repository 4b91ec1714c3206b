"""lockstep for Python programs.

A training program joins its job and reports its steps::

    import lockstep

    session = lockstep.join()
    for batch in batches:
        with session.phase("compute"):
            loss = train(batch)
        session.step(samples=len(batch), loss=loss)

The same program runs anywhere: where lockstep did not start it, it is rank 0
of 1. ``lockstep.Client`` submits and follows jobs; it needs
``pip install lockstep[client]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._session import Phase, Session, Step, join, session
from .errors import (
    AbortedError,
    Error,
    InvalidArgumentError,
    NotFoundError,
    PeerLostError,
    TimeoutError,
)
from .version import __version__

if TYPE_CHECKING:
    from .client import Client as Client

__all__ = [
    "AbortedError",
    "Client",
    "Error",
    "InvalidArgumentError",
    "NotFoundError",
    "PeerLostError",
    "Phase",
    "Session",
    "Step",
    "TimeoutError",
    "__version__",
    "join",
    "session",
]


def __getattr__(name: str) -> Any:
    # gRPC is imported by programs that use the client, not by every rank.
    if name == "Client":
        try:
            from .client import Client
        except ModuleNotFoundError as error:
            raise Error(
                f"lockstep.Client needs the package of {error.name}: pip install"
                " 'lockstep[client]', or the wheel's path with [client]",
                code="FAILED_PRECONDITION",
            ) from error

        return Client
    raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
