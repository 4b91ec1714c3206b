#!/usr/bin/env python3
"""The documents show what the stored results say, and what plot refuses."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"


def run(name, *arguments):
    return subprocess.run([sys.executable, HERE / name, *arguments],
                          capture_output=True, text=True, timeout=60)


def result(**changes):
    entry = {"id": "A1", "bytes": 1 << 20, "ranks": 2, "verified": True,
             "peer": "Open MPI: with settings", "ours_seconds": 0.001,
             "peer_seconds": 0.002, "ours_rounds_seconds": [0.001, 0.0015],
             "peer_rounds_seconds": [0.002, 0.004]}
    entry.update(changes)
    return entry


class DocsTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="lockstep-plot-test-")
        self.addCleanup(self.dir.cleanup)

    def file(self, name, entry, family="25.17.1"):
        path = pathlib.Path(self.dir.name) / name
        path.write_text(json.dumps({
            "machine": {"cpu": "A <CPU>", "cpu_family": family, "cores": "2"},
            "results": [entry]}))
        return path

    def test_the_tables_are_of_the_stored_results(self):
        table = run("table")
        self.assertEqual(table.returncode, 0, table.stderr)
        page = (DOCS / "benchmarks.md").read_text()
        self.assertIn(table.stdout, page, "tests/bench/table --docs")

    def test_the_plot_is_of_the_stored_results(self):
        plot = run("plot")
        self.assertEqual(plot.returncode, 0, plot.stderr)
        self.assertEqual(plot.stdout, (DOCS / "all-reduce.svg").read_text(),
                         "tests/bench/plot --out docs/all-reduce.svg")

    def test_bars_are_medians_in_gigabytes_a_second(self):
        plot = run("plot", self.file("a", result()),
                   self.file("b", result(peer="Gloo", peer_seconds=0.01)))
        self.assertEqual(plot.returncode, 0, plot.stderr)
        texts = [text.text for text in xml.etree.ElementTree.fromstring(
            plot.stdout).iter("{http://www.w3.org/2000/svg}text")]
        for text in ("1.0", "0.5", "0.1", "1 MiB", "Open MPI", "Gloo"):
            self.assertIn(text, texts)
        self.assertIn("A <CPU>, family 25.17.1, 2 cores.", " ".join(texts))

    def test_refuses_what_cannot_be_compared(self):
        good = self.file("good", result())
        for bad, text in (
                (self.file("other", result(), family="25.1.1"), "machine"),
                (self.file("wrong", result(verified=False)), "wrong data"),
                (self.file("four", result(ranks=4)), "ranks")):
            plot = run("plot", good, bad)
            self.assertEqual(plot.returncode, 1)
            self.assertIn(text, plot.stderr)


if __name__ == "__main__":
    unittest.main()
