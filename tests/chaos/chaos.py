"""The chaos test: see README.md, and tests/chaos/run."""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Optional

import checks
import faults
import jobs
import processes
from cluster import Cluster
from commands import User
from hosts import NAMES, Hosts
from jobs import NATIVE, REFERENCE, REPLICA, Jobs, Plan
from results import Results
from waiting import LateError, now, say, story, wait_for

# Seconds, on a loaded machine: only failures wait so long.
BEGIN_S = 400
END_S = 240
# After all is healed a job makes steps again: a wait of 60 s, and a start.
RESUME_S = 100
LOG_TAIL = 6000


class Run:
    """One run, in a directory of its own."""

    def __init__(self, seconds: int, seed: int, root: pathlib.Path) -> None:
        self._seconds = seconds
        self._seed = seed
        self._plan = Plan.of(seconds)
        apart = os.environ.get("LOCKSTEP_CHAOS_HOSTS") == "1"
        binaries = pathlib.Path(os.environ["LOCKSTEP_BIN"])
        self.cluster = Cluster(root, binaries, Hosts(apart))
        self._jobs = Jobs(self.cluster, binaries, self._plan, disk=apart)
        self._faults = faults.draw(seed, seconds, apart)
        self._injector = faults.Injector(
            self.cluster, self._jobs.output(NATIVE), kills_each=2 + seconds // 150
        )
        self._user = User(
            self.cluster, seed + 1, self._plan.steps, lambda: self._injector.disk_is_full
        )

    def go(self) -> list[str]:
        """What is not as it must be."""
        self.cluster.start()
        say("all nodes are READY")
        self._begin_jobs()
        say(f"{len(self._faults)} faults begin")
        self._user.start()
        try:
            self._injector.run(self._faults)
        finally:
            self._user.stop()
            self._injector.heal()
        say("the faults are over")
        self.cluster.wait_reached(60)
        self._user.tidy()
        problems = self._wait_resumed() + self._wait_ended()
        problems += Results(self.cluster, self._jobs, self._plan, self._user).problems()
        problems += self._user.problems + self._injector.problems + self._left()
        for name, daemon in self.cluster.daemons.items():
            problems += checks.check_log(name, daemon.log.read_text(errors="replace"))
        return problems

    def _begin_jobs(self) -> None:
        """The undisturbed jobs have ended, and the four run."""
        self._jobs.submit_references()
        for name in (REFERENCE + NATIVE, REFERENCE + REPLICA):
            job = wait_for(f"{name} ends", BEGIN_S, lambda: self._ended(name))
            if checks.check_job(job):
                raise LateError("; ".join(checks.check_job(job)))
            say(f"{name} has ended")
        self._jobs.submit()
        for name in jobs.NAMES:
            wait_for(f"{name} runs", BEGIN_S, lambda: self._makes_steps(name))

    def _makes_steps(self, name: str) -> bool:
        job = self.cluster.try_job(name)
        running = job.get("state") == "JOB_STATE_RUNNING"
        return running and (self._step(job) > 0 or name not in jobs.RECOVERING)

    def _wait_resumed(self) -> list[str]:
        """The jobs that report steps make some, or have ended."""
        problems = []
        begin = now()
        for name in jobs.RECOVERING:
            last = (0, 0)

            def goes_on() -> bool:
                nonlocal last
                job = self.cluster.try_job(name)
                before, last = last, (int(job.get("generation", 0)), self._step(job))
                more = last[0] == before[0] and last[1] > before[1] > 0
                return more or job.get("state") in checks.FINAL

            try:
                wait_for(f"{name} goes on", begin + RESUME_S - now(), goes_on)
                say(f"{name} goes on")
            except LateError:
                problems.append(f"{name} made no step for {RESUME_S} s after all was healed")
                # What it waits for is gone once it has ended.
                say(self.cluster.try_call("jobs", "describe", name))
                say(self.cluster.try_call("jobs", "why", name))
        return problems

    @staticmethod
    def _step(job: dict[str, Any]) -> int:
        return int(job.get("progress", {}).get("chief", {}).get("committedStep", 0))

    def _wait_ended(self) -> list[str]:
        """All jobs, those of the user too."""
        problems = []
        deadline = now() + END_S + self._seconds / 4
        for name in [job["name"] for job in self.cluster.jobs()]:
            try:
                job = wait_for(
                    f"{name} ends", max(1.0, deadline - now()), lambda: self._ended(name)
                )
            except LateError as error:
                problems += [str(error), *checks.check_job(self.cluster.try_job(name))]
                continue
            if name in jobs.NAMES:
                say(f"{name}: {_summary(job)}")
        self._user.look()
        return problems

    def _ended(self, name: str) -> Optional[dict[str, Any]]:
        self._user.look()
        job = self.cluster.try_job(name)
        return job if job.get("state") in checks.FINAL else None

    def _left(self) -> list[str]:
        """Processes and holds."""
        daemons = {daemon.pid for daemon in self.cluster.daemons.values()}
        found: list[str] = []

        def nothing() -> bool:
            found[:] = [
                *(f"left over: {text}" for text in processes.left(self.cluster.root, daemons)),
                *checks.check_nodes(self.cluster.try_nodes(), NAMES),
            ]
            return not found

        try:
            wait_for("nothing is left", 30, nothing)
        except LateError:
            pass
        return found

    def tell(self) -> None:
        """For a failure: what happened, and what the daemons said."""
        print(f"\n==== the run, seed {self._seed}\n{story()}")
        for name in (*jobs.NAMES, REFERENCE + NATIVE, REFERENCE + REPLICA):
            job = self.cluster.try_job(name)
            print(f"\n==== events of {name}: {_summary(job)}")
            for event in job.get("events", []):
                print(event["time"], event["reason"], event["message"])
        for daemon in self.cluster.daemons.values():
            text = daemon.log.read_text(errors="replace") if daemon.log.exists() else ""
            print(f"\n==== the end of {daemon.log}\n{text[-LOG_TAIL:]}")


def _summary(job: dict[str, Any]) -> str:
    return (
        f"{job.get('state', 'unknown')} in generation {job.get('generation')} after "
        f"{job.get('recoveries')} recoveries"
    )


def play(run: Run) -> list[str]:
    """What is not as it must be, which is told."""
    try:
        problems = run.go()
    except Exception:
        problems = ["the run broke off: " + traceback.format_exc()]
    if problems:
        run.tell()
    return problems + run.cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/chaos/run")
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if options.seconds < 20:
        parser.error("faults of each kind need 20 s")
    root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-chaos-"))
    say(f"seed {options.seed}, {options.seconds} s, in {root}")
    # Also where ctest or a person ends it: no process stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        problems = play(Run(options.seconds, options.seed, root))
    finally:
        processes.kill(root)
        if not options.keep:
            # The small disk, where there is one.
            subprocess.run(["umount", "--lazy", root / f"out-{NATIVE}"], capture_output=True)
            shutil.rmtree(root, ignore_errors=True)
    for problem in problems:
        print("PROBLEM", problem)
    if options.keep:
        print("kept:", root)
    if problems:
        print(f"FAILED: tests/chaos/run {options.seconds} --seed {options.seed}")
        return 1
    print(f"passed after {now():.0f} s, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
