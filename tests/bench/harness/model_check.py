"""Compares the model of docs/scale.md with runs between network namespaces that
stand for hosts, each with a line of 500 Mbit/s in each direction.

The two lines, within a host and between hosts, are measured with two ranks, one
figure each for latency and rate; all-reduces of all other shapes, and steps of
all, are predicted from them. Steps are those of the reducer that jobs use
(model_probe.cc): trainings that compute for much longer than they reduce, for as
long, and much shorter, and in buckets of other sizes.

It fails where a prediction is off by more than a quarter: a step's time, or an
all-reduce from 1 MiB on. Of smaller ones, waking ranks that outnumber the
processors takes most of the time.
"""
import dataclasses
import os
import subprocess
import tempfile

from .allreduce import Hosts
from .model import (KIB, MIB, Cluster, Training, all_reduce_seconds, best_algorithm,
                    buckets, gigabits, link_of, predict_step)
from .report import BenchError

LINE_GBIT, HOSTS = 0.5, 8
SHAPES = (3, 1), (4, 1), (8, 1), (2, 2), (2, 4), (4, 2)  # hosts, ranks of each
FITTED, LEAST_JUDGED = 8 * MIB, MIB
LEAST_RATIO, MOST_RATIO = 0.8, 1.25  # of measured / predicted
# (name, computing as a multiple of all reductions one after the other, largest
# bucket; 0: as jobs begin)
KINDS = (("compute-bound", 3, 0), ("balanced", 1, 0), ("communication-bound", 0.25, 0),
         ("balanced", 1, 256 * KIB), ("balanced", 1, 8 * MIB))
GRADIENT_BYTES = 12 * MIB  # model_probe's
LONGEST_RUN = 600  # seconds
# A machine that takes more of the processors' time away is measured again.
MOST_STOLEN, MOST_TIMES = 0.02, 4


def is_near(ratio):
    return LEAST_RATIO <= ratio <= MOST_RATIO


class Check:
    def __init__(self, programs, hosts):
        self.program = programs.path("model_probe")
        self.hosts = hosts
        self.off = 0

    def probe(self, shape, *steps):
        """Rank 0's lines, as (word, rest)."""
        hosts, ranks = shape
        words = [word for step in steps for word in ("--step", step)]
        running = []
        with tempfile.TemporaryDirectory(prefix="lockstep-model-") as directory:
            try:
                for rank in range(hosts * ranks):
                    running.append(subprocess.Popen(
                        self.hosts.command(rank // ranks, [
                            self.program, "--rank", str(rank), "--ranks",
                            str(hosts * ranks), "--store", directory, *words]),
                        stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
                        text=True))
                lines = running[0].communicate(timeout=LONGEST_RUN)[0].splitlines()
                codes = [process.wait(timeout=LONGEST_RUN) for process in running]
            finally:
                for process in running:
                    process.kill()
                    process.wait()
        if any(codes):
            raise BenchError(f"ranks of {hosts}x{ranks} ended with {codes}")
        return [line.split(" ", 1) for line in lines]

    def all_reduces(self, shape):
        """(backend, seconds by bytes)."""
        lines = self.probe(shape)
        backend = next(rest for word, rest in lines if word == "BACKEND")
        return backend, {int(size): float(seconds) for size, seconds in (
            rest.split() for word, rest in lines if word == "ALL_REDUCE")}

    def compare_all_reduces(self, cluster, backend, measured):
        for size, seconds in measured.items():
            predicted = all_reduce_seconds(best_algorithm(cluster, size), cluster, size)
            ratio = seconds / predicted
            print(f"{cluster.hosts:6} {cluster.ranks:6} {backend:>13} {size / KIB:9.3f} "
                  f"{seconds * 1e3:12.3f} {predicted * 1e3:13.3f} {ratio:6.2f}")
            self.off += (cluster.hosts > 1 and size >= LEAST_JUDGED and
                         not is_near(ratio))

    def steps(self, shape, trainings):
        """Of each training (seconds, exposed, stolen, reductions of a step)."""
        words = [f"{training.compute:.9f}:{largest}"
                 for training, (_, _, largest) in zip(trainings, KINDS)]
        for time in range(1, MOST_TIMES + 1):
            lines = self.probe(shape, *words)
            measured = [tuple(map(float, rest.split()))
                        for word, rest in lines if word == "STEP"]
            stolen = max(one[2] for one in measured)
            if stolen <= MOST_STOLEN or time == MOST_TIMES:
                break
            print(f"{shape[0]:3}x{shape[1]:<3} again: up to {stolen * 100:.0f} % of the "
                  "processors' time was stolen")
        for word, rest in lines:
            if word == "PLAN":
                print(f"{shape[0]:3}x{shape[1]:<3} {rest}")
        return measured

    def compare_steps(self, cluster):
        trainings = []
        for _, computing, largest in KINDS:
            training = Training(0, GRADIENT_BYTES, largest or Training.bucket)
            trainings.append(dataclasses.replace(
                training, compute=computing * predict_step(cluster, training).busy))
        shape = cluster.hosts, cluster.per_host
        for (name, *_), training, (seconds, exposed, stolen, reductions) in zip(
                KINDS, trainings, self.steps(shape, trainings)):
            planned = len(buckets(training))
            if reductions != planned:
                raise BenchError(f"{reductions:g} buckets were reduced, the model has "
                                 f"{planned}")
            step = predict_step(cluster, training)
            ratio = seconds / step.seconds
            print(f"{shape[0]:3}x{shape[1]:<3} {name:19} {planned:4} x "
                  f"{training.bucket / MIB:4.2f} {training.compute * 1e3:10.1f} "
                  f"{seconds * 1e3:8.1f} / {step.seconds * 1e3:7.1f} {ratio:6.2f} "
                  f"{exposed * 1e3:8.1f} / {step.exposed * 1e3:7.1f} "
                  f"{100 * training.compute / seconds:7.1f} / "
                  f"{100 * step.efficiency:5.1f} % {100 * stolen:7.1f} %")
            self.off += not is_near(ratio)

    def run(self, shapes):
        print(f"{'hosts':>6} {'ranks':>6} {'backend':>13} {'KiB':>9} {'measured ms':>12} "
              f"{'predicted ms':>13} {'ratio':>6}")
        cluster = Cluster()
        for number, (hosts, ranks) in enumerate(((1, 2), (2, 1), *shapes)):
            backend, measured = self.all_reduces((hosts, ranks))
            if number < 2:
                line = link_of(measured[4], measured[FITTED], FITTED)
                cluster = dataclasses.replace(
                    cluster, **{("intra", "inter")[number]: line})
            cluster = dataclasses.replace(cluster, hosts=hosts, per_host=ranks)
            self.compare_all_reduces(cluster, backend, measured)
        print(f"within a host {cluster.intra.alpha * 1e6:.1f} us, "
              f"{gigabits(cluster.intra):.1f} Gbit/s; between "
              f"{cluster.inter.alpha * 1e6:.1f} us, {gigabits(cluster.inter):.2f} Gbit/s\n\n"
              f"Steps with {GRADIENT_BYTES // MIB} MiB of gradients; ranks wait where a "
              "device would compute. Measured / predicted.\n"
              f"{'shape':7} {'training':19} {'buckets, MiB':>11} {'compute ms':>10} "
              f"{'step ms':>18} {'ratio':>6} {'exposed ms':>18} {'efficiency':>17} "
              f"{'stolen':>9}")
        # Within a host memory is too quick to be hidden behind waits.
        for hosts, ranks in ((2, 1), *shapes):
            self.compare_steps(dataclasses.replace(cluster, hosts=hosts, per_host=ranks))


def run(programs, shapes=SHAPES):
    """STEP_MODEL_TCP names the congestion control (reno, which every kernel has;
    docs/scale.md says what bbr does)."""
    congestion = os.environ.get("STEP_MODEL_TCP", "reno")
    with Hosts(HOSTS, LINE_GBIT) as hosts:
        for host in range(HOSTS):
            subprocess.run(
                ["ip", "netns", "exec", f"{hosts.prefix}-{host}", "sh", "-c",
                 f"echo {congestion} >/proc/sys/net/ipv4/tcp_congestion_control"],
                check=True)
        print(f"lines of {LINE_GBIT:g} Gbit/s in each direction, {congestion}")
        check = Check(programs, hosts)
        check.run(shapes)
    if check.off:
        raise BenchError(f"{check.off} predictions are off: measured / predicted must be "
                         f"{LEAST_RATIO} to {MOST_RATIO}, of steps and of all-reduces from "
                         f"{LEAST_JUDGED // MIB} MiB on")
