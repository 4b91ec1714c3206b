"""The one table of benchmarks: what is measured, beside which peers, and what
the ratio peer / ours must be."""
import collections
import dataclasses

KIB, MIB = 1 << 10, 1 << 20

# One way to do the all-reduce: a probe program (peers/probe.h) and its settings.
# `starter` starts all ranks at once ("%n": how many), else each rank is started
# alone. `variants` are the probe's own. A `likely` setting was the best at some
# size on some machine: a short run tries no others. After two of a `family` stood
# still at a size, the others are not tried at it.
Contender = collections.namedtuple(
    "Contender", "label program arguments starter variants likely family",
    defaults=((), (), ("",), False, ""))
# The best of the contenders for a size is the peer.
Peer = collections.namedtuple("Peer", "name contenders")
# `peer`: an index of AllReduce.peers.
Row = collections.namedtuple("Row", "bytes peer must aim")


def mca(name, value):
    return f"{name}={value}", ("--mca", name, value)


def join(*settings):
    return (" ".join(label for label, _ in settings if label),
            sum((options for _, options in settings), ()))


def mpi_algorithms():
    """Open MPI's own choice, and each algorithm by force."""
    yield "", ()
    dynamic = mca("coll_tuned_use_dynamic_rules", "1")
    for algorithm in "346":
        yield join(dynamic, mca("coll_tuned_allreduce_algorithm", algorithm))
    for segment in ("65536", "262144", "1048576"):
        yield join(dynamic, mca("coll_tuned_allreduce_algorithm", "5"),
                   mca("coll_tuned_allreduce_algorithm_segmentsize", segment))


def is_likely(label):
    """Those that were best at some size of those that are quickly measured."""
    if "frag_size" in label:
        return False
    copies = "mechanism=cma" in label
    if "coll_sm_priority" in label:
        return copies
    if "segmentsize=65536" in label:
        return not copies
    if "algorithm=6" in label or "segmentsize=262144" in label:
        return "self,tcp" in label
    return "algorithm=4" in label


def mpi(setting, pinned):
    label, options = setting
    bind = ("core",) if pinned else ("none", "--oversubscribe")
    starter = ("mpirun", "-np", "%n", "--bind-to", *bind, "--mca", "pml", "ob1")
    return Contender("mpirun " + label, "mpi_allreduce", (), starter + options,
                     ("in place", "not in place"), is_likely(label))


def open_mpi(pinned):
    """Over shared memory."""
    vader = "--mca btl self,vader", ("--mca", "btl", "self,vader")
    return Peer("Open MPI", [
        mpi(join(vader, mca("btl_vader_single_copy_mechanism", copy), setting), pinned)
        for copy in ("cma", "none")
        for setting in (*mpi_algorithms(), mca("coll_sm_priority", "100"))])


def open_mpi_tcp():
    tcp = "--mca btl self,tcp", ("--mca", "btl", "self,tcp", "--mca",
                                 "btl_tcp_if_include", "lo")
    return [mpi(join(tcp, fragments, algorithm), True)
            for fragments in (("", ()), mca("btl_tcp_rdma_pipeline_frag_size", "131072"))
            for algorithm in mpi_algorithms()]


def gloo(algorithm, pinned):
    old = algorithm.startswith("old_")
    return Contender(
        f"gloo {algorithm.removeprefix('old_')}{' sync busy-poll' if old else ''}"
        f"{' pinned' if pinned else ''}",
        "gloo_allreduce", ("--algorithm", algorithm, "--pin", "1" if pinned else "0"),
        likely=algorithm in ("bcube", "old_ring", "old_halving_doubling",
                             "old_bcube" if pinned else "old_ring_chunked"),
        # Both sides may send all before either receives: large sizes stall.
        family="gloo sync" if old else "")


GLOO_DEFAULT = Peer("Gloo default", [gloo("ring", False)])
GLOO_TUNED = Peer("Gloo tuned", [  # the old interface, which polls
    gloo("old_" + algorithm, pinned)
    for algorithm in ("halving_doubling", "ring_chunked", "ring", "bcube")
    for pinned in (True, False)])
GLOO = Peer("Gloo", GLOO_TUNED.contenders + [gloo("ring", False), gloo("bcube", False)])
TCP = Peer("Open MPI tcp or Gloo", GLOO.contenders + open_mpi_tcp())
PLAIN_RING = Peer("plain TCP ring", [Contender("a plain TCP ring", "tcp_ring")])
BARE = Contender("processes that share the work without an engine", "bare_reduce",
                 variants=("yielding", "asleep", "napping"))


@dataclasses.dataclass
class AllReduce:
    what: str
    peers: list
    rows: list
    ranks: int = 2
    backend: str = "shm"
    pin: bool = True
    variant: int = 0  # of engine_probe: 1 is private memory
    # Runs by turns with both sides; the best variant is the limit.
    bare: Contender = None
    # Each rank is a host of its own, whose line has this rate.
    line_gbit: float = 0


ALL_REDUCES = {
    "A1": AllReduce("all-reduce in one host, lockstep's buckets", [open_mpi(True)], [
        Row(MIB, 0, 2.5, 3.2), Row(25 * MIB, 0, 2.3, 2.9), Row(100 * MIB, 0, 2.2, 2.7)]),
    "A2": AllReduce("all-reduce in one host, lockstep's buckets", [GLOO], [
        Row(MIB, 0, 5, 6), Row(25 * MIB, 0, 8, 12), Row(100 * MIB, 0, 6, 8)]),
    "A3": AllReduce("all-reduce in one host, private tensors", [open_mpi(True)], [
        Row(25 * MIB, 0, 1.0, 1.1), Row(100 * MIB, 0, 1.15, 1.3)], variant=1),
    "A4": AllReduce("all-reduce in one host, batches of 100",
                    [open_mpi(True), GLOO_TUNED], [
        Row(KIB, 0, 0.9, 2), Row(KIB, 1, 30, 60)]),
    "A5": AllReduce("all-reduce, four ranks on two cores",
                    [open_mpi(False), GLOO_DEFAULT], [
        Row(25 * MIB, 0, 3, 4), Row(KIB, 1, 10, 40)], ranks=4, pin=False, bare=BARE),
    "A6": AllReduce("all-reduce over TCP on one machine", [TCP], [
        Row(KIB, 0, 1.0, 1.4), Row(MIB, 0, 0.95, 1.1), Row(25 * MIB, 0, 1.0, 1.2),
        Row(100 * MIB, 0, 0.95, 1.1)], backend="tcp"),
    "A7": AllReduce("all-reduce over TCP on one machine", [GLOO_DEFAULT], [
        Row(KIB, 0, 5, 20), Row(MIB, 0, 1.5, 2), Row(25 * MIB, 0, 1.2, 1.4),
        Row(100 * MIB, 0, 1.15, 1.35)], backend="tcp"),
    "A8": AllReduce("all-reduce of four hosts, lines of 2 Gbit/s", [PLAIN_RING], [
        Row(25 * MIB, 0, 0.95, 0.98)], ranks=4, backend="tcp", pin=False, line_gbit=2),
}

# Whole training steps: harness/steps.py says what each result is. Its id:
# (must, aim).
STEPS = {
    "S1": {"S1": (0.98, 1.0)},
    "S2": {"S2": (1.15, 1.4), "S2-cost": (4, 0)},
    "S3": {"S3-tcp": (4, 10), "S3-shm": (50, 100)},
    "M1": {"M1-ddp-default": (1.7, 2.2), "M1-ddp-best": (1.35, 1.7),
           "M1-mwms": (2.7, 3.5)},
}

# PyTorch and JAX over lockstep (harness/torch_rows.py): id: {bytes: (must, aim)}.
TORCH = {
    "P1": {0: (1.4, 1.8)},
    "P2": {0: (1.25, 1.45)},
    "P3": {KIB: (2, 5), MIB: (4, 8), 25 * MIB: (3, 6), 100 * MIB: (3, 6)},
    "P4": {0: (1.2, 1.5)},
    "P5": {MIB: (1.2, 1.5), 25 * MIB: (1.2, 1.5)},
    "P6": {0: (1, 5)},
    "J1": {25 * MIB: (3, 6)},
}

# The control plane, and reading records: `cluster_rows ID` measures them
# (cluster_rows.h says what each is). Results without an entry have no must.
CLUSTER = {
    "L1": "submit to first instruction, beside srun and sbatch",
    "L2": "submit to first collective, beside srun and Gloo",
    "Q1": "1,000 jobs, beside a Slurm array",
    "R4": "the coordinator is killed, beside slurmctld",
    "R5": "a rank is killed, the others stay, beside a restart of the gang",
    "R6": "goodput with a kill every 15 s",
    "F1": "a job in AI Platform's words, beside SubmitJob",
    "F2": "1,000 jobs in AI Platform's words, beside SubmitJob",
    "F3": "a rank is killed, beside torchrun",
    "F4": "a package of 200 MB, beside cp and sha256sum",
    "I1": "TFRecord scan, beside a bare loop and stdio",
    "O2": "a scrape of 14,000 series, beside prometheus-cpp",
    "O3": "1 GiB of log lines, beside srun",
    "O4": "idle daemons, beside Slurm's",
    "Q3": "200 workers' streams, beside a bare gRPC server",
    "Q4": "6,000 idle streams",
}
# A rank of a PyTorch program is killed (harness/recoveries.py): beside each peer what
# the ratio of our warm start must and should be.
RECOVERY = {
    "R7": {"torchft": (10, 20), "reconfigure": (3, 5), "torchrun": (15, 30)},
}
# A rank of an elastic PyTorch program is killed (harness/elastic.py): seconds to the
# next step of the others, p50 and p99 (must, aim).
ELASTIC = {
    "R8": {"R8": (0.150, 0.060), "R8-p99": (0.500, 0.250)},
}
MUSTS = {id: pair for step in STEPS.values() for id, pair in step.items()}
MUSTS.update({"Q4-memory": (1, 0), "Q4-submit-p99": (0.5, 0)})

# What the table of docs/benchmarks.md calls a result, by its id or what its id begins with.
WHAT = {id: bench.what for id, bench in ALL_REDUCES.items()}
WHAT.update({
    "S1": "step rate with and without communication",
    "S2": "step rate, 25.6 M parameters, little to compute",
    "S2-cost": "what communication adds to a step",
    "S2-pypi": "step rate, 25.6 M parameters, little to compute",
    "S3-tcp": "communication hidden by the step, 2 Gbit/s: busy / exposed",
    "S3-shm": "communication hidden by the step: step / exposed",
    "M1": "whole training, two ranks on two cores",
    "P1": "a DDP step in PyTorch, 25.6 M parameters, little to compute",
    "P2": "a DDP step in PyTorch, M1's network",
    "P3": "dist.all_reduce from Python",
    "P4": "an FSDP2 step in PyTorch, 8 layers of 4 M parameters",
    "P5": "dist.all_reduce from Python, over TCP",
    "P6": "session.step() in Python",
    "J1": "psum in JAX",
    "R7": "a rank of a PyTorch program is killed, to the next step of all ranks",
    "R8": "a rank of an elastic PyTorch job is killed, to the next step of the others",
    "L1": "submit to first instruction",
    "L2": "submit to first collective",
    "Q1": "1,000 jobs",
    "I1": "TFRecord scan",
})


def required(benchmark):
    """What a file of A1 to M1 must have: (id, bytes, peer)."""
    if benchmark in ALL_REDUCES:
        bench = ALL_REDUCES[benchmark]
        return [(benchmark, row.bytes, bench.peers[row.peer].name)
                for row in bench.rows]
    return [(id, 0, "") for id in STEPS.get(benchmark, ())]


# In the order in which they run. `model` holds the model of docs/scale.md
# against runs.
ORDER = [*ALL_REDUCES, "model", *STEPS, *TORCH, *CLUSTER, *RECOVERY, *ELASTIC]
