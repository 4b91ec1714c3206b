#!/usr/bin/env python3
"""The benchmarks' statistics, verdicts, files, rounds, and sides of steps."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import allreduce, machine, model, report, rows, steps  # noqa: E402
from harness.report import NOT_MEASURED, Result, judge, median, pool, ratio_of  # noqa: E402


def twice(**changes):
    """Seven rounds, in which the peer takes twice as long, and a bit."""
    result = Result("X1", "a peer: with settings", [[1.0, 1.0, 1.1]] * 7,
                    [[2 + 0.01 * i, 2 + 0.01 * i, 9] for i in range(7)],
                    bytes=25 << 20, ranks=2)
    vars(result).update(changes)
    return result


class StatisticsTest(unittest.TestCase):
    def test_percentile_is_the_nearest_rank(self):
        self.assertEqual(report.percentile([], 0.5), 0)
        self.assertEqual(report.percentile([3, 1, 2], 0.5), 2)
        self.assertEqual([report.percentile([4, 1, 3, 2], q) for q in (0.5, 0, 1)],
                         [2, 1, 4])

    def test_ratio_is_of_the_medians_of_all_samples(self):
        value, low, high = ratio_of(twice())
        self.assertEqual(value, median(pool(twice().theirs)))
        self.assertTrue(2.0 <= low <= value <= high <= 2.06 and low < high)

    def test_ratio_of_pairs_is_the_median_of_their_ratios(self):
        result = Result("X", "y", [[1, 10], [100, 7]], [[2, 20], [200, 21]])
        self.assertAlmostEqual(ratio_of(result)[0], 20 / 7)
        result.paired = True
        # Whatever the machine did, all but one took twice as long. Rounds are
        # drawn whole.
        self.assertEqual(ratio_of(result), (2, 2, 2))

    def test_equal_rounds_have_no_interval(self):
        self.assertEqual(ratio_of(Result("X", "y", [[2]] * 3, [[5]] * 3)),
                         (2.5, 2.5, 2.5))

    def test_one_wild_round_of_seven_moves_the_end_only(self):
        result = Result("X", "y", [[1.0]] * 3 + [[10.0]] + [[1.0]] * 3, [[2.0]] * 7)
        self.assertEqual(ratio_of(result)[:2], (2.0, 2.0))

    def test_noisy_rounds_have_a_wide_interval(self):
        result = Result("X", "y", [[1.0]] * 4 + [[3.0]] * 3, [[3.0]] * 7)
        self.assertEqual(ratio_of(result)[1:], (1.0, 3.0))


class JsonTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="lockstep-report-test-")
        self.addCleanup(self.dir.cleanup)
        self.path = pathlib.Path(self.dir.name) / "out.json"

    def add(self, result, versions=(), seeds=()):
        report.add_to_json(self.path, machine.describe(), dict(versions), [result],
                           seeds)
        return json.loads(self.path.read_text())

    def test_says_all_that_a_table_needs(self):
        result = twice(must=1.9, aim=2.5, checked="twice", limit=0.5, limit_what="half",
                       repeated_rounds=3, parted_runs=2, kept_parted_runs=1)
        document = self.add(result, {"peer": "1.2"}, {"input": "7"})
        kernel = document["machine"]["kernel"]
        self.assertTrue(kernel.startswith("Linux ") and "-" not in kernel, kernel)
        self.assertIn("cpu", document["machine"])
        self.assertEqual(document["versions"], {"peer": "1.2"})
        self.assertEqual(document["seeds"], {"bootstrap": "1", "input": "7"})
        self.assertEqual(len(document["results"]), 1)
        entry = document["results"][0]
        want = {"id": "X1", "rounds": 7, "samples": 21, "ours_seconds": 1.0,
                "repeated_rounds": 3, "busy_rounds": 0, "parted_runs": 2,
                "kept_parted_runs": 1, "limit_what": "half", "met": True,
                "ratio_is": "the ratio of medians"}
        self.assertEqual({name: entry[name] for name in want}, want)
        self.assertEqual(len(entry["ours_rounds_seconds"]), 7)
        self.assertEqual(entry["peer_rounds_seconds"][0], 2.0)
        self.assertEqual(entry["limit_ratio"], median(pool(result.theirs)) / 0.5)

    def test_met_is_of_the_lower_end(self):
        value, low, _ = ratio_of(twice())
        self.assertFalse(self.add(twice(must=(low + value) / 2))["results"][0]["met"])

    def test_adds_to_what_is_there(self):
        self.add(twice(), {"a": "1"})
        document = self.add(twice(), {"b": "2"})
        self.assertEqual((len(document["results"]), len(document["versions"])), (2, 2))

    def test_leaves_other_files_alone(self):
        self.path.write_text("no JSON")
        with self.assertRaises(report.BenchError):
            self.add(twice())
        self.assertEqual(self.path.read_text(), "no JSON")


class VerdictTest(unittest.TestCase):
    def test_holds_the_lower_end_against_must(self):
        low = ratio_of(twice())[1]
        self.assertEqual(judge([twice(must=low)])[0], 0)
        code, lines, why = judge([twice(must=low + 1e-9)])
        self.assertEqual(code, 1)
        self.assertIn("X1 25 MiB against a peer: lower end", lines[0])
        self.assertIn("MISSED", lines[0])
        self.assertIn("X1 25 MiB", why)

    def test_a_gate_on_the_median_leaves_room(self):
        result = twice(must=ratio_of(twice())[0] / 0.8)
        self.assertEqual(judge([result], 0.8, True)[0], 0)
        self.assertEqual(judge([result], 0.81, True)[0], 1)

    def test_wrong_data_is_worse_than_anything(self):
        code, lines, why = judge([twice(verified=False, busy_rounds=7)])
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["X1 25 MiB: WRONG DATA"])
        self.assertIn("wrong data", why)

    def test_what_has_no_must_is_not_judged(self):
        self.assertEqual(judge([twice()]), (0, [], ""))

    def test_missed_on_a_busy_machine_is_not_measured(self):
        busy = twice(must=3, busy_rounds=1)
        self.assertEqual(judge([busy])[0], NOT_MEASURED)
        self.assertEqual(judge([busy, twice(must=3)])[0], 1)

    def test_missed_on_an_unsteady_machine_is_not_measured(self):
        def with_round(seconds, **more):
            theirs = twice().theirs
            return twice(must=3, theirs=theirs[:3] + [[seconds] * 3] + theirs[4:], **more)
        self.assertEqual(judge([with_round(3.5)])[0], NOT_MEASURED)
        self.assertEqual(judge([with_round(3.5, by_turns=True)])[0], 1)
        self.assertEqual(judge([with_round(2.9)])[0], 1)

    def test_missed_without_a_common_cache_is_not_measured(self):
        self.assertEqual(judge([twice(must=3, apart=True)])[0], NOT_MEASURED)
        self.assertEqual(judge([twice(must=3, kept_parted_runs=1)])[0], NOT_MEASURED)


class MachineTest(unittest.TestCase):
    BUSY, QUIET = machine.CpuShares(0.2, 0), machine.CpuShares(0.01, 0)

    def test_rounds_are_repeated_as_often_as_there_are_rounds(self):
        rounds = machine.BusyRounds("repeat", 2)
        self.assertTrue(rounds.keep(0, self.BUSY))
        self.assertTrue(rounds.keep(1, self.QUIET))
        self.assertFalse(rounds.keep(1, self.BUSY))
        self.assertFalse(rounds.keep(1, machine.CpuShares(0, 0.02)))
        with self.assertRaises(report.NotMeasured):
            rounds.keep(1, self.BUSY)
        self.assertEqual((rounds.repeated, rounds.kept), (2, 0))

    def test_busy_rounds_are_taken_where_that_is_asked_for(self):
        forced = machine.BusyRounds("take", 8)
        self.assertTrue(forced.keep(1, self.BUSY))
        self.assertEqual(forced.kept, 1)
        lenient = machine.BusyRounds("lenient", 2)
        self.assertFalse(lenient.keep(1, self.BUSY))
        self.assertTrue(lenient.keep(1, self.BUSY))
        self.assertEqual(lenient.kept, 1)

    def test_only_far_more_time_means_apart(self):
        self.assertEqual([machine.CoreDistance(lambda ratio=ratio: ratio).apart()
                          for ratio in (0, 3.6, 6.8)], [False, False, True])

    def test_what_ran_while_cores_parted_is_done_again_a_few_times(self):
        ratio = 1
        distance = machine.CoreDistance(lambda: ratio)
        distance.wait_until_near()
        self.assertFalse(distance.have_parted())
        ratio = 9
        self.assertEqual([distance.have_parted() for _ in range(6)], [True] * 5 + [False])
        self.assertEqual((distance.parted, distance.kept), (5, 1))
        self.assertFalse(distance.always_apart)

    def test_a_machine_whose_cores_are_always_apart_is_taken_as_it_is(self):
        distance = machine.CoreDistance(lambda: 9, patience=0)
        distance.wait_until_near()
        self.assertTrue(distance.always_apart)
        self.assertFalse(distance.have_parted())
        self.assertEqual(distance.parted, 0)

    def test_shares_are_what_others_used(self):
        shares = machine.shares_between(machine.CpuReading(10, 5, 0, 2, 1),
                                        machine.CpuReading(20, 12, 0.5, 6, 2))
        self.assertAlmostEqual(shares.foreign, 0.2)
        self.assertAlmostEqual(shares.stolen, 0.05)

    def test_a_named_process_is_ours(self):
        # This process twice.
        self.assertGreaterEqual(machine.read_cpu([os.getpid()]).own,
                                machine.read_cpu().own)


class ProbeTest(unittest.TestCase):
    def test_reads_the_board_as_the_probes_write_it(self):
        probe = allreduce.Probe(None, rows.BARE, 2, [(1024, 0), (100 << 20, 1)])
        samples = [(i * 1000, i * 1000 + 500 + rank) for i in range(40) for rank in (0, 1)]
        words = [0] * 16 + [0b10, 2]  # the second case was wrong; both ranks ended
        head = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
        head += b"".join(n.to_bytes(4, sys.byteorder) for n in (2, 1))
        board = head.ljust(4096, b"\0") + b"".join(
            time.to_bytes(8, sys.byteorder) for sample in samples for time in sample)
        probe.read_board(board)
        self.assertEqual((probe.done, probe.right, probe.finished), (2, [True, False], 1))
        self.assertAlmostEqual(probe.seconds[0][0], 501e-9 / 100)
        self.assertAlmostEqual(probe.seconds[1][-1], 501e-9)
        self.assertEqual([len(taken) for taken in probe.seconds], [20, 20])


class RowsTest(unittest.TestCase):
    def test_every_row_has_its_peer(self):
        for bench in rows.ALL_REDUCES.values():
            for row in bench.rows:
                contenders = bench.peers[row.peer].contenders
                self.assertTrue(contenders)
                self.assertGreater(row.must, 0)
        self.assertEqual(rows.required("A4"), [("A4", 1024, "Open MPI"),
                                               ("A4", 1024, "Gloo tuned")])

    def test_short_runs_try_some_settings(self):
        for name in ("A1", "A2", "A4", "A6"):
            for peer in rows.ALL_REDUCES[name].peers:
                likely = [c for c in peer.contenders if c.likely]
                self.assertTrue(0 < len(likely) < len(peer.contenders), name)


def cluster(hosts, ranks):
    """25 Gbit/s and 20 us between hosts; 10 GB/s and 2 us within."""
    return model.Cluster(hosts, ranks, model.Link(2e-6, 1e-10),
                         model.Link(20e-6, 1 / 3.125e9))


class ModelTest(unittest.TestCase):
    def test_all_reduces_are_the_textbooks(self):
        size, c, seconds = 1e8, cluster(8, 1), model.all_reduce_seconds
        rate = 3.125e9
        # 14 messages of 12.5 MB; six messages and 7/8 of the bytes twice.
        self.assertAlmostEqual(seconds("ring", c, size), 14 * (20e-6 + 12.5e6 / rate), 9)
        self.assertAlmostEqual(seconds("halving", c, size),
                               6 * 20e-6 + 2 * 0.875 * size / rate, 9)
        self.assertAlmostEqual(seconds("tree", c, size), 6 * (20e-6 + size / rate), 9)
        # One rank a host: there is nothing within.
        self.assertAlmostEqual(seconds("hierarchical", c, size),
                               seconds("halving", c, size), 9)
        # Six ranks: a pair folds first.
        self.assertAlmostEqual(
            seconds("halving", cluster(6, 1), size),
            4 * 20e-6 + 2 * 0.75 * size / rate + 2 * (20e-6 + size / rate), 9)
        for algorithm in model.ALGORITHMS:
            self.assertEqual(seconds(algorithm, cluster(1, 1), 1e6), 0)

    def test_the_best_algorithm_depends_on_bytes_and_hosts(self):
        self.assertEqual(model.best_algorithm(cluster(64, 1), 1e3), "halving")
        self.assertEqual(model.best_algorithm(cluster(6, 1), 1e8), "ring")
        self.assertEqual(model.best_algorithm(cluster(64, 8), 1e8), "hierarchical")
        # Eight ranks that send all they have through one line lose.
        self.assertGreater(
            model.all_reduce_seconds("halving", cluster(64, 8), 1e8),
            4 * model.all_reduce_seconds("hierarchical", cluster(64, 8), 1e8))

    def test_buckets_are_the_planners(self):
        """bucket_cases.txt holds what the planner of jobs makes
        (worker/collective/bucket_cases_test.cc)."""
        cases = [line for line in machine.read(
            pathlib.Path(__file__).with_name("bucket_cases.txt")).splitlines()
            if not line.startswith("#")]
        self.assertGreater(len(cases), 40)
        for case in cases:
            largest, total, *sizes = map(int, case.split())
            training = model.Training(0, total, largest or model.Training.bucket)
            self.assertEqual(model.buckets(training), sizes, case)

    def test_hides_what_fits_behind_the_backward_pass(self):
        slow = model.predict_step(cluster(8, 1), model.Training(1, 100 << 20))
        # The last bucket is ready when computing ends: only that is exposed.
        self.assertTrue(0 < slow.exposed < 0.3 * slow.busy)
        self.assertGreater(slow.efficiency, 0.98)
        # Hardly any computing: nothing to hide behind.
        quick = model.predict_step(cluster(8, 1), model.Training(1e-3, 100 << 20))
        self.assertGreater(quick.exposed, 0.95 * quick.busy)
        alone = model.predict_step(cluster(1, 1), model.Training(1e-3, 100 << 20))
        self.assertEqual(alone.efficiency, 1)

    def test_more_hosts_are_never_more_efficient(self):
        found = [model.predict_step(cluster(hosts, 8), model.Training(0.1, 100 << 20))
                 .efficiency for hosts in (1, 2, 4, 8, 64, 512)]
        self.assertEqual(found, sorted(found, reverse=True))

    def test_a_link_is_solved_from_two_measurements(self):
        c = cluster(2, 1)
        link = model.link_of(model.all_reduce_seconds("ring", c, 0),
                             model.all_reduce_seconds("ring", c, 1e7), 1e7)
        self.assertAlmostEqual(link.alpha, c.inter.alpha, 12)
        self.assertAlmostEqual(link.beta, c.inter.beta, 16)
        for small, large in ((1, 0.5), (0, 0.5)):
            with self.assertRaises(ValueError):
                model.link_of(small, large, 10)

    def call(self, *words):
        return subprocess.run([pathlib.Path(__file__).with_name("step_model"), *words],
                              capture_output=True, text=True)

    def test_the_program_predicts_the_table_of_docs_scale(self):
        table = self.call("--hosts", "1,8,64,512")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn(table.stdout, machine.read(machine.ROOT / "docs" / "scale.md"))
        one = self.call("--gpus-per-host=2", "--hosts", "1,3", "--alpha-intra", "1",
                        "--beta-intra", "400", "--alpha-inter", "5", "--beta-inter=10",
                        "--compute-ms", "50", "--parameters-mb", "100", "--bucket-mb", "4")
        for text in ("2 ranks a host", "1.0 us and 400.0 Gbit/s", "5.0 us and 10.0 Gbit/s",
                     "50.0 ms of", "100.0 MiB", "up to 4.0 MiB", "\n     3      6 "):
            self.assertIn(text, one.stdout)

    def test_wrong_options_are_refused_by_name(self):
        for words in (["--what"], ["--hosts"], ["--hosts", "0"], ["--hosts", "1,,2"],
                      ["--gpus-per-host", "x"], ["--beta-inter", "-3"],
                      ["--compute-ms", "nan"], ["word"]):
            refused = self.call(*words)
            self.assertEqual(refused.returncode, 2, words)
            self.assertIn(words[0], refused.stderr)
        self.assertIn("--bucket-mb", self.call("--help").stdout)


def script(end):
    """A rank in sh: ready, a line for each line (ten times as long for a word),
    which it keeps in DIR/lines-RANK, and `end`."""
    def command(rank, directory):
        return ["/bin/sh", "-c", r"printf 'ready\tx=1.2\ty=a b\n'; "
                "while read n word; do echo $n $word >>"
                f"{directory}/lines-{rank}; "
                f"echo {100 * (rank + 1)} 1000000100${{word:+0}} 0.5 0.25; done; {end}"]
    return command


class SideTest(unittest.TestCase):
    def start(self, end, word=False):
        directory = tempfile.TemporaryDirectory(prefix="lockstep-side-test-")
        self.addCleanup(directory.cleanup)
        side = steps.Side("a side", script(end), word)
        self.addCleanup(side.stop)
        side.start(directory.name)
        return side

    def test_says_versions_times_and_the_end(self):
        side = self.start("echo end 00ff 2.25 1e-6")
        self.assertEqual(side.versions, {"x": "1.2", "y": "a b"})
        sample = side.run(10)
        # From the first start to the last end.
        self.assertAlmostEqual(sample.seconds, 0.1)
        self.assertAlmostEqual(sample.exposed, 0.025)
        self.assertAlmostEqual(side.run(10, word=True).seconds, 1.00000009)
        ends = side.end()
        self.assertEqual([end.hash for end in ends], ["00ff"] * 2)
        self.assertEqual((ends[1].loss, ends[1].error), (2.25, 1e-6))

    def test_takes_both_steps_by_turns(self):
        side = self.start("exit 0", word=True)
        whole, word = side.run_round(steps.Turns(2, 2, 3, False), 0)
        self.assertEqual((len(whole), len(word)), (2, 2))
        # Means.
        self.assertAlmostEqual(whole[1].seconds, 1 / 3)
        self.assertAlmostEqual(whole[1].exposed, 0.25 / 3)
        self.assertAlmostEqual(word[1].seconds, 10 / 3, places=6)
        side.word = False
        whole, word = side.run_round(steps.Turns(samples=2), 1)
        self.assertEqual((len(whole), len(word)), (2, 0))
        self.assertEqual((side.directory / "lines-1").read_text(),
                         "3\n3 word\n3 word\n3\n3 word\n3\n3\n3 word\n1\n1\n1\n1\n")

    def test_a_rank_that_is_silent_in_the_end_is_an_error(self):
        with self.assertRaisesRegex(report.BenchError, "a side, rank 0"):
            self.start("exit 3").end()

    def test_a_program_that_is_not_there_is_an_error(self):
        with tempfile.TemporaryDirectory() as directory:
            side = steps.Side("none", lambda rank, directory: ["/nonexistent/program"])
            with self.assertRaises(report.NotMeasured):
                side.start(directory)

    def test_ours_must_be_equal_and_float64s(self):
        def good(*ends, **more):
            return steps.check_ours([steps.End(*end) for end in ends], **more)[0]
        self.assertTrue(good(("a", 2, 1e-6), ("a", 2, 1e-5)))
        self.assertFalse(good(("a", 2, 1e-6), ("b", 2, 1e-6)))
        self.assertFalse(good(("a", 2, 1e-6), ("a", 2, 0.5)))
        self.assertFalse(good(("a", 2, float("nan")), ("a", 2, 0)))
        self.assertFalse(good())
        self.assertTrue(good(("a", 2, 0.05), ("a", 2, 0.05), tolerance=0.1))

    def test_peers_must_be_equal_and_have_our_losses(self):
        ours = [steps.End("a", 2.0), steps.End("a", 3.0)]

        def good(*ends):
            return steps.check_peer([steps.End(*end) for end in ends], ours)[0]
        self.assertTrue(good(("x", 2.001), ("x", 2.999)))
        self.assertFalse(good(("x", 2), ("y", 3)))
        self.assertFalse(good(("x", 2), ("x", 3.1)))
        self.assertFalse(good(("x", float("nan")), ("x", 3)))
        self.assertFalse(good())


if __name__ == "__main__":
    unittest.main()
