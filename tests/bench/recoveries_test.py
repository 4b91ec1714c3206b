#!/usr/bin/env python3
"""R7: what ranks say, when all have recovered, sides that are killed, and results."""
import contextlib
import io
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from harness import recoveries, rows  # noqa: E402
from harness.recoveries import Commit, Kill  # noqa: E402
from harness.report import BenchError  # noqa: E402

# A rank that makes 100 steps a second, with the others, as all read one clock.
RANK = """
import os, sys, time
folder, rank = sys.argv[1:]
with open(f"{folder}/begun-{os.getpid()}", "w") as file:
    file.write(f"{time.monotonic_ns()} {time.monotonic_ns() + 250000000}\\n")
with open(f"{folder}/rank-{rank}", "a", buffering=1) as file:
    last = 0
    while True:
        time.sleep(0.002)
        step = int(time.monotonic() * 100)
        if step > last:
            last = step
            file.write(f"{step} {time.monotonic_ns()} {os.getpid()} aa\\n")
"""


def log(*commits):
    return [Commit(*commit) for commit in commits]


class LogTest(unittest.TestCase):
    def test_reads_whole_lines_as_they_come(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "rank-0")
            one = recoveries.Log(path)
            self.assertEqual(one.read(), [])
            path.write_text("1 10 7 ab\n2 20")
            self.assertEqual(one.read(), log((1, 10, 7, "ab")))
            path.write_text("1 10 7 ab\n2 200 7 cd\n")
            self.assertEqual(one.read(), log((1, 10, 7, "ab"), (2, 200, 7, "cd")))


class RecoveredTest(unittest.TestCase):
    SURVIVOR = log((1, 10, 5, "a"), (2, 20, 5, "a"))

    def test_needs_a_step_of_all_ranks_with_the_new_one(self):
        killed = log((1, 11, 6, "a"), (2, 21, 6, "a"))
        self.assertIsNone(recoveries.recovered([self.SURVIVOR, killed], 6, 15))
        alone = killed + log((3, 30, 8, "a"))
        self.assertIsNone(recoveries.recovered([self.SURVIVOR, alone], 6, 25))
        both = [self.SURVIVOR + log((3, 31, 5, "a"), (4, 40, 5, "a")),
                alone + log((4, 41, 8, "a"))]
        self.assertEqual(recoveries.recovered(both, 6, 25),
                         log((3, 31, 5, "a"), (3, 30, 8, "a")))

    def test_a_step_from_before_the_kill_does_not_count(self):
        new = log((2, 30, 8, "a"), (3, 40, 8, "a"))
        self.assertIsNone(recoveries.recovered([self.SURVIVOR, new], 6, 25))

    def test_parameters_that_differ_are_found_over_all_sides(self):
        sides = [[log((1, 1, 1, "a")), log((1, 1, 2, "a"))],
                 [log((1, 5, 1, "a"), (2, 6, 1, "b")), log((2, 6, 1, "c"))]]
        self.assertEqual(recoveries.differing(sides), [2])
        self.assertEqual(recoveries.differing(sides[:1]), [])


class KeptRanks(recoveries.Kept):
    """Ranks without torch."""

    def command(self, peer, *more):
        rank = more[more.index("--rank") + 1]
        return [sys.executable, "-c", RANK, str(self.directory), rank]


class KeptTest(unittest.TestCase):
    def start(self, server="/bin/echo"):
        directory = tempfile.TemporaryDirectory(prefix="lockstep-recoveries-test-")
        self.addCleanup(directory.cleanup)
        program = pathlib.Path(directory.name, "server")
        program.write_text(f"#!/bin/sh\n{server} there\nexec cat\n")
        program.chmod(0o755)
        side = KeptRanks("peer", "a peer", [], ())
        side.python = [str(program)]
        self.addCleanup(side.stop)
        side.start(directory.name)
        return side

    def test_a_rank_that_is_killed_is_started_again_and_the_other_stays(self):
        side = self.start()
        self.assertEqual(side.address, "there")
        side.warm_up(0)
        before = [commits[-1].pid for commits in side.read()]
        start = time.monotonic_ns()
        kill, end = side.kill()
        after = [commits[-1].pid for commits in side.read()]
        self.assertEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])
        self.assertEqual(side.losses, 1)
        self.assertAlmostEqual(kill.imports, 0.25, 2)
        self.assertTrue(0 < kill.begins < kill.seconds <= (end - start) / 1e9, kill)
        self.assertEqual(kill.lost, 0)
        side.warm_up(end)
        self.assertGreater(side.logs[1].commits[-recoveries.WARM_UP].time, end)

    def test_a_rank_that_ends_by_itself_is_an_error(self):
        side = self.start()
        side.warm_up(0)
        side.processes[0].kill()
        with self.assertRaisesRegex(BenchError, "peer: 0 has ended"):
            side.wait("nothing", 30, lambda logs: False)

    def test_another_rank_that_starts_again_is_an_error(self):
        side = self.start()
        side.warm_up(0)

        def lose_both(pid):
            recoveries.Kept.lose(side, pid)
            side.processes[0].kill()
            side.processes[0].wait(30)
            side.begin(0)
        side.lose = lose_both
        with self.assertRaisesRegex(BenchError, "another rank"):
            side.kill()

    def test_a_server_that_says_nothing_is_an_error(self):
        with self.assertRaisesRegex(BenchError, "no server"):
            self.start("exit 1; echo")


class FakeSide(recoveries.Side):
    """Takes `seconds`, of which a second are imports; fails in round `fails`."""

    def __init__(self, name, seconds, fails=None, crc="a"):
        super().__init__(name, f"the {name}", [sys.executable])
        self.seconds, self.fails, self.crc, self.done = seconds, fails, crc, []

    def open(self):
        self.done.append("open")

    def close(self):
        self.done.append("close")

    def start(self, directory):
        number = int(directory.name.rpartition("-")[2])
        self.done.append(number)
        if number == self.fails:
            raise BenchError(f"{self.name}: it broke")

    def stop(self):
        self.done.append("stop")

    def read(self):
        return [log((1, 1, 1, self.crc))] * recoveries.RANKS

    def warm_up(self, since):
        pass

    def kill(self):
        return Kill(self.seconds, 0.2, 1.0, 0), 0


class RoundsTest(unittest.TestCase):
    def setUp(self):
        for name, value in (("import_seconds", lambda python: 0.75), ("MOST_PAUSE", 0)):
            self.addCleanup(setattr, recoveries, name, getattr(recoveries, name))
            setattr(recoveries, name, value)

    def run_rounds(self, sides, rounds):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            run = recoveries.Rounds(sides, rounds)
        return run, said.getvalue()

    def test_sides_take_turns_and_the_first_round_is_dropped(self):
        sides = [FakeSide("lockstep", 1.5), FakeSide("torchft", 4)]
        run, said = self.run_rounds(sides, 4)
        self.assertEqual(sides[0].done, ["open", 0, "stop", 1, "stop", 2, "stop", 3, "stop",
                                         "close"])
        begun = [line.split(": ")[1] for line in said.splitlines()]
        self.assertEqual(begun[:4], ["lockstep", "torchft", "torchft", "lockstep"])
        self.assertEqual([len(run.kills[side.name]) for side in sides], [3, 3])
        self.assertEqual(len(run.kills["torchft"][0]), recoveries.KILLS)
        self.assertEqual(len(run.import_torch), 3)

    def test_a_peer_that_fails_is_left_out_and_says_why(self):
        sides = [FakeSide("lockstep", 1.5), FakeSide("torchft", 4, fails=1),
                 FakeSide("torchrun", 9)]
        run, said = self.run_rounds(sides, 3)
        self.assertIn("left out: torchft: it broke", said)
        self.assertEqual([side.name for side in run.sides], ["lockstep", "torchrun"])
        self.assertEqual(sorted(run.kills), ["lockstep", "torchrun"])
        self.assertEqual(sides[1].done, ["open", 0, "stop", 1, "stop", "close"])

    def test_ours_must_not_fail(self):
        sides = [FakeSide("lockstep", 1.5, fails=0), FakeSide("torchft", 4)]
        sides[0].ours = True
        with self.assertRaisesRegex(BenchError, "it broke"):
            self.run_rounds(sides, 2)
        self.assertEqual(sides[1].done[-1], "close")

    def results(self, crc="a"):
        ours, warm = FakeSide("lockstep", 1.5), FakeSide("lockstep-warm", 0.1)
        run, _ = self.run_rounds([ours, warm, FakeSide("torchft", 4, crc=crc)], 2)
        return {result.id: result for result in recoveries.results_of(run, ours, warm)}

    def test_results_are_cold_and_without_the_imports_and_warm(self):
        results = self.results()
        pairs = {id: (result.ours[0][0], result.theirs[0][0])
                 for id, result in results.items()}
        self.assertEqual(pairs, {"R7-torchft": (1.5, 4), "R7-torchft-imported": (0.5, 3),
                                 "R7-torchft-warm": (0.1, 4)})
        self.assertEqual(results["R7-torchft"].limit, 0.75)
        self.assertTrue(all(result.verified for result in results.values()))

    def test_only_a_warm_start_is_held_against_the_musts(self):
        results = self.results()
        self.assertEqual([result.must for result in results.values()][:2], [0, 0])
        warm = results["R7-torchft-warm"]
        self.assertEqual((warm.must, warm.aim), rows.RECOVERY["R7"]["torchft"])

    def test_sides_that_compute_something_else_are_wrong(self):
        for result in self.results(crc="b").values():
            self.assertFalse(result.verified)
            self.assertIn("DIFFER at step 1", result.checked)


class PeersTest(unittest.TestCase):
    def test_a_peer_without_its_packages_is_named(self):
        kept = os.environ.get("LOCKSTEP_FRAMEWORKS")
        self.addCleanup(lambda: os.environ.pop("LOCKSTEP_FRAMEWORKS", None) if kept is None
                        else os.environ.update(LOCKSTEP_FRAMEWORKS=kept))
        with tempfile.TemporaryDirectory() as directory:
            os.environ["LOCKSTEP_FRAMEWORKS"] = directory
            with contextlib.redirect_stdout(io.StringIO()) as said:
                sides = recoveries.peers_of(["python"])
            self.assertEqual([side.name for side in sides], ["reconfigure", "torchrun"])
            self.assertIn("left out: torchft: there is no", said.getvalue())
            python = pathlib.Path(directory, "torchft", "bin", "python")
            python.parent.mkdir(parents=True)
            python.touch()
            names = [side.name for side in recoveries.peers_of(["python"])]
        self.assertEqual(names, ["torchft", "torchft-default", "reconfigure", "torchrun"])
        self.assertLessEqual(set(rows.RECOVERY["R7"]), set(names))


if __name__ == "__main__":
    unittest.main()
