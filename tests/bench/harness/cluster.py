"""The control plane's benchmarks, and I1: `cluster_rows ID` starts the daemons,
takes the rounds and writes the samples of each comparison as a line of JSON."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile

from . import machine, rows
from .report import BenchError, NotMeasured, Result, print_results


def run(id, programs, options):
    """(results, versions)."""
    command = [programs.path("cluster_rows"), id]
    if options.rounds:
        command += ["--rounds", str(options.rounds)]
    if options.only:
        command += ["--only", options.only]
    # On a disk; the path is short, as those of sockets below it must be.
    with tempfile.TemporaryDirectory(prefix="lsb-", dir="/var/tmp") as directory:
        results, versions, code = follow(command, directory, programs)
    for result in results:
        result.must, result.aim = rows.MUSTS.get(result.id, (0, 0))
    if results:
        print_results(results)
    if code == NotMeasured.code:
        raise NotMeasured("see above")
    if code:
        raise BenchError(f"cluster_rows ended with {code}")
    return results, versions


def follow(command, directory, programs):
    """(results, versions, exit code) of one run with its files in `directory`."""
    results, versions = [], {}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env=dict(os.environ, LOCKSTEP_BENCH_DIR=directory))
    try:
        for line in process.stdout:
            kind, _, text = line.partition(" ")
            if kind == "RESULT":
                results.append(Result(**json.loads(text)))
            elif kind == "VERSION":
                name, _, version = text.strip().partition(" ")
                versions[name] = version
            else:
                print(line, end="")
        return results, versions, process.wait()
    finally:
        end(process, directory, programs)


def end(process, directory, programs):
    """Ends what a run leaves that did not end by itself: its group, and the
    daemons, which are in sessions of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()
    for cluster in pathlib.Path(directory).glob("*/cluster"):
        subprocess.run([programs.dir.parent / "bin" / "lockstep", "local", "down",
                        "--dir", cluster], stdout=subprocess.DEVNULL)
    for conf in pathlib.Path(directory).glob("*/slurm.conf"):
        subprocess.run([machine.PEERS / "slurm", "stop", conf.parent])
