"""S1, S2, S3 and M1: whole training steps, by turns with peers.

All sides of a benchmark are started once, two ranks each, pinned to two cores,
and wait at their standard input (a wait that takes no time). In a round one side
after the other takes its samples; which one begins changes from round to round.
A sample is the time of K steps, from the first rank's start to the last rank's
end, divided by K. Where a step is compared with the same step without its
communication, the same processes take both by turns ("word": one 4-byte
all-reduce instead). Their difference is often smaller than what two processes
differ in. The first round is dropped.

In the end one step's reduced gradients are compared with float64's, on both
ranks. Peers began with our weights and batches and ran as many steps: their
ranks must have ended with equal parameters, and with our losses.

  S1  the residual network over shm, 4 samples a rank, step by step beside its
      own step with one 4-byte all-reduce; the median of samples' ratios
  S2  ResNet-50 on 64x64: torch DDP at its best; and what communication costs:
      DDP's step less its step without, over ours
  S3  the residual network, 16 samples a rank: over TCP between two network
      namespaces at 2 Gbit/s, exposed over busy; over shm, exposed over the step
  M1  the shallow model: torch DDP as it comes and at its best, TensorFlow's
      MultiWorkerMirroredStrategy

A peer that is not installed is left out with a sentence. DDP is Debian's
python3-torch (the same LibTorch and BLAS as ours); LOCKSTEP_BENCH_PYTHON_TORCH
names another Python. TensorFlow's Python is
LOCKSTEP_FRAMEWORKS/tensorflow/bin/python. "As it comes" is with one thread of
OpenMP, as torchrun sets it, and for TensorFlow with nothing set; at its best a
peer is pinned as ours and gets the same settings of malloc and OpenBLAS.
"""
import collections
import ctypes
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

from . import machine, rows
from .allreduce import Hosts
from .report import BenchError, NotMeasured, Result, median, pool, print_results

RANKS = 2
START_LIMIT, ROUND_LIMIT, END_LIMIT = 90, 60, 60  # seconds
SEEDS = {"weights": "1", "batch": "rank + 1"}
BEST_DDP = "bucket view, static graph, pinned, our settings of malloc and OpenBLAS"
PYPI_DDP = "PyPI's torch DDP, gloo"
WORD = "our own step with one 4-byte all-reduce instead, in this run"

# Seconds: of a step; of communication in it, the slower rank's; exposed.
Sample = collections.namedtuple("Sample", "seconds busy exposed")
# What a rank says at its end: of its parameters; a sample's loss before the last
# step; of reduced gradients against float64 (ours only).
End = collections.namedtuple("End", "hash loss error", defaults=(0.0,))
# What a side does in a round: `samples`, each the mean of `turns` times `steps`
# steps, and, where asked for, as many of the other kind before or after them.
# `settles`: before the steps of a kind one of it untimed, which finds memory and
# caches as others left them.
Turns = collections.namedtuple("Turns", "samples turns steps settles",
                               defaults=(1, 1, 1, True))


class Side:
    """Two ranks of one contender: programs that answer lines with lines.
    `command(rank, directory)`: a rank's. `word`: takes both kinds of steps."""

    def __init__(self, name, command, word=False):
        self.name, self.command, self.word = name, command, word
        self.ranks, self.text, self.versions = [], [b"", b""], {}

    def start(self, directory):
        """Once both have run their first steps."""
        self.directory = pathlib.Path(directory)
        try:
            for rank in range(RANKS):
                with open(self.directory / f"log-{rank}", "ab") as log:
                    self.ranks.append(subprocess.Popen(
                        self.command(rank, str(directory)), stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=log))
        except OSError as error:
            raise NotMeasured(f"{self.name}: {error}") from None
        for rank in range(RANKS):
            line = self.hear(rank, START_LIMIT)
            if not line.startswith("ready"):
                raise self.broken(rank, line)
            self.versions.update(
                field.split("=", 1) for field in line.split("\t") if "=" in field)

    def say(self, line):
        for process in self.ranks:
            try:
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
            except OSError:
                pass  # hear() says so

    def hear(self, rank, limit):
        deadline = time.monotonic() + limit
        stdout = self.ranks[rank].stdout.fileno()
        while b"\n" not in self.text[rank]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise self.broken(rank, "no answer in time")
            block = os.read(stdout, 4096)
            if not block:
                raise self.broken(rank, "it has ended")
            self.text[rank] += block
        line, _, self.text[rank] = self.text[rank].partition(b"\n")
        return line.decode()

    def broken(self, rank, why):
        log = machine.read(self.directory / f"log-{rank}")[-600:]
        return BenchError(f"{self.name}, rank {rank}: {why}: {log}")

    def run(self, steps, word=False):
        self.say(f"{steps}{' word' if word else ''}")
        lines = [[float(x) for x in self.hear(rank, ROUND_LIMIT).split()] + [0, 0]
                 for rank in range(RANKS)]
        return Sample((max(line[1] for line in lines) -
                       min(line[0] for line in lines)) * 1e-9 / steps,
                      max(line[2] for line in lines) / steps,
                      max(line[3] for line in lines) / steps)

    def run_round(self, turns, number):
        """(samples of whole steps, samples with a word taken by turns with
        them). Which kind begins changes from turn to turn, and with `number`."""
        taken = [], []
        for i in range(turns.samples):
            means = [], []
            for run in range(2 * turns.turns):
                # Gradients, word, word, gradients, ...
                word = ((run + 1) // 2 + i + number) % 2 == 1
                if word and not self.word:
                    continue
                if turns.settles:
                    self.run(1, word)
                means[word].append(self.run(turns.steps, word))
            for kind, samples in zip(taken, means):
                if samples:
                    kind.append(Sample(*(sum(x) / len(x) for x in zip(*samples))))
        return taken

    def end(self):
        for process in self.ranks:
            process.stdin.close()
        ends = []
        for rank in range(RANKS):
            line = self.hear(rank, END_LIMIT)
            word, *fields = line.split()
            if word != "end" or len(fields) < 2:
                raise self.broken(rank, line)
            ends.append(End(fields[0], *map(float, fields[1:3])))
        return ends

    def stop(self):
        for process in self.ranks:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            try:
                process.stdin.close()
            except OSError:
                pass  # what was said last did not arrive
        self.ranks = []


def check_ours(ends, tolerance=5e-3):
    """(good, in words): both ranks have the same parameters, and their reduced
    gradients are float64's. A well-conditioned network comes to 1e-5; gradients
    that were not reduced are off by 0.5 and more."""
    equal = bool(ends) and ends[0].hash == ends[-1].hash
    near = all(end.error <= tolerance for end in ends)  # NaN is not
    worst = max((end.error for end in ends), default=0)
    return equal and near, (
        f"ours: ranks {'equal' if equal else 'DIFFER'}, gradients within {worst:.1e} "
        f"of float64's{'' if near else ': TOO FAR'}")


def check_peer(ends, ours, tolerance=1e-3):
    """The same of a peer, which began with our weights and batches and ran as
    many steps: its ranks are equal, and each rank's loss is ours."""
    if not ends or len(ends) != len(ours):
        return False, ""
    equal = ends[0].hash == ends[-1].hash
    close = all(abs(end.loss - own.loss) <= tolerance * abs(own.loss)
                for end, own in zip(ends, ours))
    return equal and close, (
        f"peer: ranks {'equal' if equal else 'DIFFER'}, losses {ends[0].loss:.4f} and "
        f"{ends[-1].loss:.4f} beside ours {ours[0].loss:.4f} and {ours[-1].loss:.4f}"
        f"{'' if close else ': TOO FAR'}")


# Commands of a rank. ---------------------------------------------------------


def prefers_wide_blas():
    """Whether lockstep-train takes OpenBLAS's AVX-512 kernels by force here:
    where the library does not know the processor (WiderBlasCore of
    worker/trainer/environment.h)."""
    if "OPENBLAS_CORETYPE" in os.environ or "avx512vl" not in machine.read("/proc/cpuinfo"):
        return False
    try:
        name = ctypes.CDLL("libopenblas.so.0").openblas_get_corename
    except (OSError, AttributeError):
        return False
    name.restype = ctypes.c_char_p
    return name() in (b"Zen", b"Haswell")


def tuned(words):
    """What lockstep-train sets for itself."""
    wide = ["OPENBLAS_CORETYPE=SkylakeX"] if prefers_wide_blas() else []
    return ["env", "MALLOC_MMAP_THRESHOLD_=1073741824",
            "MALLOC_TRIM_THRESHOLD_=4294967296", "OMP_NUM_THREADS=1",
            "OPENBLAS_NUM_THREADS=1", *wide, *words]


def common(rank, directory, model):
    return ["--store", directory, "--rank", str(rank), "--ranks", str(RANKS),
            "--core", str(rank), "--model", model]


def ours(programs, model, backend, *more, export=False):
    """`export`: leaves its weights and batches for others (step_models.h)."""
    def command(rank, directory):
        words = [programs.path("step_probe"), "--backend", backend,
                 *common(rank, directory, model), *more]
        return words + (["--export", directory + "/../start"] if export else [])
    return command


def framework_python(which):
    return f"{os.environ.get('LOCKSTEP_FRAMEWORKS', '/nonexistent')}/{which}/bin/python"


def ddp(model, mode, *more, python=None):
    python = python or os.environ.get("LOCKSTEP_BENCH_PYTHON_TORCH", "/usr/bin/python3")

    def command(rank, directory):
        words = [python, str(machine.PEERS / "ddp.py"), "--start",
                 directory + "/../start", *common(rank, directory, model), "--mode",
                 mode, *more]
        if mode == "best":
            return tuned(words)
        return ["env", "OMP_NUM_THREADS=1", *words, "--core", "-1"]
    return command


def have_pypi():
    """PyPI's torch is measured, too; nothing is held against it."""
    return os.path.exists(framework_python("torch"))


def gating_ddp():
    named = os.environ.get("LOCKSTEP_BENCH_PYTHON_TORCH")
    return f"torch DDP of {named}, gloo" if named else "Debian's python3-torch DDP, gloo"


def mwms(best):
    """TensorFlow; at its best one thread for each kind of work, pinned."""
    port = 20000 + os.getpid() % 10000 * 2 + (20000 if best else 0)

    def command(rank, directory):
        words = [framework_python("tensorflow"), str(machine.PEERS / "mwms.py"),
                 "--port", str(port), "--start", directory + "/../start",
                 *common(rank, directory, "shallow")]
        return tuned(words) if best else [*words, "--core", "-1", "--threads", "0"]
    return command


# Rounds. -----------------------------------------------------------------------


class Rounds:
    """Of each side, by its place, the samples of each kept round, and whether
    what it computed was right; of sides that did not start, none."""

    def __init__(self, sides, rounds, turns, options, tolerance=None):
        self.sides, self.versions = sides, {}
        self.samples, self.word = ([[] for _ in sides] for _ in range(2))
        self.checks = [(False, "")] * len(sides)
        rounds = options.rounds or rounds
        if options.steps:
            turns = turns._replace(steps=options.steps)
        self.busy = machine.BusyRounds(options.on_busy, rounds)
        with tempfile.TemporaryDirectory(prefix="lockstep-step-bench-") as directory:
            try:
                there = self.start(directory)
                self.take(there, rounds, turns)
                self.end(there, **(tolerance or {}))
            finally:
                for side in sides:
                    side.stop()

    def start(self, directory):
        """Those that are there, by their place. Ours, the first, must start."""
        there = []
        for i, side in enumerate(self.sides):
            own = pathlib.Path(directory, str(i))
            own.mkdir()
            try:
                side.start(own)
            except BenchError as error:
                if i == 0:
                    raise
                print(f"left out: {error}")
                side.stop()
                continue
            there.append(i)
            for what, version in side.versions.items():
                self.versions[f"{side.name}: {what}"] = version
                print(f"{side.name}: {what}: {version}")
        return there

    def take(self, there, rounds, turns):
        pids = [process.pid for i in there for process in self.sides[i].ranks]
        number = run = 0
        while number < rounds:
            before = machine.read_cpu(pids)
            taken = {}
            for turn in range(len(there)):
                i = there[(turn + run) % len(there)]
                try:
                    taken[i] = self.sides[i].run_round(turns, run)
                except BenchError as failure:
                    # A peer that breaks says nothing about our side.
                    if i == 0:
                        raise
                    raise NotMeasured(str(failure)) from None
            run += 1
            if not self.busy.keep(
                    number, machine.shares_between(before, machine.read_cpu(pids))):
                continue
            for i, (whole, word) in taken.items() if number else ():
                self.samples[i].append(whole)
                if word:
                    self.word[i].append(word)
            number += 1

    def end(self, there, error=5e-3, loss=1e-3):
        """Ours must end well; a peer's failure is a check that is missed."""
        ends = None
        for i in there:
            try:
                own = self.sides[i].end()
                self.checks[i] = (check_ours(own, error) if i == 0
                                  else check_peer(own, ends, loss))
                ends = ends or own
            except BenchError as failure:
                if i == 0:
                    raise
                self.checks[i] = False, str(failure)
            print(self.checks[i][1])

    def column(self, samples, field="seconds"):
        return [[getattr(sample, field) for sample in taken] for taken in samples]

    def result(self, id, name, mine, theirs, peer=0, **more):
        """`peer`: the place of the side that `theirs` is of."""
        must, aim = rows.MUSTS.get(id, (0, 0))
        texts = [self.checks[0][1]] + ([self.checks[peer][1]] if peer else [])
        return Result(id, name, mine, theirs, ranks=RANKS,
                      verified=self.checks[0][0] and self.checks[peer][0],
                      checked="; ".join(filter(None, texts)), must=must, aim=aim,
                      repeated_rounds=self.busy.repeated, busy_rounds=self.busy.kept,
                      **more)

    def against(self, id, peer, name=None):
        """Our step beside that of the peer at this place; none where that is
        not there. No step could be shorter than ours with a word."""
        if not self.samples[peer]:
            return []
        return [self.result(
            id, name or self.sides[peer].name, self.column(self.samples[0]),
            self.column(self.samples[peer]), peer,
            limit=median(pool(self.column(self.word[0]))), limit_what=WORD)]


# The benchmarks. -----------------------------------------------------------------


def run_s1(programs, options):
    """Four samples of a rank, not sixteen: what it is about is 2 %, of a machine
    whose speed changes within a second, and short steps are nearer to each other.
    Communication, as much, is four times as large a part of them. Step by step:
    both kinds are of one process, and leave the same behind."""
    side = Side("lockstep", ours(programs, "cnn", "shm", "--batch", "4", export=True),
                word=True)
    run = Rounds([side], 21, Turns(8, 2, 1, False), options)
    return run, [run.result(
        "S1", "itself, 4 samples a rank, with one 4-byte all-reduce a step",
        run.column(run.samples[0]), run.column(run.word[0]), by_turns=True, paired=True)]


def run_s2(programs, options):
    # Normalised over four samples its gradients are ill-conditioned: float32's
    # are within 0.01 to 0.06 of float64's on either side, and two runs that
    # differ in the last bit part the sooner the larger their steps.
    rate = "--rate", "2e-8"
    sides = [Side("lockstep", ours(programs, "resnet50", "shm", *rate, export=True), True),
             Side(f"{gating_ddp()}, {BEST_DDP}", ddp("resnet50", "best", *rate), True)]
    if have_pypi():
        sides.append(Side(f"{PYPI_DDP}, {BEST_DDP}", ddp(
            "resnet50", "best", *rate, python=framework_python("torch"))))
    run = Rounds(sides, 16, Turns(samples=4), options, {"error": 0.2, "loss": 5e-3})
    pypi = run.against("S2-pypi", 2) if len(sides) > 2 else []
    results = run.against("S2", 1) + pypi
    if run.samples[1]:
        # Noise may take a difference below nothing.
        costs = [[[max(a.seconds - b.seconds, 1e-5) for a, b in zip(whole, word)]
                  for whole, word in zip(run.samples[i], run.word[i])] for i in (0, 1)]
        results.append(run.result(
            "S2-cost", f"what communication adds to a step of {sides[1].name}", *costs,
            peer=1, by_turns=True,
            limit=programs.limit("memory", RANKS, 25557032 * 4),  # ResNet-50's
            limit_what="both ranks' gradients read once and written once, at the rate "
                       "of q += p in this run"))
    return run, results


def run_s3(programs, options):
    """Both columns are of ours: how much of one the other is."""
    def alone(command):
        return Rounds([Side("lockstep", command)], 16, Turns(steps=3), options)

    def result(run, id, name, field):
        samples = run.samples[0]
        return run.result(id, name, run.column(samples, "exposed"),
                          run.column(samples, field))

    results = []
    try:
        hosts = Hosts(RANKS, 2)
    except NotMeasured as missing:
        print(f"left out: S3 over TCP: {missing}")
    else:
        with hosts:
            plain = ours(programs, "cnn", "tcp")
            run = alone(lambda rank, directory: hosts.command(rank, plain(rank, directory)))
        results.append(result(
            run, "S3-tcp", "its own exposed time; the ratio is busy over exposed", "busy"))
    run = alone(ours(programs, "cnn", "shm"))
    results.append(result(
        run, "S3-shm", "its own exposed time; the ratio is the step over it", "seconds"))
    return run, results


def run_m1(programs, options):
    peers = [
        ("M1-ddp-default", f"{gating_ddp()}, as it comes", ddp("shallow", "default")),
        ("M1-ddp-best", f"{gating_ddp()}, {BEST_DDP}", ddp("shallow", "best")),
        ("M1-mwms", "TensorFlow MultiWorkerMirroredStrategy, as it comes", mwms(False)),
        ("M1-mwms-best", "TensorFlow MultiWorkerMirroredStrategy, one thread of each "
         "kind, pinned, malloc keeps memory", mwms(True))]
    if have_pypi():
        peers.append(("M1-pypi-best", f"{PYPI_DDP}, {BEST_DDP}",
                      ddp("shallow", "best", python=framework_python("torch"))))
    peers = [peer for peer in peers if options.only in peer[0]]
    sides = [Side("lockstep", ours(programs, "shallow", "shm", export=True), word=True)]
    sides += [Side(name, command) for _, name, command in peers]
    run = Rounds(sides, 16, Turns(steps=30), options)
    return run, [result for i, (id, *_) in enumerate(peers, 1)
                 for result in run.against(id, i)]


def run(id, programs, options):
    """(results, versions)."""
    run, results = {"S1": run_s1, "S2": run_s2, "S3": run_s3, "M1": run_m1}[id](
        programs, options)
    if not results:
        raise NotMeasured("there is no peer")
    print_results(results)
    return results, run.versions
