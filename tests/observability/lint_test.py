"""The dashboards, rules, runbook and metric catalogues fit each other; and
each lint finds what it is there to find. python3 lint_test.py"""

import copy
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
SOURCE = os.environ.get("LOCKSTEP_SOURCE",
                        os.path.join(HERE, "..", ".."))

import lints  # noqa: E402
import promql  # noqa: E402


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def generate():
    """name -> content, as the generator writes it."""
    with tempfile.TemporaryDirectory(prefix="lockstep-lint-") as directory:
        subprocess.run([sys.executable,
                        os.path.join(SOURCE, "deploy/grafana/generate"),
                        directory], check=True, timeout=60)
        found = {}
        for path in sorted(glob.glob(directory + "/*")):
            with open(path, encoding="utf-8") as file:
                found[os.path.basename(path)] = json.load(file)
        return found


def excused():
    """not_shown.txt: a metric and the reason on each line."""
    reasons = {}
    for line in read("tests/observability/not_shown.txt").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            reasons[name] = reason.strip()
    return reasons


class OurFiles(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.dashboards = generate()
        cls.rules = (lints.rules(read("deploy/prometheus/alert_rules.yml")) +
                     lints.rules(read("deploy/prometheus/"
                                      "recording_rules.yml")))
        cls.documented = []
        for path in sorted(glob.glob(os.path.join(SOURCE, "docs",
                                                  "metrics-*.md"))):
            cls.documented += lints.catalogue(read(path))

    def expressions(self):
        found = [(name + ": " + where, expression)
                 for name, content in self.dashboards.items()
                 for where, expression in lints.queries(content)]
        return found + [(rule.get("alert") or rule["record"], rule["expr"])
                        for rule in self.rules]

    def test_dashboards(self):
        self.assertEqual(sorted(self.dashboards), [
            "lockstep-cluster.json", "lockstep-job.json",
            "lockstep-node.json"])
        for name, content in self.dashboards.items():
            with self.subTest(name):
                self.assertEqual(lints.dashboard(content), [])
                self.assertEqual(content["uid"] + ".json", name)

    def test_the_same_bytes_each_time(self):
        self.assertEqual(generate(), self.dashboards)

    def test_every_rule_was_read(self):
        for name in ("alert_rules.yml", "recording_rules.yml"):
            text = read("deploy/prometheus", name)
            self.assertEqual(len(lints.rules(text)),
                             text.count("- alert:") + text.count("- record:"))

    def test_alerts(self):
        self.assertEqual(lints.alerts(
            self.rules, read("docs/runbook.md"),
            "".join(read("deploy/prometheus", os.path.basename(path))
                    for path in sorted(glob.glob(os.path.join(
                        SOURCE, "deploy/prometheus/alert_rules_*_test.yml"))))
        ), [])

    def test_the_runbook_names_panels(self):
        titles = {panel["title"] for content in self.dashboards.values()
                  for panel in lints.panels(content)}
        runbook = read("docs/runbook.md")
        self.assertIn('"Lag behind the median rank"', runbook)
        self.assertEqual(lints.quoted_panels(runbook, titles), [])

    def test_metrics_are_documented(self):
        self.assertGreater(len(self.documented), 50)
        recorded = [r["record"] for r in self.rules if "record" in r]
        self.assertEqual(
            lints.names(self.expressions(), self.documented, recorded), [])

    def test_metrics_are_shown(self):
        self.assertEqual(
            lints.unused(self.expressions(), self.documented, excused()), [])

    def test_recorded_series_are_used(self):
        used = set()
        for _, expression in self.expressions():
            used |= promql.metrics(expression)
        for rule in self.rules:
            if "record" in rule:
                self.assertIn(rule["record"], used)


class Lints(unittest.TestCase):
    """On files that are wrong."""

    @classmethod
    def setUpClass(cls):
        cls.good = generate()["lockstep-node.json"]

    def findings(self, change):
        content = copy.deepcopy(self.good)
        change(content, lints.panels(content)[1])
        return " ".join(lints.dashboard(content))

    def test_dashboard(self):
        def default(panel):
            return panel["fieldConfig"]["defaults"]

        def target(panel):
            return panel["targets"][0]
        for change, wanted in [
                (lambda d, p: d.update(id=7), "id is 7"),
                (lambda d, p: d.update(uid="x"), "uid is 'x'"),
                (lambda d, p: d.update(schemaVersion=22), "schemaVersion"),
                (lambda d, p: p.update(id=2), "has the id of"),
                (lambda d, p: p["gridPos"].update(x=0), "lies on"),
                (lambda d, p: p["gridPos"].update(x=23), "leaves the grid"),
                (lambda d, p: p.update(description=""), "no description"),
                (lambda d, p: p.update(description="Of x. Some jobs only."),
                 'has the mark "Some jobs only."'),
                (lambda d, p: p.update(targets=[]), "asks nothing"),
                (lambda d, p: p.update(title="Load"), "two panels"),
                (lambda d, p: default(p).update(unit=""), "has the unit"),
                (lambda d, p: default(p).update(noValue=""), "no noValue"),
                (lambda d, p: target(p).update(legendFormat=""),
                 "does not name"),
                (lambda d, p: target(p).update(expr="rate(a[5m])"),
                 "a rate over 5m"),
                (lambda d, p: target(p).update(expr='a{b="$c"}'),
                 "uses $c"),
                (lambda d, p: target(p).update(datasource={"uid": "x"}),
                 "data source of its own"),
                (lambda d, p: d["templating"].update(list=[]),
                 "no variable datasource")]:
            with self.subTest(wanted):
                self.assertIn(wanted, self.findings(change))

    def test_metrics_of_an_expression(self):
        for expression, wanted in [
                ("a", {"a"}),
                ('sum by (le, b) (rate(a_bucket{c="d",e=~"f{2}"}[5m]))',
                 {"a_bucket"}),
                ("a / on (x) group_left (y) b:c:d > 0.5", {"a", "b:c:d"}),
                ("1 - a offset 5m and b unless c or d == bool 1",
                 {"a", "b", "c", "d"}),
                ("time() - a{x='lockstep_y'}", {"a"}),
                ("vector(1)", set())]:
            with self.subTest(expression):
                self.assertEqual(promql.metrics(expression), wanted)
        self.assertEqual(promql.windows("rate(a{b=\"[c]\"}[5m]) + "
                                        "irate(d[1m])", "rate"), ["5m"])

    def test_catalogue(self):
        self.assertEqual(lints.catalogue(
            "Text with `lockstep_not_this`.\n"
            "| name | type |\n|---|---|\n"
            "| `lockstep_a`, `lockstep_b_{x,y}_total` | `lockstep_no` |\n"
            "| `process_open_fds` | G |\n"),
            ["lockstep_a", "lockstep_b_x_total", "lockstep_b_y_total",
             "process_open_fds"])

    def test_names_and_reasons(self):
        asked = [("p", "rate(a_seconds_bucket[1m]) + b + r:r:r")]
        self.assertEqual(
            lints.names(asked, ["a_seconds"], ["r:r:r"]),
            ["p: nobody documents b"])
        self.assertEqual(lints.unused(
            asked, ["a_seconds", "b", "c", "d"],
            {"d": "too detailed to show", "b": "used after all",
             "e": "is not there", "c": ""}),
            ["b is excused and used", "e is excused and no metric",
             "c is excused without a reason"])
        self.assertEqual(lints.unused([], ["a"], {}),
                         ["a is in no panel and no rule, and no reason is "
                          "given"])

    def test_alert(self):
        found = " ".join(lints.alerts(
            lints.rules("      - alert: LockstepBad\n"
                        "        expr: up == 0\n"
                        "        labels: {severity: loud}\n"
                        "        annotations:\n"
                        "          summary: text\n"
                        "          runbook_url: elsewhere\n"),
            "## LockstepOther\n",
            "  - name: LockstepBad\n"
            "    alert_rule_test:\n"
            "      - alertname: LockstepBad\n"
            "        exp_alerts:\n"
            "          - exp_labels: {severity: loud}\n"
            "      - alertname: LockstepThird\n"
            "        exp_alerts: []\n"))
        for wanted in ("no for", "test of LockstepThird, which is no alert", "no description", "no severity",
                       "leads to elsewhere", "LockstepOther, which is no",
                       "no **Do** for LockstepBad", "no test where "
                       "LockstepBad is quiet", "where LockstepBad fires"):
            self.assertIn(wanted, found)
        self.assertNotIn("no summary", found)

    def test_cases_of_alerts(self):
        fires = ("      - alertname: A\n        eval_time: 1m\n"
                 "        exp_alerts:\n          - exp_labels: {a: b}\n"
                 "            exp_annotations:\n              summary: s\n"
                 "              description: >-\n                text\n")
        quiet = ("      - alertname: B\n        eval_time: 1m\n"
                 "        exp_alerts: []\n")
        start = "  - name: A\n    alert_rule_test:\n"
        for text, wanted in [
                (start + fires + quiet, ({"A"}, {"B"})),
                (start + quiet + fires, ({"A"}, {"B"})),
                (start + fires.replace("description", "text"), (set(), set())),
                # Another test's annotations do not count for this case.
                (start + "      - alertname: C\n        exp_alerts:\n"
                 "          - exp_labels: {}\n" + start + fires,
                 ({"A"}, set()))]:
            with self.subTest(text):
                self.assertEqual(lints.tested(text), wanted)

    def test_quoted_panels(self):
        self.assertEqual(lints.quoted_panels(
            'The log line "connected", "Time by\nstate" and "Lag".\n',
            {"Time by state"}),
            ['the runbook sends to "Lag", which is no panel'])


if __name__ == "__main__":
    unittest.main()
