"""A1 to A8: the all-reduce, ours and its peers by turns in fresh processes."""
import array
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from . import machine, rows
from .report import BenchError, NotMeasured, Result, median, print_results

MOST_STALLS = 2
ROUND_WATCHDOG, CALIBRATION_WATCHDOG = 30, 8  # seconds
UNCACHED = 8 * rows.MIB  # a buffer that the caches do not hold
CHECKED = "every rank's last sum of each round against float64, both sides"
SEEDS = {"all-reduce input": "xorshift64*, 88172645463325252 + 977 * rank"}


def samples_for(size, calibration=False):
    """(samples of a round, operations of a sample)."""
    if size <= rows.KIB:
        return (5 if calibration else 20), 100
    if size <= 64 * rows.KIB:
        return (200 if calibration else 2000), 1
    if size <= 4 * rows.MIB:
        return (40 if calibration else 200), 1
    return (5 if calibration else 20), 1


class Hosts:
    """Network namespaces as hosts, whose lines are shaped."""

    def __init__(self, count, gbit):
        self.prefix, self.count = f"lsb{os.getpid()}", count
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
            raise NotMeasured("hosts as network namespaces need root, ip and tc")
        self.call("up", f"{gbit:g}gbit")

    def call(self, what, *more):
        done = subprocess.run(
            [machine.PEERS / "namespaces", what, self.prefix, str(self.count), *more],
            capture_output=True, text=True, timeout=20)
        if done.returncode and what == "up":
            self.call("down")
            raise NotMeasured("no network namespaces: " + done.stderr[-600:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("down")

    def command(self, host, words):
        return ["ip", "netns", "exec", f"{self.prefix}-{host}", *words,
                "--address", f"10.99.0.{host + 1}"]


class Probe:
    """One run of a contender on all ranks, in fresh processes. `cases`: (bytes,
    variant), each with samples_for(bytes, calibration)."""

    def __init__(self, programs, contender, ranks, cases, hosts=None,
                 calibration=False):
        self.programs, self.contender, self.ranks = programs, contender, ranks
        self.cases = [(size, variant, *samples_for(size, calibration))
                      for size, variant in cases]
        self.hosts = hosts
        self.watchdog = CALIBRATION_WATCHDOG if calibration else ROUND_WATCHDOG

    def command(self, rank, directory):
        """Rank `rank`'s; with a starter that of all ranks."""
        contender = self.contender
        words = [word.replace("%n", str(self.ranks)) for word in contender.starter]
        words += [self.programs.path(contender.program), *contender.arguments]
        if not contender.starter:
            words += ["--rank", str(rank), "--ranks", str(self.ranks), "--store",
                      f"{directory}/store"]
        words += ["--board", f"{directory}/board", "--watchdog", str(self.watchdog)]
        for size, variant, samples, batch in self.cases:
            words += ["--case", f"{size}:{samples}:{batch}:{variant}"]
        return self.hosts.command(rank, words) if self.hosts else words

    def run(self):
        """Fills in, by case: `seconds` of one operation, from the first rank's
        start to the last rank's end; `right`. `finished`: cases before the one
        in which it stopped. `failure`: why it stopped; empty for all is well."""
        with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as directory:
            os.mkdir(directory + "/store")
            board = pathlib.Path(directory, "board")
            board.write_bytes(bytes(4096 + 16 * self.ranks * sum(
                samples for _, _, samples, _ in self.cases)))
            self.failure = self.start_and_wait(directory)
            self.read_board(board.read_bytes())
            self.output = pathlib.Path(directory, "out").read_text(errors="replace")
            errors = pathlib.Path(directory, "err").read_text(errors="replace")
        if not self.failure and self.done != self.ranks:
            self.failure = "it ended before its time"
        if self.failure:
            self.failure = f"{self.contender.label}: {self.failure} {errors[-600:]}"
        return self

    def start_and_wait(self, directory):
        # Open MPI refuses root else.
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        running = []
        try:
            with open(directory + "/out", "ab") as out, \
                    open(directory + "/err", "ab") as err:
                for rank in range(1 if self.contender.starter else self.ranks):
                    running.append(subprocess.Popen(
                        self.command(rank, directory), stdin=subprocess.DEVNULL,
                        stdout=out, stderr=err, env=environment,
                        start_new_session=True))
            deadline = time.monotonic() + self.watchdog + 5
            while running:
                for process in running:
                    if process.poll() is None:
                        continue
                    running.remove(process)
                    if process.returncode:
                        return f"it ended with {process.returncode}"
                    break
                if time.monotonic() >= deadline:
                    return "it did not end"
                time.sleep(0.002)
            return ""
        finally:
            for process in running:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def read_board(self, board):
        """As peers/probe.h lays it out."""
        wrong, self.done = array.array("Q", board[128:144])
        finished = array.array("I", board[144:400])
        times = array.array("q", board[4096:])
        self.seconds, self.right, self.finished, at = [], [], 0, 0
        for index, (_, _, samples, batch) in enumerate(self.cases):
            ends = at + 2 * self.ranks * samples
            self.seconds.append([
                (max(times[i + 1:i + 2 * self.ranks:2]) -
                 min(times[i:i + 2 * self.ranks:2])) * 1e-9 / batch
                for i in range(at, ends, 2 * self.ranks)])
            self.right.append(not wrong >> index & 1)
            if self.finished == index and finished[index] == self.ranks:
                self.finished += 1
            at = ends


class Engine:
    """One benchmark. `options`: rounds, on_busy, bytes, most_bytes, likely,
    backend, plan, alone, verbose."""

    def __init__(self, id, programs, options):
        self.id, self.bench = id, rows.ALL_REDUCES[id]
        self.programs, self.options = programs, options
        backend = options.backend or self.bench.backend
        arguments = ["--backend", backend, "--pin", "1" if self.bench.pin else "0"]
        if options.plan:
            arguments += ["--plan", options.plan]
        self.ours = rows.Contender(backend, "engine_probe", tuple(arguments))
        self.rows = [row for row in self.bench.rows
                     if row.bytes <= options.most_bytes and
                     options.bytes in (0, row.bytes)]
        self.distance = machine.CoreDistance(lambda: programs.limit("apart"))
        self.busy = machine.BusyRounds(options.on_busy, options.rounds)
        self.hosts, self.stalls, self.last_failure = None, {}, ""
        self.choices = []  # by row: (seconds, contender, variant), the best last

    def run(self):
        print(f"{self.id}: {self.bench.what}, {self.bench.ranks} ranks")
        if not self.rows:
            raise BenchError("no row of that size")
        if not self.bench.line_gbit:
            return self.measure()
        with Hosts(self.bench.ranks, self.bench.line_gbit) as self.hosts:
            return self.measure()

    def measure(self):
        if self.options.alone:
            return self.measure_alone()
        self.choices = self.calibrate()
        while True:  # anew where a peer stalled
            results = self.begin()
            if self.take_rounds(results):
                break
        self.finish(results)
        return results

    def measure_alone(self):
        """Ours without a peer, for tuning."""
        for size in dict.fromkeys(row.bytes for row in self.rows):
            taken = []
            for number in range(self.options.rounds):
                result = self.run_near(self.ours, [(size, self.bench.variant)])
                if result.failure or not result.right[0]:
                    raise BenchError(result.failure or "a wrong sum")
                taken += result.seconds[0] if number else []
            print(f"{size:>9} B {median(taken) * 1e6:10.2f} us  {self.ours.label}, "
                  f"{result.output.strip()}")
        return []

    def run_near(self, contender, cases, calibration=False):
        """Again where processors that share a cache parted meanwhile."""
        while True:
            self.distance.wait_until_near()
            result = Probe(self.programs, contender, self.bench.ranks, cases,
                           self.hosts, calibration).run()
            if result.failure or not self.distance.have_parted():
                return result

    def calibrate(self):
        """Tries every contender on every size of its peer's rows."""
        choices = [[] for _ in self.rows]
        for peer, (name, contenders) in enumerate(self.bench.peers):
            of_peer = [i for i, row in enumerate(self.rows) if row.peer == peer]
            for contender in contenders if of_peer else ():
                if contender.likely or not self.options.likely:
                    self.try_one(contender, of_peer, choices)
            for row in of_peer:
                choices[row].sort(key=lambda choice: -choice[0])
                if not choices[row]:
                    raise NotMeasured(f"{name}: none of its settings ran"
                                      f"{self.last_failure}")
        return choices

    def try_one(self, contender, of_peer, choices):
        try:
            self.programs.path(contender.program)
        except NotMeasured as missing:
            self.last_failure = f"; {missing}"
            return
        if contender.starter and not shutil.which(contender.starter[0]):
            raise NotMeasured(f"there is no {contender.starter[0]}; "
                              "./deploy/install-deps --tests")
        cases = [(row, variant) for row in of_peer
                 for variant in range(len(contender.variants))
                 if self.stalls.get((contender.family, self.rows[row].bytes), 0) <
                 MOST_STALLS]
        if not cases:
            return
        result = self.run_near(
            contender, [(self.rows[row].bytes, variant) for row, variant in cases], True)
        if result.failure:
            self.note_failure(contender, result)
        for (row, variant), taken, right in zip(
                cases[:result.finished], result.seconds, result.right):
            if self.options.verbose:
                print(f"  {self.rows[row].bytes:>9} B {median(taken) * 1e6:10.2f} us  "
                      f"{contender.label} {contender.variants[variant]}"
                      f"{'' if right else '  WRONG'}")
            if right:
                choices[row].append((median(taken), contender, variant))

    def note_failure(self, contender, result):
        self.last_failure = f"; {result.failure}"
        if result.finished == len(result.cases):
            return
        size = result.cases[result.finished][0]
        print(f"left out from {size} bytes on: {result.failure}")
        if contender.family:
            key = contender.family, size
            self.stalls[key] = self.stalls.get(key, 0) + 1

    def begin(self):
        """Empty results against the peers that are the best now."""
        results = []
        for row, choices in zip(self.rows, self.choices):
            _, contender, variant = choices[-1]
            label = f"{contender.label} {contender.variants[variant]}".strip()
            results.append(Result(
                self.id, f"{self.bench.peers[row.peer].name}: {label}", [], [],
                row.bytes, self.bench.ranks, must=row.must, aim=row.aim,
                checked=CHECKED))
            command = Probe(self.programs, contender, self.bench.ranks,
                            [(row.bytes, variant)], self.hosts).command(0, "DIR")
            print(f"{row.bytes:>9} bytes against {results[-1].peer}\n  "
                  f"{' '.join(command)}")
        print(f"{self.options.rounds} rounds, the first one dropped", flush=True)
        self.bare_seconds = {}
        self.busy.kept = 0
        return results

    def take_rounds(self, results):
        """False where a peer stalled: its next best setting takes its place."""
        number = 0
        while number < self.options.rounds:
            before = machine.read_cpu()
            bare = self.run_bare() if number % 2 == 0 else {}
            sides = self.run_sides(number)
            if sides is None:
                return False
            if number % 2 == 1:
                bare = self.run_bare()
            if not self.busy.keep(
                    number, machine.shares_between(before, machine.read_cpu())):
                continue
            for result, (ours, theirs) in zip(results, sides):
                result.verified &= ours.right[0] and theirs.right[0]
                if number == 0:
                    print(f"ours, {result.bytes} bytes: "
                          f"{ours.output.strip() or self.ours.label}")
                    continue
                result.ours.append(ours.seconds[0])
                result.theirs.append(theirs.seconds[0])
            for place, taken in bare.items() if number else ():
                self.bare_seconds.setdefault(place, []).extend(taken)
            number += 1
        return True

    def run_sides(self, number):
        """By row (ours, peer's); null where a peer stalled."""
        sides = []
        for row, choices in zip(self.rows, self.choices):
            _, contender, variant = choices[-1]
            turns = [(self.ours, self.bench.variant), (contender, variant)]
            taken = [None, None]
            for side in (number % 2, 1 - number % 2):
                result = taken[side] = self.run_near(
                    turns[side][0], [(row.bytes, turns[side][1])])
                if not result.failure:
                    continue
                if side == 0:
                    raise BenchError(result.failure)
                print(f"left out: {result.failure}")
                choices.pop()
                if not choices:
                    raise BenchError(result.failure)
                return None
            sides.append(taken)
        return sides

    def run_bare(self):
        """What no engine could do without, by (row, variant): before the sides,
        after them in the next round."""
        taken = {}
        for i, row in enumerate(self.rows):
            if self.bench.bare is None or row.bytes < UNCACHED:
                continue
            variants = range(len(self.bench.bare.variants))
            result = self.run_near(self.bench.bare, [(row.bytes, v) for v in variants])
            if result.failure or not all(result.right):
                raise BenchError(result.failure or "bare_reduce: a wrong sum")
            taken.update(((i, v), result.seconds[v]) for v in variants)
        return taken

    def finish(self, results):
        distance = self.distance
        for i, result in enumerate(results):
            result.repeated_rounds, result.busy_rounds = self.busy.repeated, self.busy.kept
            result.parted_runs, result.kept_parted_runs = distance.parted, distance.kept
            distance.wait_until_near()
            result.apart = distance.always_apart
            self.set_limit(result)
            self.set_bare_limit(i, result)
        if distance.always_apart:
            print("two processors have no common cache")
        elif distance.parted:
            print(f"{distance.parted} runs of either side done again: processors that "
                  f"share a cache parted; {distance.kept} kept after "
                  f"{distance.MOST_AGAIN} times")
        print_results(results)

    def set_limit(self, result):
        """What the row could be at most here. Nothing sensible is known in one
        memory below UNCACHED, but for two ranks and 64 KiB or less."""
        ranks, limit = self.bench.ranks, self.programs.limit
        if self.bench.line_gbit:
            # Reduce-scatter and all-gather: each rank sends and receives these.
            result.limit = (2 * result.bytes * (ranks - 1) / ranks /
                            (self.bench.line_gbit * 1e9 / 8))
            result.limit_what = (f"2 (n - 1) / n of its bytes at the line's "
                                 f"{self.bench.line_gbit:g}gbit, headers not counted")
        elif self.bench.backend == "tcp":
            result.limit = limit("loopback", result.bytes)
            result.limit_what = ("as many bytes each way over one connection by plain "
                                 "send and recv, adding nothing, in this run")
        elif result.bytes >= UNCACHED:
            result.limit = limit("memory", ranks, result.bytes)
            result.limit_what = (f"each of {ranks} buffers read once and written once, "
                                 "at the rate of q += p on all cores in this run")
        elif ranks == 2 and result.bytes <= 64 * rows.KIB:
            result.limit = limit("cache", result.bytes)
            result.limit_what = ("two threads that write as many bytes, raise a flag, "
                                 "wait for the other's and add, in this run")

    def set_bare_limit(self, row, result):
        """Its best is nearer to what can be reached than what set_limit knows."""
        best = None
        for (of_row, variant), taken in self.bare_seconds.items():
            if of_row != row:
                continue
            label, name = self.bench.bare.label, self.bench.bare.variants[variant]
            print(f"{result.bytes} B, {label}, {name}: {median(taken) * 1e6:.2f} us")
            if best is None or median(taken) < best:
                best = result.limit = median(taken)
                result.limit_what = (f"{self.bench.ranks} {label}, waiting {name}, by "
                                     "turns with both sides")


def run(id, programs, options):
    """The benchmark's results; with options.alone none."""
    return Engine(id, programs, options).run()
