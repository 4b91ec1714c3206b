#!/usr/bin/env python3
"""What tests/bench/table shows, and what it refuses."""
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
PATH = str(pathlib.Path(__file__).resolve().parent / "table")
LOADER = importlib.machinery.SourceFileLoader("table", PATH)
SPEC = importlib.util.spec_from_loader("table", LOADER)
table = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(table)

MACHINE = {"cpu": "A CPU", "cores": "2", "kernel": "Linux 6.1.0-18-amd64"}


def result(**changes):
    entry = {
        "id": "A8", "bytes": 25 << 20, "ranks": 4,
        "peer": "plain TCP ring: with settings", "rounds": 7, "samples": 140,
        "ours_seconds": 0.1, "peer_seconds": 0.0996, "ratio": 0.996,
        "ratio_low": 0.9949999, "ratio_high": 1.0001, "verified": True,
        "busy_rounds": 0, "must": 0.95, "aim": 0.98, "limit_ratio": 1.0021,
    }
    entry.update(changes)
    return entry


class TableTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="lockstep-table-test-")
        self.addCleanup(self.dir.cleanup)

    def file(self, *results, machine=None, name="a.json"):
        path = pathlib.Path(self.dir.name) / name
        path.write_text(json.dumps(
            {"machine": machine or MACHINE, "results": list(results)}))
        return path

    def refused(self, *paths, text):
        with self.assertRaises(SystemExit) as refusal:
            table.table(paths)
        self.assertIn(text, str(refusal.exception))

    def test_shows_three_digits(self):
        text = table.table([self.file(result())])
        self.assertIn("| 0.996 [0.994, 1.001] | 0.95 | 1.002 |", text)
        self.assertIn("Linux 6.1:\n", text)
        self.assertIn("100 ms | 99.6 ms | plain TCP ring", text)

    def test_says_whose_ratio_is_of_pairs(self):
        text = table.table([self.file(result())])
        self.assertIn("of the medians with its", text)
        text = table.table([self.file(result(
            ratio_is="the median of ratios"), result(
                id="B1", ratio_is="the ratio of medians"))])
        self.assertIn("of the medians (A8: the median ratio of interleaved", text)

    def test_ends_never_look_better_than_they_are(self):
        self.assertEqual(table.three_digits(0.9999, math.floor), "0.999")
        self.assertEqual(table.three_digits(0.996, math.floor), "0.996")
        self.assertEqual(table.three_digits(12.79, math.floor), "12.7")
        self.assertEqual(table.three_digits(12.71, math.ceil), "12.8")
        self.assertEqual(table.three_digits(1429.5), "1,430")

    def test_missed_is_of_the_lower_end(self):
        text = table.table([self.file(result(must=0.995))])
        self.assertIn("| 0.995, missed |", text)
        text = table.table([self.file(result(must=0.9949999))])
        self.assertNotIn("missed", text)

    def test_refuses_few_rounds(self):
        path = self.file(result(rounds=6))
        self.refused(path, text="A8 25 MiB against plain TCP ring has 6 rounds")
        self.assertIn("0.996", table.table([path], draft=True))

    def test_refuses_busy_rounds(self):
        self.refused(self.file(result(busy_rounds=1)),
                     text="others used the machine")

    def test_refuses_missing_sizes(self):
        one = result(id="A1", bytes=1 << 20, peer="Open MPI: x")
        self.refused(self.file(one), text="A1 lacks A1 25 MiB Open MPI")
        all_of_it = [dict(one, bytes=n << 20) for n in (1, 25, 100)]
        self.assertIn("100 MiB", table.table([self.file(*all_of_it)]))

    def test_refuses_missing_peers(self):
        self.refused(self.file(result(id="S2", bytes=0, peer="DDP")),
                     text="S2 lacks S2-cost")

    def test_refuses_wrong_data_even_as_a_draft(self):
        path = self.file(result(verified=False))
        with self.assertRaises(SystemExit):
            table.table([path], draft=True)

    def test_machines_have_tables_of_their_own(self):
        # Of one name, and yet two.
        text = table.table([
            self.file(result(), machine=dict(MACHINE, cpu_family="25.17.1")),
            self.file(result(id="S3", bytes=0),
                      machine=dict(MACHINE, cpu_family="25.1.1"),
                      name="b.json")], draft=True)
        first, second = text.split("`./tests/bench/run ")[1:]
        self.assertIn("A8 --json FILE` on A CPU, family 25.17.1, 2 cores, "
                      "Linux 6.1:\n", first)
        self.assertIn("| A8 |", first)
        self.assertNotIn("| S3 |", first)
        self.assertIn("S3 --json FILE` on A CPU, family 25.1.1, ", second)
        self.assertIn("| S3 |", second)
        self.assertNotIn("| A8 |", second)

    def test_other_caches_are_another_machine(self):
        text = table.table([
            self.file(result(), machine=dict(MACHINE, caches="L3 16M")),
            self.file(result(id="S3", bytes=0), name="b.json",
                      machine=dict(MACHINE, caches="L3 32M"))], draft=True)
        self.assertEqual(text.count("`./tests/bench/run "), 2)

    def test_the_last_one_counts(self):
        text = table.table([self.file(result(), result(ratio=0.97))])
        self.assertIn("0.970 [", text)
        self.assertNotIn("0.996 [", text)

    def test_complete(self):
        path = self.file(result())
        self.assertTrue(table.complete("A8", path))
        self.assertFalse(table.complete("A1", path))
        self.assertFalse(table.complete("A8", path.with_name("none.json")))
        path.write_text("no JSON")
        self.assertFalse(table.complete("A8", path))
        self.assertFalse(table.complete("A8", self.file(result(rounds=6))))


if __name__ == "__main__":
    unittest.main()
