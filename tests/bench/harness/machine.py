"""The machine: what it is, and whether others use it while a benchmark runs."""
import collections
import datetime
import os
import pathlib
import re
import resource
import subprocess
import time

from .report import NotMeasured

ROOT = pathlib.Path(__file__).resolve().parents[3]
PEERS = ROOT / "tests" / "bench" / "peers"
KTHREADD = 2

# Seconds: of all cores; not idle and not stolen; stolen by the hypervisor; of
# this process, its children that have ended and those that were named; of the
# kernel's threads, which work for whoever asks.
CpuReading = collections.namedtuple("CpuReading", "total busy stolen own kernel")
CpuShares = collections.namedtuple("CpuShares", "foreign stolen")  # 0 to 1


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def first_line(path):
    return read(path).partition("\n")[0].strip()


def ticks_of(pid):
    """(parent, own ticks, ticks of its children that it has waited for)."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 15:
        return 0, 0, 0
    user, system, children_user, children_system = map(int, fields[11:15])
    return int(fields[1]), user + system, children_user + children_system


def read_cpu(running=()):
    """`running`: children that go on meanwhile."""
    tick = 1 / os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, wait, irq, soft, stolen = (
        int(field) * tick for field in first_line("/proc/stat").split()[1:9])
    busy = user + nice + system + irq + soft
    own = sum(usage.ru_utime + usage.ru_stime for usage in map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
    own += sum(sum(ticks_of(pid)[1:]) for pid in running) * tick
    threads = [ticks_of(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    kernel = sum(ticks for parent, ticks, _ in threads if parent == KTHREADD) * tick
    return CpuReading(busy + idle + wait + stolen, busy, stolen, own, kernel)


def shares_between(before, after):
    """Children that were not named must have ended before the second reading."""
    gone = CpuReading(*(b - a for a, b in zip(before, after)))
    if gone.total <= 0:
        return CpuShares(0, 0)
    foreign = gone.busy - gone.own - gone.kernel
    return CpuShares(max(0, foreign / gone.total), gone.stolen / gone.total)


def is_busy(shares):
    return shares.foreign > 0.03 or shares.stolen > 0.01


class BusyRounds:
    """What becomes of a round that others disturbed.

    on_busy: "repeat" (as often as there are rounds, then give up), "lenient"
    (half as often, then take them as they are) or "take"."""

    def __init__(self, on_busy, rounds):
        self.on_busy = on_busy
        self.most = {"repeat": rounds, "lenient": rounds // 2, "take": 0}[on_busy]
        self.repeated = self.kept = 0

    def keep(self, number, shares):
        """Whether the round counts; the first one counts for nothing, and is
        kept in any case. NotMeasured: give up."""
        busy = is_busy(shares)
        again = busy and number > 0 and self.repeated < self.most
        if busy:
            print(f"round {number}: {100 * shares.foreign:.1f} % used by others, "
                  f"{100 * shares.stolen:.1f} % stolen{': again' if again else ''}")
        if not busy or number == 0:
            return True
        if again:
            self.repeated += 1
            return False
        if self.on_busy == "repeat":
            raise NotMeasured(f"the machine stays busy: {self.repeated} rounds were "
                              "repeated; --force takes them as they are")
        self.kept += 1
        return True


class CoreDistance:
    """Whether the first two processors share a cache just now.

    A hypervisor may move one of a guest's processors to cores with a cache of
    their own, and back, many times a minute; nothing in the guest tells. What
    one processor writes and the other reads then takes several times as long.
    `ratio`: what writing through the caches takes over writing past them."""
    # Between what was measured with a common cache (0.6 to 3.6) and without
    # one (6.8 to 17).
    APART = 5
    MOST_AGAIN = 5  # times in a row

    def __init__(self, ratio, patience=5):
        self.ratio, self.patience = ratio, patience
        self.always_apart = False
        self.parted = self.kept = self.in_a_row = 0

    def apart(self):
        return not self.always_apart and self.ratio() > self.APART

    def wait_until_near(self):
        """Where that never comes the machine is so: nothing waits from then on,
        and all runs count."""
        limit = time.monotonic() + self.patience
        while self.apart():
            self.always_apart = time.monotonic() >= limit
            time.sleep(0.02)

    def have_parted(self):
        """Whether what ran meanwhile is to be done again."""
        if not self.apart():
            self.in_a_row = 0
            return False
        if self.in_a_row == self.MOST_AGAIN:
            self.in_a_row = 0
            self.kept += 1
            return False
        self.in_a_row += 1
        self.parted += 1
        return True


class Programs:
    """The benchmarks' programs of a build."""

    def __init__(self, build):
        self.dir = pathlib.Path(build).resolve() / "bench"

    def path(self, name):
        path = self.dir / name
        if not os.access(path, os.X_OK):
            raise NotMeasured(
                f"there is no {path}; ninja -C {self.dir.parent} benchmarks builds "
                "it where its packages are (./deploy/install-deps --tests --bench)")
        return str(path)

    def limit(self, *words):
        """What the machine allows, by limits_probe."""
        done = subprocess.run([self.path("limits_probe"), *map(str, words)],
                              capture_output=True, text=True, check=True,
                              timeout=120)
        return float(done.stdout)


def check_idle():
    """Of benchmarks that do not watch their rounds."""
    before = read_cpu()
    time.sleep(3)
    shares = shares_between(before, read_cpu())
    print(f"machine: {100 * shares.foreign:.1f} % used by others, "
          f"{100 * shares.stolen:.1f} % stolen over 3 s")
    return not is_busy(shares)


def describe():
    def cpu(name):
        found = re.search(rf"^{name}\s*: (.*)$", read("/proc/cpuinfo"), re.M)
        return found.group(1) if found else "unknown"

    caches = []
    for index in range(8):
        cache = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        if first_line(cache + "size"):
            caches.append("L{} {} {}".format(*(
                first_line(cache + name) for name in ("level", "type", "size"))))
    return {
        "cpu": cpu("model name"),
        # Names that hypervisors give say less.
        "cpu_family": f"{cpu('cpu family')}.{cpu('model')}.{cpu('stepping')}",
        "caches": ", ".join(caches) or "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": first_line("/proc/meminfo").partition(":")[2].strip(),
        # Without what the host's builder has added.
        "kernel": f"Linux {os.uname().release.partition('-')[0]}",
        "cgroup_cpu_max": first_line("/sys/fs/cgroup/cpu.max") or "none",
        "load_average": first_line("/proc/loadavg"),
        "time": datetime.datetime.now(datetime.timezone.utc).strftime(
            "%Y-%m-%dT%H:%M:%SZ"),
    }


def said(*command):
    """The first line that a command says, or "none"."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    return done.stdout.partition("\n")[0].strip() or "none"


def versions():
    def package(name):
        return "package " + said("dpkg-query", "-W", "-f", "${Version}\\n", name)

    project = re.search(r"project\(lockstep VERSION ([\d.]+)",
                        read(ROOT / "CMakeLists.txt"))
    return {"lockstep": project.group(1) if project else "unknown",
            "compiler": said("c++", "-dumpfullversion"),
            "openmpi": f"{said('mpirun', '--version')}; {package('openmpi-bin')}",
            "gloo": package("libgloo0")}  # its headers tell no version
