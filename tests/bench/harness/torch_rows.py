"""P1 to P6 and J1: PyTorch and JAX over lockstep, by turns with Gloo.

Both sides are PyPI's torch in LOCKSTEP_FRAMEWORKS/torch, or its jax in
LOCKSTEP_FRAMEWORKS/tensorflow: two ranks pinned to two cores, one thread each, the
same program with another word for the collectives. A round of one side follows a
round of the other, as in steps.py.

  P1  a DDP step of two layers: 25.6 M parameters, little to compute
  P2  a DDP step of the TensorFlow tutorial's network, M1's
  P3  dist.all_reduce, from 1 KiB to 100 MiB
  P4  a step of FSDP2, 8 layers of 4 M parameters
  P5  dist.all_reduce over TCP, between two network namespaces
  P6  session.step(), beside the 5 us that it may take
  J1  psum of JAX, 25 MiB
"""
import os
import subprocess

from . import machine, rows, steps
from .allreduce import Hosts
from .report import NotMeasured, Result, print_results

PACKAGE = "python"  # of the build
MIB = 1 << 20
# Operations of a sample.
COUNTS = {1024: 400, MIB: 40, 25 * MIB: 3, 100 * MIB: 1}
P6_CODE = """
import lockstep, time
session = lockstep.join()
for _ in range(16):
    start = time.perf_counter()
    for _ in range(20000):
        session.step(samples=32, loss=0.5)
    print((time.perf_counter() - start) / 20000)
"""


def python_of(programs, environment="torch"):
    python = steps.framework_python(environment)
    package = programs.dir.parent / PACKAGE
    if not os.path.exists(python):
        raise NotMeasured(f"there is no {python}: run tests/frameworks/setup DIR and "
                          "set LOCKSTEP_FRAMEWORKS=DIR")
    if not (package / "lockstep" / "lib").exists():
        raise NotMeasured(f"there is no {package}; ninja lockstep_python makes it")
    return ["env", f"PYTHONPATH={package}", python]


def ddp(programs, model, backend, *more):
    def command(rank, directory):
        return steps.tuned([
            *python_of(programs), str(machine.PEERS / "ddp.py"), "--backend", backend,
            *steps.common(rank, directory, model), "--mode", "best", *more])
    return command


def plain(programs, work, backend):
    def command(rank, directory):
        words = steps.common(rank, directory, "none")
        return steps.tuned([
            *python_of(programs), str(machine.PEERS / "torch_rank.py"), "--work", work,
            "--backend", backend, *words[:words.index("--model")]])
    return command


def psum(programs, size, collectives):
    def command(rank, directory):
        words = steps.common(rank, directory, "none")
        return steps.tuned([
            *python_of(programs, "tensorflow"), str(machine.PEERS / "jax_rank.py"),
            "--bytes", str(size), "--collectives", collectives,
            *words[:words.index("--model")]])
    return command


def pair(id, make, turns, options, rounds=11, size=0, hosts=None,
         peer="torch's Gloo", **tolerance):
    """The results of one row: a list of one."""
    def placed(command):
        if hosts is None:
            return command
        return lambda rank, directory: hosts.command(rank, command(rank, directory))

    sides = [steps.Side(name, placed(make(backend)))
             for name, backend in (("lockstep", "lockstep"), (peer, "gloo"))]
    run = steps.Rounds(sides, rounds, turns, options, tolerance)
    if not run.samples[1]:
        raise NotMeasured("there is no peer")
    result = run.result(id, sides[1].name, run.column(run.samples[0]),
                        run.column(run.samples[1]), 1)
    result.bytes = size
    result.must, result.aim = rows.TORCH[id][size]
    return run.versions, [result]


def sizes(id, programs, options, hosts=None):
    results, versions = [], {}
    for size in rows.TORCH[id]:
        if options.bytes not in (0, size) or size > options.most_bytes:
            continue
        more, taken = pair(
            id, lambda backend, size=size: plain(programs, f"allreduce:{size}", backend),
            steps.Turns(samples=4, steps=COUNTS[size]), options, size=size, hosts=hosts)
        versions.update(more)
        results += taken
    return versions, results


def step_cost(programs):
    done = subprocess.run([*python_of(programs), "-c", P6_CODE], capture_output=True,
                          text=True, timeout=120, check=True)
    costs = [[float(line)] for line in done.stdout.split()]
    must, aim = rows.TORCH["P6"][0]
    return {}, [Result("P6", "5 us", costs, [[5e-6]] * len(costs), ranks=1,
                       must=must, aim=aim)]


def run(id, programs, options):
    """(results, versions)."""
    if id == "P1":
        versions, results = pair(id, lambda backend: ddp(programs, "wide", backend),
                                 steps.Turns(samples=2, steps=4), options)
    elif id == "P2":
        versions, results = pair(id, lambda backend: ddp(programs, "shallow", backend),
                                 steps.Turns(steps=30), options)
    elif id == "P3":
        versions, results = sizes(id, programs, options)
    elif id == "P4":
        versions, results = pair(id, lambda backend: plain(programs, "fsdp", backend),
                                 steps.Turns(samples=2, steps=2), options)
    elif id == "P5":
        with Hosts(steps.RANKS, 40) as hosts:
            versions, results = sizes(id, programs, options, hosts)
    elif id == "J1":
        size = 25 * MIB
        versions, results = pair(
            id, lambda collectives: psum(programs, size, collectives),
            steps.Turns(samples=4, steps=COUNTS[size]), options, size=size,
            peer="JAX's Gloo")
    else:
        versions, results = step_cost(programs)
    print_results(results)
    return results, versions
