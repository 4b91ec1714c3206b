"""A cluster of this machine, and jobs on it."""
import os
import subprocess
import tempfile

from .report import BenchError, NotMeasured

LIMIT = 180  # seconds that a command may take


class LocalCluster:
    """`lockstep local`, for all rounds. Jobs are named; the caller ends them."""

    def __init__(self, programs, workers, cpus):
        self.workers, self.cpus = workers, cpus
        self.program = programs.dir.parent / "bin" / "lockstep"
        if not os.access(self.program, os.X_OK):
            raise NotMeasured(f"there is no {self.program}")

    def call(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True,
                              timeout=LIMIT, env={
                                  **os.environ, "LOCKSTEP_CONFIG": self.config})
        if done.returncode:
            raise BenchError(f"lockstep {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def open(self):
        # On a disk; the path is short, as those of sockets below it must be.
        self.home = tempfile.TemporaryDirectory(prefix="lsb-", dir="/var/tmp")
        self.config = self.home.name + "/config.yaml"
        self.directory = self.home.name + "/cluster"
        self.call("local", "up", "--workers", str(self.workers), "--cpus",
                  str(self.cpus), "--dir", self.directory, "--timeout", "60")

    def close(self):
        if os.path.exists(self.directory):
            self.call("local", "down", "--clean", "--yes", "--dir", self.directory)
        self.home.cleanup()

    def submit(self, job, ranks, command, *options):
        """`command`: "env" and variables, in the midst of which there may be another
        "env", and a program."""
        words = [word for word in command if word != "env"]
        first = next(i for i, word in enumerate(words) if "=" not in word)
        variables = [part for word in words[:first] for part in ("--env", word)]
        self.call("submit", "--detach", "--name", job, "--tasks", str(ranks),
                  "--max-restarts", "1000", *variables, *options, "--", *words[first:])

    def cancel(self, job):
        self.call("jobs", "cancel", job, "--wait")

    def describe(self, job):
        return self.call("jobs", "describe", job)
