"""Each check of the chaos test finds what it is for, and nothing else."""

from __future__ import annotations

import unittest
from typing import Any, Optional

import checks
from checks import CheckpointOrder, Order, Saved


def history(*parts: tuple[int, int, range]) -> str:
    return "".join(f"{rank} {attempt} {step}\n" for rank, attempt, steps in parts for step in steps)


def node(**changes: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "state": "NODE_STATE_READY",
        "allocated": {"cpus": 0, "memoryBytes": "0"},
        "jobs": [],
        **changes,
    }


class HistoryTest(unittest.TestCase):
    def problems(self, *parts: tuple[int, int, range], ranks: int = 1) -> list[str]:
        return checks.check_history(history(*parts), ranks, 30, 10)

    def test_one_attempt(self) -> None:
        self.assertEqual(self.problems((0, 1, range(1, 31))), [])
        self.assertEqual(self.problems((0, 1, range(1, 31)), (1, 1, range(1, 31)), ranks=2), [])

    def test_attempts_that_go_on_from_what_was_saved(self) -> None:
        self.assertEqual(self.problems((0, 1, range(1, 15)), (0, 3, range(11, 31))), [])
        # It died between step 20 and saving it.
        self.assertEqual(self.problems((0, 1, range(1, 21)), (0, 2, range(11, 31))), [])
        self.assertEqual(self.problems((0, 1, range(1, 21)), (0, 2, range(21, 31))), [])

    def test_a_gap(self) -> None:
        found = self.problems((0, 1, range(1, 10)), (0, 1, range(11, 31)))
        self.assertEqual(found, ["rank 0: attempt 1 made step 11 after step 9: a gap"])

    def test_a_gap_between_attempts(self) -> None:
        found = self.problems((0, 1, range(1, 15)), (0, 2, range(21, 31)))
        self.assertEqual(len(found), 1)
        self.assertIn("began with step 21", found[0])

    def test_a_double(self) -> None:
        found = self.problems((0, 1, range(1, 31)), (0, 1, range(30, 31)))
        self.assertEqual(found, ["rank 0: attempt 1 made step 30 after step 30: a double"])

    def test_a_saved_step_that_was_lost(self) -> None:
        found = self.problems((0, 1, range(1, 25)), (0, 2, range(11, 31)))
        self.assertEqual(len(found), 1)
        self.assertIn("had made step 24 and saved step 20", found[0])

    def test_an_older_attempt_that_goes_on(self) -> None:
        found = self.problems(
            (0, 1, range(1, 15)),
            (0, 2, range(11, 13)),
            (0, 1, range(15, 16)),
            (0, 2, range(13, 31)),
        )
        self.assertIn("rank 0: attempt 1 made step 15 after attempt 2 had begun", found)

    def test_steps_that_are_missing_in_the_end(self) -> None:
        self.assertEqual(
            self.problems((0, 1, range(1, 30))), ["rank 0: the last step was 29, not 30"]
        )
        self.assertEqual(len(self.problems((0, 1, range(1, 31)), ranks=2)), 1)

    def test_broken_lines(self) -> None:
        text = history((0, 1, range(1, 31)))
        self.assertEqual(len(checks.check_history(text + "0 1", 1, 30, 10)), 1)
        self.assertEqual(len(checks.check_history(text + "7 1 1\n", 1, 30, 10)), 1)


class ResultsTest(unittest.TestCase):
    def test_digests(self) -> None:
        self.assertEqual(checks.check_equal("x", "abc", "abc"), [])
        self.assertEqual(len(checks.check_equal("x", "abd", "abc")), 1)
        self.assertEqual(len(checks.check_equal("x", None, "abc")), 1)
        self.assertEqual(len(checks.check_equal("x", None, None)), 1)

    def test_counts(self) -> None:
        self.assertEqual(checks.check_counts("x", "3 48 7\n", [3, 48, 7]), [])
        self.assertEqual(len(checks.check_counts("x", "3 40 7\n", [3, 48, 7])), 1)
        self.assertEqual(len(checks.check_counts("x", None, [3])), 1)

    def test_states(self) -> None:
        self.assertEqual(checks.check_job({"state": "JOB_STATE_SUCCEEDED"}), [])
        self.assertEqual(len(checks.check_job({"state": "JOB_STATE_FAILED"})), 1)
        self.assertEqual(len(checks.check_job({})), 1)


class OrdersTest(unittest.TestCase):
    def job(self, name: str, state: str, label: str = "") -> dict[str, Any]:
        labels = {"chaos": label} if label else {}
        return {"name": name, "state": "JOB_STATE_" + state, "spec": {"labels": labels}}

    def test_submissions(self) -> None:
        yes, unknown = Order("submit", "s1", True), Order("submit", "s1", False)
        one = self.job("a", "SUCCEEDED", "s1")
        self.assertEqual(checks.check_submits([yes], [one, self.job("b", "RUNNING")]), [])
        self.assertEqual(checks.check_submits([unknown], [one]), [])
        self.assertEqual(checks.check_submits([unknown], []), [])
        self.assertEqual(len(checks.check_submits([yes], [])), 1)
        self.assertEqual(len(checks.check_submits([yes], [one, one])), 1)
        self.assertEqual(len(checks.check_submits([unknown], [one, one])), 1)
        self.assertEqual(len(checks.check_submits([yes], [self.job("a", "QUEUED", "s1")])), 1)

    def test_cancels(self) -> None:
        yes, unknown = Order("cancel", "a", True), Order("cancel", "a", False)
        self.assertEqual(checks.check_cancels([yes], [self.job("a", "CANCELLED")]), [])
        self.assertEqual(checks.check_cancels([unknown], [self.job("a", "RUNNING")]), [])
        self.assertEqual(len(checks.check_cancels([yes], [self.job("a", "RUNNING")])), 1)
        self.assertEqual(len(checks.check_cancels([yes], [])), 1)

    def test_checkpoints(self) -> None:
        def found(saved: Optional[Saved], **more: Any) -> int:
            order = CheckpointOrder("a", 2, 10, (5, 1), saved, **more)
            return len(checks.check_checkpoints([order], 30))

        self.assertEqual(found((10, 2)), 0)
        # The job went back to step 5 meanwhile.
        self.assertEqual(found((6, 3)), 0)
        self.assertEqual(found(None, given_up=True), 0)
        self.assertEqual(found(None), 1)
        self.assertEqual(found((5, 1)), 1)
        self.assertEqual(found((9, 2)), 1)
        self.assertEqual(found((30, 2)), 1)

    def test_runs(self) -> None:
        self.assertEqual(checks.check_runs("a", [1], 1), [])
        self.assertEqual(checks.check_runs("a", [1, 3], 3), [])
        self.assertEqual(len(checks.check_runs("a", [], 1)), 1)
        self.assertEqual(len(checks.check_runs("a", [1, 1], 2)), 1)
        self.assertEqual(len(checks.check_runs("a", [3], 2)), 1)


class LogTest(unittest.TestCase):
    def test_refusals(self) -> None:
        good = "2026 info coordinator: node a: registered\n"
        bad = "2026 warning coordinator: audit: refused worker a from ipv4:1: PERMISSION_DENIED\n"
        self.assertEqual(checks.check_log("x", good), [])
        self.assertEqual(len(checks.check_log("x", good + bad + bad)), 1)
        self.assertEqual(len(checks.check_log("x", "2026 fatal worker: broken\n")), 1)


class NodesTest(unittest.TestCase):
    def test_nodes(self) -> None:
        self.assertEqual(checks.check_nodes([node()], ["a"]), [])
        self.assertEqual(len(checks.check_nodes([node()], ["a", "b"])), 1)
        for changes in (
            {"state": "NODE_STATE_DRAINED"},
            {"allocated": {"cpus": 2, "memoryBytes": "0"}},
            {"jobs": ["x"]},
            {"stuckProcesses": [{"pid": "1"}]},
            {"unknownGangs": [{"job": "x"}]},
        ):
            self.assertEqual(len(checks.check_nodes([node(**changes)], ["a"])), 1, changes)

    def test_drains(self) -> None:
        drained = node(drain={"reason": "x"})
        self.assertEqual(checks.check_drain(drained, True), [])
        self.assertEqual(checks.check_drain(node(), False), [])
        self.assertEqual(len(checks.check_drain(drained, False)), 1)
        self.assertEqual(len(checks.check_drain(node(), True)), 1)


if __name__ == "__main__":
    unittest.main()
