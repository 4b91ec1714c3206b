"""How ranks find each other: torch's store, and this host's address."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from typing import Any

_PREFIX = "lockstep/"
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_SIOCGIFADDR = 0x8915


class TorchStore:
    """A store of torch.distributed for the library's threads.

    It asks for a key again and again instead of waiting in the store: a client
    of TCPStore serves one call at a time, so a wait would hold up the `put` that
    the other ranks wait for.
    """

    def __init__(self, store: Any) -> None:
        # A connection of its own, where this torch can make one: the caller's
        # may be waiting in a barrier.
        clone = getattr(store, "clone", None)
        try:
            self._store = clone() if clone is not None else store
        except (RuntimeError, NotImplementedError):
            self._store = store

    def put(self, key: str, value: bytes) -> None:
        """Writes a key."""
        self._store.set(_PREFIX + key, value)

    def get(self, key: str, timeout_s: float) -> bytes:
        """Waits for a key and returns its value, or raises TimeoutError."""
        name = _PREFIX + key
        until = time.monotonic() + max(0.0, timeout_s)
        pause = _FIRST_PAUSE_S
        while not self._store.check([name]):
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no rank wrote {key} within {timeout_s} s")
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        value: bytes = self._store.get(name)
        return value

    def forget(self, key: str) -> None:
        """Removes a key, where this kind of store can."""
        try:
            self._store.delete_key(_PREFIX + key)
        except (RuntimeError, NotImplementedError):
            pass  # It stays: a few bytes.


def bind_address() -> str:
    """Returns the address of this host that the other ranks reach.

    The interface that GLOO_SOCKET_IFNAME names, else the one that routes to
    MASTER_ADDR. "" where all ranks are on this host.
    """
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].strip()
    if interface:
        return _address_of(interface)
    world = os.environ.get("WORLD_SIZE", "")
    if world and world == os.environ.get("LOCAL_WORLD_SIZE", ""):
        return ""
    master = os.environ.get("MASTER_ADDR", "")
    if not master:
        return ""
    address = _route_to(master)
    if not address.startswith("127."):
        return address
    # The master's own host may call itself 127.0.1.1; others cannot reach that.
    if os.environ.get("LOCAL_WORLD_SIZE", ""):
        return _route_to("192.0.2.1")
    return ""


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            answer = fcntl.ioctl(one, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise ValueError(
                f"lockstep: GLOO_SOCKET_IFNAME names the interface {interface!r}, "
                f"which has no IPv4 address here: {error.strerror}"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def _route_to(host: str) -> str:
    # Connecting a datagram socket sends nothing: the kernel picks the address.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((host, 9))
        except OSError:
            return ""
        return str(one.getsockname()[0])
