#!/usr/bin/env python3
"""R8: what ranks say, when the others go on, a job that is killed, and verdicts."""
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import elastic, rows  # noqa: E402
from harness.elastic import Kill, Killed, Step  # noqa: E402
from harness.report import BenchError, judge, ratio_of  # noqa: E402

# A rank that makes 100 steps a second, with the others, as all read one clock. A
# recovery is a new process.
RANK = """
import glob, os, sys, time
folder, rank = sys.argv[1:]
open(f"{folder}/begun-{os.getpid()}", "w").close()
last = int(time.monotonic() * 100)
with open(f"{folder}/rank-{rank}", "a", buffering=1) as file:
    while True:
        time.sleep(0.002)
        target, *end = open(f"{folder}/target").read().split()
        now = min(int(time.monotonic() * 100), int(target))
        recoveries = len(glob.glob(f"{folder}/begun-*")) - 4
        for step in range(last + 1, now + 1):
            file.write(f"{step} {time.monotonic_ns()} {os.getpid()} aa {recoveries} 0 1\\n")
        last = max(last, now)
        if end and last == int(target):
            break
with open(f"{folder}/new-{rank}", "w") as file:
    file.write(f"{last} cafe\\n")
os.rename(f"{folder}/new-{rank}", f"{folder}/digest-{rank}")
time.sleep(1000)
"""
MS = 1_000_000


def log(*steps, pid=1, crc="a"):
    """Of (step, milliseconds, recoveries, steps computed again)."""
    return [Step(step, when * MS, pid, crc, recoveries, redone, 1)
            for step, when, recoveries, redone in steps]


class LogTest(unittest.TestCase):
    def test_reads_what_a_rank_writes(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "rank-0")
            path.write_text("7 1000 42 0badcafe 2 1 2\n8 20")
            self.assertEqual(elastic.Log(path).read(),
                             [Step(7, 1000, 42, "0badcafe", 2, 1, 2)])


class OthersTest(unittest.TestCase):
    def test_a_step_of_all_others_in_a_later_recovery_counts(self):
        first = log((1, 10, 0, 0), (2, 31, 0, 0))  # committed as the rank was killed
        second = log((1, 11, 0, 0))
        lost = log((1, 12, 0, 0))
        killed = 30 * MS
        self.assertIsNone(elastic.went_on([first, lost, second], 1, killed))
        # It is given step 2 by the other.
        second += log((2, 80, 1, 0), (3, 91, 1, 0))
        self.assertIsNone(elastic.went_on([first, lost, second], 1, killed))
        first += log((3, 90, 1, 0), (4, 99, 1, 0))
        self.assertEqual(elastic.went_on([first, lost, second], 1, killed), 91 * MS)

    def test_the_pause_is_the_longest_of_the_others_around_the_step(self):
        long_ago = [(1, 0, 0, 0), (2, 900, 0, 0)]
        steps = [(number, 900 + 10 * number, 0, 0) for number in range(3, 12)]
        first = log(*long_ago, *steps, (12, 1100, 1, 0), (13, 1110, 1, 0))
        second = log(*long_ago, *steps, (12, 1105, 1, 0), (13, 1110, 1, 0))
        lost = log((12, 1100, 1, 0), (13, 5000, 1, 0))
        self.assertAlmostEqual(elastic.longest_pause([first, lost, second], 1, 12), 0.095)

    def test_steps_computed_again_are_those_of_one_rank(self):
        first = log((1, 10, 0, 3), (2, 50, 1, 4), (3, 90, 2, 5))
        second = log((1, 10, 0, 3), (2, 50, 1, 3), (3, 90, 2, 3))
        logs = [first, second, log((1, 10, 0, 9))]
        self.assertEqual(elastic.computed_again(logs, 2, 20 * MS, 60 * MS), 1)
        self.assertEqual(elastic.computed_again(logs, 2, 20 * MS, 95 * MS), 2)
        self.assertEqual(elastic.computed_again(logs, 0, 60 * MS, 95 * MS), 0)

    def test_undisturbed_steps_lie_in_a_span(self):
        steps = log((1, 0, 0, 0), (2, 20, 0, 0), (3, 320, 0, 0), (4, 345, 0, 0))
        spans = [(0, 25 * MS), (310 * MS, 400 * MS)]
        self.assertEqual(elastic.undisturbed(steps, spans), [0.02, 0.025])

    def test_all_samples_are_in_one_round_each(self):
        self.assertEqual(elastic.split([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4, 5]])
        self.assertEqual(elastic.split([1, 2], 2), [[1], [2]])


class FakeJob(elastic.Job):
    """Ranks without torch; `keep_alive` starts those again that end."""

    def launch(self):
        self.ranks, self.ended = {}, threading.Event()
        for rank in range(elastic.RANKS):
            self.begin(rank)
        self.keeper = threading.Thread(target=self.keep_alive)
        self.keeper.start()

    def begin(self, rank):
        self.ranks[rank] = subprocess.Popen(
            [sys.executable, "-c", RANK, str(self.directory), str(rank)])

    def keep_alive(self):
        while not self.ended.wait(0.01):
            for rank, process in list(self.ranks.items()):
                if process.poll() is not None:
                    self.begin(rank)

    def stop(self):
        self.ended.set()
        self.keeper.join()
        for process in self.ranks.values():
            process.kill()
            process.wait()

    def said(self):
        return ""


class JobTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="lockstep-elastic-test-")
        self.addCleanup(directory.cleanup)
        self.job = FakeJob(None, "fake", [], True, 0)
        self.job.start(directory.name, 1 << 40)
        self.addCleanup(self.job.stop)

    def test_a_rank_is_killed_and_the_job_ends_at_a_step(self):
        self.job.warm_up(0)
        before = [steps[-1].pid for steps in self.job.read()]
        kill, start, end = self.job.kill(2)
        logs = self.job.read()
        changed = [steps[-1].pid != pid for steps, pid in zip(logs, before)]
        self.assertEqual(changed, [False, False, True, False])
        self.assertEqual(kill.rank, 2)
        self.assertTrue(0 < kill.seconds <= kill.whole <= (end - start) / 1e9, kill)
        self.assertGreater(kill.pause, 0)
        self.assertEqual((kill.redone, kill.again), (0, 0))
        last = logs[0][-1].step + 200
        self.assertEqual(self.job.finish(last), [f"{last} cafe"] * elastic.RANKS)

    def test_another_rank_that_starts_again_is_an_error(self):
        self.job.warm_up(0)
        wait = self.job.wait

        def also_lost(what, limit, condition):
            self.job.ranks[0].kill()
            self.job.ranks[0].wait(30)
            self.job.wait = wait
            return wait(what, limit, condition)
        self.job.wait = also_lost
        with self.assertRaisesRegex(BenchError, "another rank"):
            self.job.kill(1)


def killed(seconds, crc="a", digest="100 cafe", step=0.02):
    kills = [Kill(1 + i % 3, value, 3.0, 0.06, 1, 0) for i, value in enumerate(seconds)]
    logs = [log((1, 10, 0, 0), crc=crc)] * elastic.RANKS
    return Killed(kills, step, 10.0, 400, [(99 << 20, 12)], 100, logs,
                  [digest] * elastic.RANKS)


class VerdictTest(unittest.TestCase):
    REFERENCE = ["100 cafe"] * elastic.RANKS

    def verdict(self, one, held, crc="a", reference=None):
        logs = {name: [log((1, 10, 0, 0), crc=crc)] for name in ("whole", "away")}
        logs["plain"] = held.logs
        return elastic.verdict(one, held, logs, reference or self.REFERENCE)

    def test_jobs_of_one_kind_are_equal_to_the_bit(self):
        held = killed([3.0], crc="b", digest="90 beef")
        good, checked = self.verdict(killed([0.1]), held)
        self.assertTrue(good, checked)
        self.assertIn("at step 100", checked)

    def test_what_differs_is_named(self):
        held = killed([3.0], crc="b")
        good, why = self.verdict(killed([0.1]), held, crc="c")
        self.assertEqual((good, why), (
            False, "parameters of the elastic jobs DIFFER at step 1"))
        good, why = self.verdict(killed([0.1], digest="100 bad"), held)
        self.assertFalse(good)
        self.assertIn("DIFFERS from an undisturbed job's", why)
        held.digests[0] = "100 bad"
        self.assertIn("END DIFFERENTLY", self.verdict(killed([0.1]), held)[1])


class ResultsTest(unittest.TestCase):
    SAMPLES = {"whole": [[0.05]] * 3, "plain": [[0.04]] * 3, "away": [[0.06]] * 3}

    def results(self, seconds, good=True):
        results = elastic.results_of(killed(seconds), killed([2.0, 3.0]), self.SAMPLES, good,
                                     "checked")
        return {result.id: result for result in results}

    def test_each_ratio_is_of_what_it_says(self):
        results = self.results([0.05, 0.06, 0.07, 0.4])
        ratios = {id: round(ratio_of(result)[0], 3) for id, result in results.items()}
        self.assertEqual(ratios, {
            "R8": 2.5, "R8-p99": 1.25, "R8-held": 33.333, "R8-return": 0.333,
            "R8-goodput": 0.8, "R8-held-goodput": 0.8, "R8-plan": 0.8, "R8-away": 0.833})
        self.assertEqual(results["R8-return"].bytes, 99 << 20)
        self.assertEqual(results["R8"].limit, 0.02)

    def test_musts_are_of_the_p50_and_the_p99(self):
        self.assertEqual(set(rows.ELASTIC["R8"]), {"R8", "R8-p99"})
        self.assertEqual(judge(list(self.results([0.1] * 4).values()))[0], 0)
        code, lines, why = judge(list(self.results([0.1] * 15 + [0.6]).values()))
        self.assertEqual((code, why), (1, "missed: R8-p99"), lines)
        self.assertIn("missed: R8,", judge(list(self.results([0.2] * 4 + [0.6]).values()))[2])

    def test_a_difference_is_wrong_data(self):
        code, lines, why = judge(list(self.results([0.1] * 4, good=False).values()))
        self.assertEqual(code, 1)
        self.assertIn("R8: WRONG DATA", lines)

    def test_the_description_has_the_figures(self):
        text = "\n".join(elastic.describe("elastic", killed([0.1, 0.3])))
        for words in ("2 kills in 10 s", "goodput 80.0 %", "p50 100.000 ms, most 300.000 ms",
                      "for a kill: mean 1.00, most 1; for a return: mean 0.00, most 0",
                      "received 99 MiB, in 12 ms"):
            self.assertIn(words, text)

    def test_what_a_new_process_received_is_read_from_events(self):
        text = ("recovery 3: the ranks went on with step 88; each new rank received "
                "104069700 bytes in 151 ms")
        self.assertEqual(elastic.RECEIVED.findall(text), [("104069700", "151")])


if __name__ == "__main__":
    unittest.main()
