"""R7: a rank of a PyTorch program is killed, beside its peers.

Each side runs peers/recovery_rank.py: two ranks on the CPU, one model with AdamW,
steps of 20 ms. Rank 1 gets SIGKILL at a random moment. A sample is the time from
there until both ranks have committed a step that the new rank 1 took part in.

  lockstep         lockstep.torch.Replica, on a cluster of this machine, two workers
  lockstep-warm    the same with --warm-starts; it is killed when an interpreter waits
  torchft          Manager, lighthouse and ProcessGroupGloo, the best timeouts
  torchft-default  the same with its own timeouts
  reconfigure      _reconfigure() of torch.distributed's Gloo, over a TCPStore that
                   no rank holds
  torchrun         all ranks start again, from a checkpoint of each step

Nothing of torchft and of _reconfigure starts a lost rank again: this program does,
as soon as the old one has ended, and no launcher is quicker. A round starts each
side afresh, kills, and ends it, so only one side runs at a time. Which one begins
changes from round to round.

But for lockstep-warm every replacement is a cold one: it imports torch, and the
first optimizer imports torch._dynamo. How long `import torch` takes alone is
measured in each round: the limit of a cold replacement. Each new process says how
long it took from its first line until all was imported and the model was made. The
results of each peer are

  R7-PEER           our cold replacement beside it, started alike
  R7-PEER-imported  both without that time
  R7-PEER-warm      our warm start beside it, which it has nothing like
"""
import collections
import contextlib
import os
import pathlib
import random
import select
import signal
import subprocess
import tempfile
import time

from . import machine, rows, steps
from .jobs import LocalCluster
from .report import BenchError, NotMeasured, Result, median, pool, print_results, seconds
from .torch_rows import python_of

RANKS = 2
LOST = 1  # the rank that is killed
WARM_UP = 25  # steps of both ranks before a kill
ROUNDS, KILLS = 8, 2  # kills: of a side in a round
MOST_PAUSE = 0.5  # seconds between the warm-up and a kill
SEEDS = {"moments of kills": "1"}
START_LIMIT, RECOVERY_LIMIT, END_LIMIT = 180, 180, 30  # seconds
POLL = 0.005
PROGRAM = machine.PEERS / "recovery_rank.py"
SERVER = machine.PEERS / "recovery_server.py"
IMPORT = "import time, torch; print(time.monotonic_ns())"
# Of those tried, shorter ones changed nothing: the new rank comes later.
BEST_LIGHTHOUSE = ("--heartbeat-timeout-ms", "500", "--join-timeout-ms", "100",
                   "--quorum-tick-ms", "10")
BEST_HEARTBEAT = ("--heartbeat-ms", "50")
# Those of torchft_lighthouse.
OWN_LIGHTHOUSE = ("--heartbeat-timeout-ms", "5000", "--join-timeout-ms", "60000",
                  "--quorum-tick-ms", "100")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
            "--nproc-per-node", str(RANKS), "--max-restarts", "1000",
            "--monitor-interval", "0.01")

# A step that a rank says it has committed.
Commit = collections.namedtuple("Commit", "step time pid crc")
# Seconds from a kill to the next step of all ranks, to the first line of a new process,
# and, of that, how long the new processes imported; committed steps that are gone.
Kill = collections.namedtuple("Kill", "seconds begins imports lost")


class Log:
    """The commits of a rank, as it writes them."""

    def __init__(self, path):
        self.path, self.place, self.commits = path, 0, []

    def read(self):
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(self.place)
                block = file.read()
            block = block[:block.rfind(b"\n") + 1]  # the rest is being written
            self.place += len(block)
            for line in block.decode().splitlines():
                self.commits.append(self.parse(*line.split()))
        return self.commits

    def parse(self, step, when, pid, crc):
        return Commit(int(step), int(when), int(pid), crc)


def recovered(logs, killed, since, lost=LOST):
    """The commits, one of each rank, of the first step that all ranks have made and
    that the new rank took part in; None: not yet. `killed`: a pid of rank `lost`, at
    `since`."""
    newest = [{commit.step: commit for commit in log if commit.time > since}
              for log in logs]
    for step, commit in sorted(newest[lost].items()):
        if commit.pid != killed and all(step in log for log in newest):
            return [log[step] for log in newest]
    return None


def differing(sides):
    """Steps of which not all ranks of all sides say the same parameters. `sides`:
    the logs of each."""
    seen = collections.defaultdict(set)
    for commit in pool(pool(sides)):
        seen[commit.step].add(commit.crc)
    return sorted(step for step, crcs in seen.items() if len(crcs) > 1)


class Side:
    """Two ranks of one contender. `keeps`: the other rank's process stays. `ours`: it
    may not fail."""
    keeps, ours = True, False

    def __init__(self, name, title, python):
        self.name, self.title, self.python = name, title, python

    def open(self):
        """Before the first round."""

    def close(self):
        """After the last one."""

    def launch(self):
        """Starts both ranks, with their files in `directory`."""
        raise NotImplementedError

    def stop(self):
        """Ends all of it."""
        raise NotImplementedError

    def check(self):
        """Raises BenchError where nothing more can be expected."""

    def lose(self, pid):
        """Kills the process of rank LOST."""
        os.kill(pid, signal.SIGKILL)

    def start(self, directory):
        self.directory = pathlib.Path(directory)
        self.logs = [Log(self.directory / f"rank-{rank}") for rank in range(RANKS)]
        self.launch()

    def command(self, peer, *more):
        return steps.tuned([*self.python, str(PROGRAM), "--peer", peer, "--directory",
                            str(self.directory), *more])

    def read(self):
        return [log.read() for log in self.logs]

    def wait(self, what, limit, condition):
        """What `condition` says of the logs, once that is true."""
        deadline = time.monotonic() + limit
        while not (found := condition(self.read())):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name}: {what} after {limit} s: {self.said()}")
            self.check()
            time.sleep(POLL)
        return found

    def said(self):
        logs = [machine.read(path)[-600:] for path in sorted(self.directory.glob("log*"))]
        return "\n".join(filter(None, logs)) or "the ranks said nothing"

    def warm_up(self, since):
        """Until both ranks have made WARM_UP steps after `since`."""
        self.wait("the ranks do not train", START_LIMIT, lambda logs: all(
            len(log) >= WARM_UP and log[-WARM_UP].time > since for log in logs))

    def kill(self):
        """(a Kill, when all ranks had made a step again)."""
        pids = [log[-1].pid for log in self.read()]
        start = time.monotonic_ns()
        self.lose(pids[LOST])
        commits = self.wait("no step of all ranks", RECOVERY_LIMIT,
                            lambda logs: recovered(logs, pids[LOST], start))
        new = [commit.pid for commit, pid in zip(commits, pids) if commit.pid != pid]
        if self.keeps and len(new) > 1:
            raise BenchError(f"{self.name}: another rank was started again, too")
        end = max(commit.time for commit in commits)
        before = max(commit.step for commit in pool(self.read()) if commit.time <= start)
        begun, ready = self.begun(new)
        return Kill((end - start) / 1e9, (begun - start) / 1e9, (ready - begun) / 1e9,
                    max(0, before + 1 - commits[LOST].step)), end

    def begun(self, pids):
        """The first line of the first of these processes, and when the last one had
        imported all."""
        times = [machine.read(self.directory / f"begun-{pid}").split() for pid in pids]
        return (min(int(begun) for begun, _ in times),
                max(int(ready) for _, ready in times))


class Ours(Side):
    """One cluster for all rounds, a job for each. `warm`: with warm starts."""
    ours = True

    def __init__(self, programs, warm=False):
        super().__init__("lockstep-warm" if warm else "lockstep",
                         "lockstep.torch.Replica" + (", warm starts" if warm else ""),
                         python_of(programs))
        self.warm = warm
        self.cluster = LocalCluster(programs, workers=RANKS, cpus=8)

    def open(self):
        self.cluster.open()

    def close(self):
        self.cluster.close()

    def launch(self):
        self.job = "r7-" + self.directory.name
        self.taken = 0
        self.cluster.submit(self.job, RANKS, self.command("lockstep"),
                            *(["--warm-starts"] if self.warm else []))

    def warm_up(self, since):
        super().warm_up(since)
        if not self.warm:
            return
        # One for each rank, and one more for each that became a rank.
        self.wait("no interpreter waits", START_LIMIT,
                  lambda _: self.ready() >= RANKS + self.taken)
        self.taken += 1

    def ready(self):
        words = f"job {self.job}: an interpreter is ready"
        return sum(machine.read(log).count(words)
                   for log in pathlib.Path(self.cluster.directory).glob("worker-*/log"))

    def stop(self):
        self.cluster.cancel(self.job)

    def said(self):
        return self.cluster.describe(self.job)[-1500:]


class Kept(Side):
    """Ranks that this program starts, and starts again, and the server they need.
    `server`: what recovery_server.py is to be, and its options."""

    def __init__(self, name, title, python, server, options=()):
        super().__init__(name, title, python)
        self.server, self.options, self.processes = server, options, {}

    def spawn(self, name, words, **pipes):
        with open(self.directory / f"log-{name}", "ab") as log:
            self.processes[name] = subprocess.Popen(words, stderr=log, **pipes)
        return self.processes[name]

    def launch(self):
        self.losses = 0
        server = self.spawn("server", steps.tuned(
            [*self.python, str(SERVER), *self.server]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        there = select.select([server.stdout], [], [], START_LIMIT)[0]
        self.address = there and server.stdout.readline().decode().strip()
        if not self.address:
            raise BenchError(f"{self.name}: no server: {self.said()}")
        for rank in range(RANKS):
            self.begin(rank)

    def begin(self, rank):
        self.spawn(rank, self.command(
            self.name.partition("-")[0], "--rank", str(rank), "--losses",
            str(self.losses), "--server", self.address, *self.options),
            stdout=subprocess.DEVNULL)

    def lose(self, pid):
        super().lose(pid)
        self.processes[LOST].wait(END_LIMIT)
        self.losses += 1
        self.begin(LOST)

    def check(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise BenchError(f"{self.name}: {name} has ended: {self.said()}")

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()
        self.processes = {}


class Torchrun(Side):
    keeps = False

    def __init__(self, python):
        super().__init__("torchrun", "torchrun, a checkpoint of each step", python)
        self.agent = None

    def launch(self):
        words = self.command("torchrun")
        at = words.index(str(PROGRAM))
        with open(self.directory / "log", "ab") as log:
            self.agent = subprocess.Popen([*words[:at], *TORCHRUN, *words[at:]],
                                          stdout=log, stderr=log, start_new_session=True)

    def check(self):
        if self.agent.poll() is not None:
            raise BenchError(f"torchrun has ended: {self.said()}")

    def stop(self):
        agent, self.agent = self.agent, None
        if agent is None:
            return
        agent.terminate()
        try:
            agent.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def peers_of(python):
    """Those that can be started here; prints why others cannot."""
    sides = [
        Kept("reconfigure", "_reconfigure() of torch's Gloo, started again at once",
             python, ("store",)),
        Torchrun(python)]
    torchft = steps.framework_python("torchft")
    if not os.path.exists(torchft):
        print(f"left out: torchft: there is no {torchft}: run "
              "tests/bench/peers/setup_torchft")
        return sides
    return [
        Kept("torchft", "torchft, its best timeouts, started again at once",
             ["env", torchft], ("lighthouse", *BEST_LIGHTHOUSE), BEST_HEARTBEAT),
        Kept("torchft-default", "torchft, its own timeouts, started again at once",
             ["env", torchft], ("lighthouse", *OWN_LIGHTHOUSE)), *sides]


class Rounds:
    """The kills of each side, by its name and then by round; `import_torch`: seconds
    of that alone, in each round. A peer that fails is left out, and says why."""

    def __init__(self, sides, rounds):
        self.sides, self.import_torch = list(sides), []
        self.kills = {side.name: [] for side in sides}
        self.logs = []
        self.draw = random.Random(int(SEEDS["moments of kills"]))
        with contextlib.ExitStack() as stack:
            self.directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="lockstep-recovery-bench-"))
            for side in sides:
                stack.callback(side.close)
                side.open()
            for number in range(rounds):
                self.take(number)
        if rounds > 3:
            self.kills = {name: kills[1:] for name, kills in self.kills.items()}
            del self.import_torch[0]

    def take(self, number):
        self.import_torch.append(import_seconds(self.sides[0].python))
        turn = number % len(self.sides)
        for side in self.sides[turn:] + self.sides[:turn]:
            try:
                self.kills[side.name].append(self.kill(side, number))
            except BenchError as error:
                if side.ours:
                    raise
                print(f"left out: {error}")
                self.sides.remove(side)
                del self.kills[side.name]

    def kill(self, side, number):
        own = pathlib.Path(self.directory, f"{side.name}-{number}")
        own.mkdir()
        kills, end = [], 0
        try:
            side.start(own)
            for _ in range(KILLS):
                side.warm_up(end)
                time.sleep(self.draw.uniform(0, MOST_PAUSE))
                kill, end = side.kill()
                kills.append(kill)
        finally:
            self.logs.append(side.read())
            side.stop()
        print(f"round {number}: {side.name}: " + ", ".join(
            f"{seconds(kill.seconds)} (imports {seconds(kill.imports)})" for kill in kills))
        return kills


def import_seconds(python):
    """From the start of a process until it has imported torch."""
    start = time.monotonic_ns()
    done = subprocess.run(steps.tuned([*python, "-c", IMPORT]), capture_output=True,
                          text=True, timeout=START_LIMIT, check=True)
    return (int(done.stdout) - start) / 1e9


def column(kills, less):
    """Seconds, or what the new processes did not import, by round."""
    return [[max(kill.seconds - less * kill.imports, 1e-3) for kill in taken]
            for taken in kills]


def results_of(run, ours, warm):
    """Three results for each peer."""
    wrong = differing(run.logs)
    checked = ("parameters of all sides and ranks equal to the bit at each step"
               if not wrong else f"parameters DIFFER at step {wrong[0]}")
    limit = median(run.import_torch)
    results = []
    for side in run.sides:
        if side in (ours, warm):
            continue
        for suffix, mine, less in (("", ours, 0), ("-imported", ours, 1), ("-warm", warm, 0)):
            result = Result(
                f"R7-{side.name}{suffix}", side.title,
                column(run.kills[mine.name], less), column(run.kills[side.name], less),
                ranks=RANKS, verified=not wrong, checked=checked)
            if not suffix:
                result.limit = limit
                result.limit_what = "import torch alone"
            if mine is warm:
                result.must, result.aim = rows.RECOVERY["R7"].get(side.name, (0, 0))
            results.append(result)
    return results


def run(programs, options):
    """(results, versions)."""
    ours, warm = Ours(programs), Ours(programs, warm=True)
    load = machine.first_line("/proc/loadavg")
    taken = Rounds([ours, warm, *peers_of(ours.python)], options.rounds or ROUNDS)
    print(f"load average: {load} before, {machine.first_line('/proc/loadavg')} after")
    for side in taken.sides:
        kills = pool(taken.kills[side.name])
        middle = {field: seconds(median([getattr(kill, field) for kill in kills]))
                  for field in ("seconds", "begins", "imports")}
        print(f"{side.name}: {len(kills)} kills, p50 {middle['seconds']}; the new process "
              f"begins after {middle['begins']} and imports for {middle['imports']}; at "
              f"most {max(kill.lost for kill in kills)} committed steps lost")
    print(f"import torch alone: {seconds(median(taken.import_torch))}")
    if len(taken.sides) == 2:
        raise NotMeasured("there is no peer")
    results = results_of(taken, ours, warm)
    print_results(results)
    return results, versions_of(taken.sides)


def versions_of(sides):
    code = "import importlib.metadata as m; print(m.version('{}'))"
    found = {"torch": machine.said(*sides[0].python, "-c", code.format("torch"))}
    for side in sides:
        if side.name == "torchft":
            found["torchft"] = machine.said(*side.python, "-c", code.format("torchft"))
    return found
