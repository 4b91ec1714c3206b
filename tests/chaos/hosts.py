"""The hosts: network namespaces that a bridge joins, or this machine alone."""

from __future__ import annotations

import os
import subprocess

CENTER = "center"
NAMES = ("host-a", "host-b", "host-c")


def _do(*words: str) -> None:
    subprocess.run(words, check=True, timeout=30)


class Hosts:
    """Where programs run, and which packets arrive.

    The coordinator, its users and this program are on the host `center`. With
    `apart` they are in the network namespace of this process, which must be one of
    its own (tests/chaos/run makes it); every other host has another. Not
    thread-safe: the faults alone cut.
    """

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self._address = {CENTER: "127.0.0.1"}
        # (from, to): packets that do not arrive.
        self._cut: set[tuple[str, str]] = set()
        if apart:
            self._make()

    def address(self, host: str) -> str:
        return self._address.get(host, "127.0.0.1")

    def on(self, host: str, argv: list[str]) -> list[str]:
        """The command that runs `argv` on the host. Its pid is that of `argv`."""
        if not self.apart or host == CENTER:
            return argv
        return ["ip", "netns", "exec", host, *argv]

    def cut(self, host: str, way: str) -> None:
        """`way`: "in" (the host hears nobody), "out" (nobody hears it) or "both"."""
        for other in (CENTER, *NAMES):
            if other == host:
                continue
            if way in ("in", "both"):
                self._drop(other, host)
            if way in ("out", "both"):
                self._drop(host, other)

    def mend(self) -> None:
        """All packets arrive again."""
        for sender, receiver in sorted(self._cut):
            self._rule("-D", sender, receiver)
        self._cut.clear()

    def _drop(self, sender: str, receiver: str) -> None:
        if (sender, receiver) not in self._cut:
            self._cut.add((sender, receiver))
            self._rule("-A", sender, receiver)

    def _rule(self, change: str, sender: str, receiver: str) -> None:
        rule = [
            "iptables", "-w", change, "INPUT", "-s", self._address[sender], "-j", "DROP",
        ]  # fmt: skip
        _do(*self.on(receiver, rule))

    def _make(self) -> None:
        os.makedirs("/run/netns", exist_ok=True)
        # Of this mount namespace: names of other runs are not seen, nor ours by them.
        _do("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
        _do("ip", "link", "set", "lo", "up")
        _do("ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _do("ip", "address", "add", "192.0.2.1/24", "dev", "bridge")
        _do("ip", "link", "set", "bridge", "up")
        self._address[CENTER] = "192.0.2.1"
        for number, host in enumerate(NAMES, start=2):
            self._address[host] = f"192.0.2.{number}"
            inside = ("ip", "-n", host)
            _do("ip", "netns", "add", host)
            _do(*inside, "link", "set", "lo", "up")
            _do(
                "ip", "link", "add", "data", "netns", host, "type", "veth", "peer", "name", host
            )  # fmt: skip
            _do("ip", "link", "set", host, "master", "bridge", "up")
            _do(*inside, "address", "add", self._address[host] + "/24", "dev", "data")
            _do(*inside, "link", "set", "data", "up")
