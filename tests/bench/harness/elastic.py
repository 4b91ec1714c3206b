"""R8: a rank of an elastic PyTorch job is killed, and the others train on.

Each job runs peers/elastic_rank.py: four ranks on this host, lockstep.torch.Replica,
AdamW, 100 MiB of parameters and optimizer state, steps of at least 20 ms. Ranks 1 to
3 in turn get SIGKILL at a random moment, the next one when all ranks train again.
Every replacement is cold: it imports torch.

  R8           until all other ranks have committed a step in a later recovery, so
               one that the killed rank had no part in; must be 150 ms
  R8-p99       its 99th percentile (of up to 100 kills the longest); must be 500 ms
  R8-held      the same job, not elastic: the others hold their state meanwhile
  R8-return    the longest time between two steps of a rank that was not killed when
               a new process takes part again, beside an undisturbed step
  R8-goodput   wall time for each committed step, beside an undisturbed step: the
               ratio is the goodput; R8-held-goodput is that of the other job

Then three jobs without a pause in their steps take turns: an elastic one, one that is
not, and an elastic one without rank 3.

  R8-plan      a step of the elastic job, beside one of the job that is not
  R8-away      a step without rank 3, beside one of the whole gang

In the end the elastic job that lost no rank goes on to the step at which the first one
ended: parameters and optimizer state must be equal to the bit. So must the parameters
at each step, of all ranks of jobs of one kind.
"""
import collections
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import tempfile
import time

from . import machine, recoveries, rows, steps
from .jobs import LocalCluster
from .report import BenchError, Result, median, percentile, print_results, seconds, size
from .torch_rows import python_of

RANKS = 4
LEAST = 2  # ranks with which an elastic job goes on
KILLS = 16  # of the elastic job; half as many of the other one
WARM_UP = 15  # steps of all ranks before a kill
MOST_PAUSE = 0.5  # seconds between the warm-up and a kill
STEP_MS = 20
AROUND = 3  # steps before and after a return
ROUNDS, TURN = 13, 10  # of the jobs without kills; steps of a turn
AWAY = RANKS - 1  # the rank that the third of them trains without
MARGIN = 30  # steps until a job ends
SEEDS = {"moments of kills": "1"}
END_LIMIT = 400  # seconds
PROGRAM = machine.PEERS / "elastic_rank.py"
RECEIVED = re.compile(r"each new rank received (\d+) bytes in (\d+) ms")

# A step that a rank has committed.
Step = collections.namedtuple("Step", "step time pid crc recoveries redone shards")
# Of rank `rank`: seconds until the others had made a step, and until all ranks had; the
# longest time between two steps when the rank returned; steps that one of the others, at
# most, computed again because the rank was lost, and because it returned.
Kill = collections.namedtuple("Kill", "rank seconds whole pause redone again")


class Log(recoveries.Log):
    def parse(self, step, when, pid, crc, recoveries, redone, shards):
        return Step(int(step), int(when), int(pid), crc, int(recoveries), int(redone),
                    int(shards))


def others(logs, lost):
    return [log for rank, log in enumerate(logs) if rank != lost]


def before(log, when):
    """The last step of a rank before this time."""
    return [step for step in log if step.time <= when][-1]


def went_on(logs, lost, killed):
    """When all ranks but `lost` had committed the first step that all of them made in
    a recovery after the kill; None: not yet. `killed`: nanoseconds."""
    newer = [{step.step: step for step in log
              if step.time > killed and step.recoveries > before(log, killed).recoveries}
             for log in others(logs, lost)]
    common = set(newer[0]).intersection(*newer[1:])
    return max(log[min(common)].time for log in newer) if common else None


def longest_pause(logs, lost, step):
    """Seconds: the longest between two steps of a rank that was not killed, around
    `step`."""
    return max((after.time - first.time) / 1e9 for log in others(logs, lost)
               for first, after in zip(log, log[1:]) if abs(after.step - step) <= AROUND)


def computed_again(logs, lost, start, end):
    """By one of the others, at most, between these times."""
    return max(before(log, end).redone - before(log, start).redone
               for log in others(logs, lost))


def undisturbed(log, spans):
    """Seconds of each step of a rank that lies in one of the spans, (start, end)."""
    return [(after.time - first.time) / 1e9 for first, after in zip(log, log[1:])
            if any(start <= first.time and after.time <= end for start, end in spans)]


class Job(recoveries.Side):
    """One job on the cluster."""
    ours = True

    def __init__(self, cluster, name, python, elastic, least_ms):
        super().__init__(name, name, python)
        self.cluster, self.elastic, self.least_ms = cluster, elastic, least_ms

    def start(self, directory, target):
        self.directory = pathlib.Path(directory, self.name)
        self.directory.mkdir()
        self.job = "r8-" + self.name
        self.logs = [Log(self.directory / f"rank-{rank}") for rank in range(RANKS)]
        self.aim(target)
        self.launch()

    def launch(self):
        command = steps.tuned([
            *self.python, str(PROGRAM), "--directory", str(self.directory), "--elastic",
            str(int(self.elastic)), "--least-ms", str(self.least_ms)])
        self.cluster.submit(self.job, RANKS, command, "--hang", "off",
                            *(["--elastic", str(LEAST)] if self.elastic else []))

    def aim(self, target, end=False):
        new = self.directory / "target.new"
        new.write_text(f"{target} end\n" if end else f"{target}\n")
        new.rename(self.directory / "target")

    def stop(self):
        self.cluster.cancel(self.job)

    def said(self):
        return self.cluster.describe(self.job)[-1500:]

    def reached(self, target, ranks=range(RANKS)):
        """When the last of these ranks had committed the step, once all have."""
        return self.wait(f"the ranks do not make step {target}", recoveries.START_LIMIT,
                         lambda logs: last_at(logs, target, ranks))

    def turn(self, ranks=range(RANKS)):
        """Seconds of a step, the mean of TURN; one before them counts for nothing."""
        start = max(log[-1].step for log in self.read() if log) + 1
        self.aim(start + TURN)
        return (self.reached(start + TURN, ranks) - self.reached(start, ranks)) / 1e9 / TURN

    def warm_up(self, since):
        self.wait("the ranks do not train", recoveries.START_LIMIT, lambda logs: all(
            len(log) >= WARM_UP and log[-WARM_UP].time > since for log in logs))

    def kill(self, rank):
        """(a Kill, its time, when all ranks trained again)."""
        pids = [log[-1].pid for log in self.read()]
        start = time.monotonic_ns()
        os.kill(pids[rank], signal.SIGKILL)
        commits = self.wait(
            f"no step of all ranks after rank {rank} was killed", recoveries.RECOVERY_LIMIT,
            lambda logs: recoveries.recovered(logs, pids[rank], start, rank))
        if any(commit.pid != pid for commit, pid in others(list(zip(commits, pids)), rank)):
            raise BenchError(f"{self.name}: another rank was started again, too")
        step, end = commits[rank].step, max(commit.time for commit in commits)
        self.reached(step + AROUND)
        logs = self.read()
        went = went_on(logs, rank, start)
        return Kill(rank, (went - start) / 1e9, (end - start) / 1e9,
                    longest_pause(logs, rank, step),
                    computed_again(logs, rank, start, went),
                    computed_again(logs, rank, went, end)), start, end

    def finish(self, target):
        """What each rank says of its state at this step, the last one."""
        self.aim(target, end=True)
        files = [self.directory / f"digest-{rank}" for rank in range(RANKS)]
        self.wait("the ranks do not end", END_LIMIT,
                  lambda _: all(file.exists() for file in files))
        return [file.read_text().strip() for file in files]


def last_at(logs, step, ranks):
    times = [commit.time for rank in ranks for commit in logs[rank] if commit.step == step]
    return max(times) if len(times) == len(ranks) else None


@dataclasses.dataclass
class Killed:
    """A job of which ranks were killed. `step`: seconds of an undisturbed one; `wall`:
    seconds in which `count` steps were committed; `received`: (bytes, milliseconds) by
    new processes; `last`: the step at which it ended."""
    kills: list
    step: float
    wall: float
    count: int
    received: list
    last: int
    logs: list
    digests: list

    def goodput(self):
        return self.count * self.step / self.wall


def kill_ranks(job, directory, count, draw):
    job.start(directory, target=1 << 40)
    kills, spans, end = [], [], 0
    for number in range(count):
        job.warm_up(end)
        begun = end or job.read()[0][-1].time
        time.sleep(draw.uniform(0, MOST_PAUSE))
        kill, start, end = job.kill(1 + number % (RANKS - 1))
        kills.append(kill)
        spans.append((begun, start))
        print(f"{job.name}: rank {kill.rank}: the others after {seconds(kill.seconds)}, "
              f"all after {seconds(kill.whole)}, pause {seconds(kill.pause)}")
    job.warm_up(end)
    log = job.read()[0]
    begun, ended = spans[0][0], log[-1].time
    spans.append((end, ended))
    received = [tuple(map(int, found)) for found in RECEIVED.findall(
        job.cluster.describe(job.job)) if int(found[0])]
    last = max(log[-1].step, ROUNDS * (TURN + 1)) + MARGIN
    digests = job.finish(last)
    return Killed(kills, median(undisturbed(log, spans)), (ended - begun) / 1e9,
                  sum(begun < step.time <= ended for step in log), received, last,
                  job.read(), digests)


class Turns:
    """Three jobs that lose no rank while they are measured: `samples`, by their names
    and then by round."""

    def __init__(self, cluster, python, directory, stack, rounds):
        self.jobs = [Job(cluster, name, python, name != "plain", 0)
                     for name in ("whole", "plain", "away")]
        self.samples = {job.name: [] for job in self.jobs}
        for job in self.jobs:
            stack.callback(job.stop)
            job.start(directory, target=2)
        for job in self.jobs:
            job.reached(2)
        self.lose(self.jobs[2])
        for number in range(rounds):
            turn = number % len(self.jobs)
            for job in self.jobs[turn:] + self.jobs[:turn]:
                ranks = range(AWAY) if job.name == "away" else range(RANKS)
                self.samples[job.name].append([job.turn(ranks)])
        self.samples = {name: taken[1:] for name, taken in self.samples.items()}
        if job_is_whole(self.jobs[2]):
            raise BenchError(f"rank {AWAY} is back too early")

    def lose(self, job):
        """Its new process waits."""
        (job.directory / "away").touch()
        os.kill(job.read()[AWAY][-1].pid, signal.SIGKILL)
        job.aim(4)
        job.reached(4, range(AWAY))


def job_is_whole(job):
    """Whether rank AWAY has a part in the newest step, or nobody computes its shard."""
    logs = job.read()
    return logs[AWAY][-1].step >= logs[0][-1].step or logs[0][-1].shards == 1


def split(samples, parts):
    """These as so many rounds."""
    return [samples[i * len(samples) // parts:(i + 1) * len(samples) // parts]
            for i in range(parts)]


def verdict(elastic, held, turns_logs, reference):
    """(good, in words). `turns_logs`: of the jobs without kills, by name."""
    kinds = {"elastic": [elastic.logs, turns_logs["whole"], turns_logs["away"]],
             "not elastic": [held.logs, turns_logs["plain"]]}
    for kind, logs in kinds.items():
        wrong = recoveries.differing(logs)
        if wrong:
            return False, f"parameters of the {kind} jobs DIFFER at step {wrong[0]}"
    if len(set(held.digests)) != 1:
        return False, "the ranks that held their state END DIFFERENTLY"
    if len(set(elastic.digests + reference)) != 1:
        return False, f"the state at step {elastic.last} DIFFERS from an undisturbed job's"
    return True, (f"parameters equal to the bit at each step, and all of the state at "
                  f"step {elastic.last} of both elastic jobs")


def results_of(elastic, held, samples, good, checked):
    def result(id, peer, ours, theirs, **more):
        return Result(id, peer, ours, theirs, ranks=RANKS, verified=good, checked=checked,
                      **more)

    taken = [kill.seconds for kill in elastic.kills]
    results = []
    for id, values in (("R8", [[value] for value in taken]),
                       ("R8-p99", [[percentile(taken, 0.99)]])):
        must, aim = rows.ELASTIC["R8"][id]
        results.append(result(id, f"{must * 1000:.0f} ms", values, [[must]] * len(values),
                              must=1, aim=must / aim))
    results[0].limit = elastic.step
    results[0].limit_what = "an undisturbed step"
    parts = min(len(held.kills), len(taken))
    results.append(result(
        "R8-held", "the same job, not elastic: the others hold their state",
        split(taken, parts), split([kill.seconds for kill in held.kills], parts)))
    results.append(result(
        "R8-return", "an undisturbed step", [[kill.pause] for kill in elastic.kills],
        [[elastic.step]] * len(elastic.kills),
        bytes=max((count for count, _ in elastic.received), default=0)))
    for id, run in (("R8-goodput", elastic), ("R8-held-goodput", held)):
        results.append(result(id, "an undisturbed step: the ratio is the goodput",
                              [[run.wall / run.count]], [[run.step]]))
    for id, peer, mine, theirs in (
            ("R8-plan", "a step of a job that is not elastic", "whole", "plain"),
            ("R8-away", "a step of all ranks", "away", "whole")):
        results.append(result(id, peer, samples[mine], samples[theirs], by_turns=True,
                              paired=True))
    return results


def describe(name, run):
    """Lines about a job of which ranks were killed."""
    def of(field):
        values = [getattr(kill, field) for kill in run.kills]
        return f"p50 {seconds(median(values))}, most {seconds(max(values))}"

    def steps_of(field):
        values = [getattr(kill, field) for kill in run.kills]
        return f"mean {sum(values) / len(values):.2f}, most {max(values)}"

    lines = [f"{name}: {len(run.kills)} kills in {run.wall:.0f} s, an undisturbed step "
             f"{seconds(run.step)}, goodput {100 * run.goodput():.1f} %, "
             f"{run.count / run.wall:.1f} steps a second",
             f"  next step of all others: {of('seconds')}; of all ranks: {of('whole')}",
             f"  longest pause when the rank returned: {of('pause')}",
             f"  steps that one rank computed again, for a kill: {steps_of('redone')}; "
             f"for a return: {steps_of('again')}"]
    if run.received:
        lines.append(f"  a new process received {size(max(run.received)[0])}, in "
                     f"{median([spent for _, spent in run.received])} ms (p50)")
    return lines


def run(programs, options):
    """(results, versions)."""
    python, count = python_of(programs), options.rounds or KILLS
    begun = time.monotonic()

    def done(what):
        print(f"{time.monotonic() - begun:.0f} s: {what}")

    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="lockstep-elastic-bench-"))
        cluster = LocalCluster(programs, workers=1, cpus=32)
        stack.callback(cluster.close)
        cluster.open()
        runs = []
        for name, elastic, kills in (("elastic", True, count),
                                     ("held", False, max(2, count // 2))):
            job = Job(cluster, name, python, elastic, STEP_MS)
            with contextlib.ExitStack() as ending:
                ending.callback(job.stop)
                runs.append(kill_ranks(job, directory, kills,
                                       random.Random(int(SEEDS["moments of kills"]))))
            done(f"ended the {name} job, at step {runs[-1].last}")
        # As many rounds as a short run has time for.
        turns = Turns(cluster, python, directory, stack, ROUNDS if count >= KILLS else 4)
        done("measured the jobs without kills")
        reference = turns.jobs[0].finish(runs[0].last)
        done(f"an undisturbed job has reached step {runs[0].last}")
        logs = {job.name: job.read() for job in turns.jobs}
    results = results_of(*runs, turns.samples, *verdict(*runs, logs, reference))
    for name, one in zip(("elastic", "held"), runs):
        print("\n".join(describe(name, one)))
    print_results(results)
    version = machine.said(*python, "-c", "import torch; print(torch.__version__)")
    return results, {"torch": version}
