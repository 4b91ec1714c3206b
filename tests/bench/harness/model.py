"""What a step of synchronous training takes on machines that are not here: the
alpha-beta model. A message of n bytes takes alpha + n beta (Hockney, 1994); the
collectives are those of Thakur, Rabenseifner and Gropp, "Optimization of
Collective Communication Operations in MPICH" (2005).

What it leaves out: contention between jobs and in the network's core (every host
reaches every other at its full rate), ranks that are late, the optimizer, input,
and the time that reducing takes from computing.
"""
import collections
import dataclasses
import math

KIB, MIB = 1 << 10, 1 << 20

# Seconds of a message of no bytes; seconds a byte, each direction.
Link = collections.namedtuple("Link", "alpha beta")


def link(microseconds, gigabits):
    return Link(microseconds * 1e-6, 8 / (gigabits * 1e9))


@dataclasses.dataclass(frozen=True)
class Cluster:
    hosts: int = 1
    per_host: int = 8  # ranks
    intra: Link = link(3, 200)  # between the ranks of a host
    inter: Link = link(15, 100)  # of a host's line, which its ranks share

    @property
    def ranks(self):
        return self.hosts * self.per_host


@dataclasses.dataclass(frozen=True)
class Training:
    """Of ResNet-50 in float32 on one GPU."""
    compute: float = 0.1  # seconds of forward and backward of one step
    gradient_bytes: int = 98 * MIB
    bucket: int = 2 * MIB  # the largest one
    backward_share: float = 2 / 3


@dataclasses.dataclass(frozen=True)
class Step:
    compute: float
    busy: float  # of all reductions, one after the other
    exposed: float  # of them, what is not hidden behind the backward pass
    algorithm: str  # of the largest bucket

    @property
    def seconds(self):
        return self.compute + self.exposed

    @property
    def efficiency(self):
        """Of N times one rank's rate."""
        return self.compute / self.seconds if self.seconds > 0 else 1


def of_ring(ranks, line, size):
    """Each rank sends to the next; between hosts one pair of ranks uses each
    line."""
    return 2 * (ranks - 1) * (line.alpha + size / ranks * line.beta)


def of_halving(ranks, line, size):
    """Recursive halving and doubling. For other numbers than powers of two, one
    more exchange of all bytes, there and back."""
    if ranks < 2:
        return 0
    group = 1 << (ranks.bit_length() - 1)
    seconds = (2 * math.log2(group) * line.alpha +
               2 * (group - 1) / group * size * line.beta)
    if group != ranks:
        seconds += 2 * (line.alpha + size * line.beta)
    return seconds


def ring(c, size):
    return of_ring(c.ranks, c.inter if c.hosts > 1 else c.intra, size)


def halving(c, size):
    if c.hosts == 1:
        return of_halving(c.per_host, c.intra, size)
    if c.per_host == 1:
        return of_halving(c.hosts, c.inter, size)
    # Farthest first: while it is between hosts, all ranks of one share its line.
    shared = Link(c.inter.alpha, c.per_host * c.inter.beta)
    return (of_halving(c.hosts, shared, size) +
            of_halving(c.per_host, c.intra, size / c.hosts))


def tree(c, size):
    """To one rank and back, by a binomial tree."""
    return 2 * sum(math.ceil(math.log2(count)) * (line.alpha + size * line.beta)
                   for count, line in ((c.per_host, c.intra), (c.hosts, c.inter)))


def hierarchical(c, size):
    """Within hosts, slices between them, within hosts. In shared memory or by
    direct copies a rank gets to each other one once on the way there, and once
    on the way back; the slices of all ranks of a host go through its line at the
    same time."""
    return of_ring(c.per_host, c.intra, size) + min(
        of_ring(c.hosts, c.inter, size), of_halving(c.hosts, c.inter, size))


ALGORITHMS = {"ring": ring, "halving": halving, "tree": tree,
              "hierarchical": hierarchical}


def all_reduce_seconds(algorithm, cluster, size):
    return ALGORITHMS[algorithm](cluster, size) if cluster.ranks > 1 else 0


def best_algorithm(cluster, size):
    return min(ALGORITHMS, key=lambda name: all_reduce_seconds(name, cluster, size))


def buckets(training, first=MIB, last=256 * KIB):
    """What PlanBuckets (worker/collective/bucket_plan.h) makes of tensors that are
    small beside buckets, over TCP and hierarchical, the control word aside."""
    sizes, left = [], training.gradient_bytes
    while left > 0:
        sizes.append(min(left, training.bucket if sizes else min(first, training.bucket)))
        left -= sizes[-1]
    last = min(last, training.bucket)
    if sizes and last and sizes[-1] > last:
        sizes[-1:] = [sizes[-1] - last, last]
    return sizes


def predict_step(cluster, training):
    """Gradients become ready evenly over the backward pass; bucket after bucket
    is reduced, each by the quickest algorithm, none before it is full."""
    backward = training.compute * training.backward_share
    filled = end = busy = largest = 0
    algorithm = "ring"
    for size in buckets(training):
        filled += size
        ready = training.compute - backward + backward * filled / training.gradient_bytes
        best = best_algorithm(cluster, size)
        seconds = all_reduce_seconds(best, cluster, size)
        end = max(end, ready) + seconds
        busy += seconds
        if size > largest:
            largest, algorithm = size, best
    return Step(training.compute, busy, max(0, end - training.compute), algorithm)


def link_of(small_seconds, large_seconds, size):
    """From two measured all-reduces of two ranks: of next to nothing, and of
    `size` bytes. ValueError where the larger took no longer. Two ranks take
    2 alpha + size beta by each of the algorithms."""
    if not 0 < small_seconds < large_seconds or size <= 0:
        raise ValueError(f"an all-reduce of {size} bytes took {large_seconds} s and one "
                         f"of none {small_seconds} s: no line is like that")
    return Link(small_seconds / 2, (large_seconds - small_seconds) / size)


def gigabits(line):
    return 8 / line.beta / 1e9


def table(cluster, training, hosts):
    planned = buckets(training)
    lines = [
        f"A prediction: alpha-beta model, {cluster.per_host} ranks a host; within a host "
        f"{cluster.intra.alpha * 1e6:.1f} us and {gigabits(cluster.intra):.1f} Gbit/s,\n"
        f"between hosts {cluster.inter.alpha * 1e6:.1f} us and "
        f"{gigabits(cluster.inter):.1f} Gbit/s a host; {training.compute * 1e3:.1f} ms of "
        f"computing a step, {training.gradient_bytes / MIB:.1f} MiB of gradients\nin "
        f"{len(planned)} buckets of up to {training.bucket / MIB:.1f} MiB, hidden behind "
        "the backward pass as far as it lasts.\n",
        f"{'hosts':>6} {'ranks':>6} {'algorithm':>14} {'reduce ms':>12} "
        f"{'exposed ms':>12} {'step ms':>12} {'efficiency':>11}"]
    for count in hosts:
        shape = dataclasses.replace(cluster, hosts=count)
        step = predict_step(shape, training)
        lines.append(
            f"{count:>6} {shape.ranks:>6} {step.algorithm if shape.ranks > 1 else 'none':>14} "
            f"{step.busy * 1e3:>12.2f} {step.exposed * 1e3:>12.2f} "
            f"{step.seconds * 1e3:>12.2f} {step.efficiency * 100:>10.1f}%")
    return "\n".join(lines)
