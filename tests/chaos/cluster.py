"""A coordinator and three worker daemons, and the `lockstep` command as their user."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from typing import Any, Optional

from hosts import CENTER, NAMES, Hosts
from waiting import wait_for

# A call of `lockstep`, which itself gives up sooner where nobody answers.
CALL_S = 60
# Of each host: the ranks of all jobs fit on two of them.
CPUS = "16"
COORDINATOR = "coordinator"


class CommandError(Exception):
    """`lockstep` failed. `code` is its exit code; None: it did not end."""

    def __init__(self, words: tuple[str, ...], code: Optional[int], text: str) -> None:
        super().__init__(f"lockstep {' '.join(words)}: exit code {code}: {text.strip()[-400:]}")
        self.code = code


class Daemon:
    """A daemon that may be killed and started again. Its log is appended to."""

    def __init__(self, host: str, argv: list[str], directory: pathlib.Path, log: pathlib.Path):
        self.host = host
        self._argv = argv
        self._directory = directory
        self.log = log
        self._process: Optional[subprocess.Popen[bytes]] = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *more: str) -> None:
        # What its ranks inherit is not for them.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._argv, *more],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, how: int, seconds: float = 20) -> Optional[int]:
        """Its exit code once it has ended; None: it had ended by itself before."""
        if self._process is None or not self.runs():
            return None
        self._process.send_signal(how)
        return self._process.wait(timeout=seconds)


class Cluster:
    """All calls of `lockstep` are safe from any thread; the rest is not."""

    def __init__(self, root: pathlib.Path, binaries: pathlib.Path, hosts: Hosts) -> None:
        self.root = root
        self.hosts = hosts
        self._lockstep = str(binaries / "lockstep")
        self._environment = dict(os.environ, HOME=str(root), NO_COLOR="1")
        for name in ("XDG_CONFIG_HOME", "LOCKSTEP_CONFIG", "LOCKSTEP_CONTEXT"):
            self._environment.pop(name, None)
        pki = root / ".config" / "lockstep" / "pki"
        self.call("init", "--cluster", "chaos")
        self.call("cert", "issue", "user", "alice", "--role", "admin")
        user = pki / "user-alice"
        self._environment.update(
            LOCKSTEP_CA=str(user / "ca.crt"),
            LOCKSTEP_CERT=str(user / "tls.crt"),
            LOCKSTEP_KEY=str(user / "tls.key"),
        )
        self._store = root / COORDINATOR
        self.daemons = {
            COORDINATOR: self._daemon(
                CENTER,
                [str(binaries / "lockstep-coordinator")],
                pki / COORDINATOR,
                ["--cluster", "chaos", "--http-listen", "127.0.0.1:0"],
            )  # fmt: skip
        }
        self.address = ""
        for host in NAMES:
            self.call("cert", "issue", "worker", host)
            self.daemons[host] = self._daemon(
                host, [str(binaries / "lockstep-worker")], pki / f"worker-{host}",
                ["--http-address", "127.0.0.1:0", "--cpus", CPUS, "--container-engine", "none"],
            )  # fmt: skip

    def _daemon(self, host: str, argv: list[str], key: pathlib.Path, options: list[str]) -> Daemon:
        name = COORDINATOR if host == CENTER else host
        files = ["--ca", "ca.crt", "--cert", "tls.crt", "--key", "tls.key"]
        argv = [*argv, "--dir", str(self.root / name), *files, *options]
        return Daemon(host, self.hosts.on(host, argv), key, self.root / f"{name}.log")

    def start(self) -> None:
        """All daemons; returns when the nodes are READY."""
        self.start_daemon(COORDINATOR)
        for host in NAMES:
            self.start_daemon(host)
        self.wait_ready(60)

    def start_daemon(self, name: str) -> None:
        if name != COORDINATOR:
            self.daemons[name].start("--coordinator", self.address)
            return
        listen = self.address or self.hosts.address(CENTER) + ":0"
        self.daemons[name].start("--listen", listen)
        if not self.address:
            endpoint = self._store / "endpoint.json"
            wait_for("the coordinator listens", 30, endpoint.exists)
            self.address = json.loads(endpoint.read_text())["grpc"]
            self._environment["LOCKSTEP_ADDRESS"] = self.address

    def wait_ready(self, seconds: float) -> None:
        def ready() -> bool:
            nodes = self.try_nodes()
            return len(nodes) == len(NAMES) and all(
                node["state"] == "NODE_STATE_READY" for node in nodes
            )

        wait_for("all nodes READY", seconds, ready)

    def wait_reached(self, seconds: float) -> None:
        """The coordinator answers."""
        wait_for("the coordinator answers", seconds, self.try_nodes)

    def stop(self) -> list[str]:
        """Ends the daemons; returns what did not end as it should."""
        problems = []
        for name in (*NAMES, COORDINATOR):
            daemon = self.daemons[name]
            try:
                code = daemon.end(signal.SIGTERM)
            except subprocess.TimeoutExpired:
                daemon.end(signal.SIGKILL)
                problems.append(f"{name} did not end after SIGTERM")
                continue
            if code not in (None, 0):
                problems.append(f"{name} ended with {code} after SIGTERM")
        return problems

    # ---- `lockstep`.

    def call(self, *words: str, seconds: float = CALL_S) -> str:
        """What it printed; raises CommandError."""
        try:
            done = subprocess.run(
                [self._lockstep, *words],
                env=self._environment,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(words, None, f"no answer within {seconds} s") from None
        if done.returncode != 0:
            raise CommandError(words, done.returncode, done.stderr)
        return done.stdout

    def try_call(self, *words: str) -> str:
        """What it printed, or why it failed."""
        try:
            return self.call(*words)
        except CommandError as error:
            return str(error)

    def job(self, name: str) -> dict[str, Any]:
        """The API's message, as JSON."""
        described: dict[str, Any] = json.loads(self.call("jobs", "describe", name, "-o", "json"))
        return dict(described["lockstep"])

    def try_job(self, name: str) -> dict[str, Any]:
        """Empty while the coordinator is away."""
        try:
            return self.job(name)
        except CommandError:
            return {}

    def jobs(self) -> list[dict[str, Any]]:
        listed = json.loads(self.call("jobs", "list", "-o", "json"))
        jobs = listed["jobs"] if isinstance(listed, dict) else listed
        return [job["lockstep"] for job in jobs]

    def nodes(self) -> list[dict[str, Any]]:
        return list(json.loads(self.call("nodes", "list", "-o", "json")).get("nodes", []))

    def try_nodes(self) -> list[dict[str, Any]]:
        try:
            return self.nodes()
        except CommandError:
            return []
