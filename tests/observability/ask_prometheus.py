"""Asks a Prometheus that watches a cluster with a running job.

  ask_prometheus.py --prometheus URL --promtool PATH --cluster NAME
                    --job NAME --workers NODE,NODE... --token-file PATH
                    [--alert NAME | --kind KIND]

With --alert it waits until that alert fires, and nothing else. With --kind it
asks what the job's dashboard shows of a job of that kind, and nothing else: no
panel may be empty but those whose descriptions end with a mark that leaves such a
job out ("Native jobs only."), and those must show nothing but zeros. An unjoined
job is to have no GPU, the others to have one. Without, everything is asked. It is asked again until it is as it should be, for at most a minute in all.
 Prints what is wrong and exits with 1, or says how much was asked.

 - All daemons are found through /sd and answer; promtool has nothing to say
   against their pages.
 - Every query of the dashboards answers, and with samples unless
   may_be_empty.txt excuses the panel. Every variable offers values.
 - Sums over the workers agree with what the coordinator counts.
 - Every rule evaluates; recorded series are there; no alert fires but the
   watchdog.
 - The daemons emit what the catalogues document, and nothing else.
"""

import argparse
import glob
import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import lint_test  # noqa: E402
import lints  # noqa: E402

PATIENCE = 60
# Has a sample when it holds.
AGREED = (
    'count(lockstep_gpu_up) '
    '== sum(lockstep_resources_capacity{resource="gpu"})',
    'count(lockstep_gpu_allocation) '
    '== sum(lockstep_resources_allocated{resource="gpu"})',
)
# The marks of the panels that a job of this kind fills.
KINDS = {
    "unjoined": set(),
    "joined": {lints.JOINED, lints.HELD_GPUS},
    "native": {lints.JOINED, lints.NATIVE, lints.HELD_GPUS},
}
# Names of others, as they are: promtool would have them otherwise.
FOREIGN_PAGES = ("/metrics/dcgm", "/metrics/node")


def get(url, token=None):
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", "Bearer " + token)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


class Prometheus:
    def __init__(self, url):
        self.url = url

    def ask(self, path, **parameters):
        """The data of the answer. Raises OSError with what Prometheus says."""
        url = f"{self.url}/api/v1/{path}?" + urllib.parse.urlencode(
            parameters, doseq=True)
        try:
            return json.loads(get(url))["data"]
        except urllib.error.HTTPError as error:
            raise OSError(error.read().decode()) from error

    def query(self, expression):
        return self.ask("query", query=expression)["result"]


def excuses(name):
    """Lines "KEY | KEY | reason" as a dict of what is before the reason."""
    found = {}
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                *key, reason = [part.strip() for part in line.split("|")]
                found[tuple(key)] = reason
    return found


class Questions:
    """Each check returns sentences about what is not yet as it should be."""

    def __init__(self, prometheus, arguments):
        self.prometheus = prometheus
        self.arguments = arguments
        self.dashboards = lint_test.generate()
        self.may_be_empty = excuses("may_be_empty.txt")
        self.not_emitted = excuses("not_emitted.txt")
        self.answered = set()
        with open(arguments.token_file, encoding="utf-8") as file:
            self.token = file.read().strip()

    def substitute(self, expression):
        for name, value in (("__rate_interval", "15s"), ("__range", "1m"),
                            ("cluster", ".*"), ("pool", ".*"),
                            ("node", ".+"), ("job_id", self.arguments.job)):
            expression = re.sub(r"\$\{?%s\b\}?" % name, value, expression)
        return expression

    def targets(self):
        active = self.prometheus.ask("targets", state="active")[
            "activeTargets"]
        wrong = [f'{t["scrapeUrl"]} is {t["health"]}: {t["lastError"]}'
                 for t in active if t["health"] != "up"]
        found = sorted((t["labels"]["job"], t["labels"].get("node", ""),
                        t["labels"].get("cluster")) for t in active)
        cluster = self.arguments.cluster
        wanted = sorted([("lockstep-coordinator", "", cluster)] +
                        [("lockstep-worker", node, cluster)
                         for node in self.arguments.workers.split(",")])
        if found != wanted:
            wrong.append(f"targets are {found}, not {wanted}")
        return wrong

    def pages(self):
        wrong = []
        for target in self.prometheus.ask("targets")["activeTargets"]:
            wrong += self.page(target["scrapeUrl"])
            if target["labels"]["job"] == "lockstep-worker":
                for path in FOREIGN_PAGES:
                    wrong += self.page(
                        target["scrapeUrl"].replace("/metrics", path))
        return wrong

    def page(self, url):
        try:
            page = get(url, self.token)
        except OSError as error:
            return [f"{url}: {error}"]
        tool = subprocess.run([self.arguments.promtool, "check", "metrics"],
                              input=page, text=True, capture_output=True,
                              timeout=60, check=False)
        # 3 is a matter of taste.
        allowed = (0, 3) if url.endswith(FOREIGN_PAGES) else (0,)
        if tool.returncode in allowed:
            return []
        return [f"{url}: promtool says {tool.stdout}{tool.stderr}"]

    def panels(self):
        wrong = []
        for name, content in self.dashboards.items():
            for where, expression in lints.queries(content):
                wrong += self.panel(content["uid"], where, expression)
        titles = {(content["uid"], where)
                  for content in self.dashboards.values()
                  for where, _ in lints.queries(content)}
        return wrong + [f"may_be_empty.txt excuses {' | '.join(key)}, which "
                        "is no panel"
                        for key in self.may_be_empty if key not in titles]

    def panel(self, uid, where, expression):
        if (uid, where, expression) in self.answered:
            return []
        expression = self.substitute(expression)
        try:
            samples = self.prometheus.query(expression)
        except OSError as error:
            return [f'{uid}, "{where}": {error} {expression}']
        empty = where.startswith("annotation") or (
            uid, where) in self.may_be_empty
        if samples or empty:
            self.answered.add((uid, where, expression))
            return []
        return [f'{uid}, "{where}" has no samples: {expression}']

    def job_dashboard(self):
        wrong = []
        filled = KINDS[self.arguments.kind]
        content = self.dashboards["lockstep-job.json"]
        for panel in lints.panels(content):
            title, mark = panel["title"], lints.mark(panel)
            if (content["uid"], title) in self.may_be_empty:
                continue
            values = [float(sample["value"][1]) for target in panel["targets"]
                      for sample in self.prometheus.query(
                          self.substitute(target["expr"]))]
            if mark in filled | {None}:
                if not values:
                    wrong.append(f'"{title}" is empty')
            elif any(value and not math.isnan(value) for value in values):
                wrong.append(f'"{title}" has samples, and says: {mark}')
            self.answered.add(title)
        return wrong

    def agreement(self):
        return [f"not so: {claim}" for claim in AGREED
                if not self.prometheus.query(claim)]

    def variables(self):
        wrong = []
        for name, content in self.dashboards.items():
            for variable in content["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                match = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                     variable["query"]["query"])
                values = self.prometheus.ask(
                    f"label/{match[2]}/values",
                    **{"match[]": self.substitute(match[1])})
                if not values:
                    wrong.append(f"{name}: ${variable['name']} has no values")
        return wrong

    def rules(self):
        wrong = []
        for group in self.prometheus.ask("rules")["groups"]:
            for rule in group["rules"]:
                name = rule["name"]
                if rule["health"] != "ok":
                    wrong.append(f'{name} is {rule["health"]}: '
                                 f'{rule.get("lastError")}')
                if rule["type"] == "recording":
                    if not self.prometheus.query(name):
                        wrong.append(f"{name} has no samples")
                firing = [a for a in rule.get("alerts", [])
                          if a["state"] == "firing"]
                if bool(firing) != (name == "LockstepWatchdog"):
                    if rule["type"] == "alerting":
                        wrong.append(f"{name}: {len(firing)} alerts {firing}")
        return wrong

    def catalogue(self):
        documented = []
        for path in glob.glob(os.path.join(lint_test.SOURCE, "docs",
                                           "metrics-*.md")):
            documented += lints.catalogue(lint_test.read(path))
        # The types of families as they are, not names of series.
        emitted = {item["metric"] for item in self.prometheus.ask(
            "targets/metadata", match_target='{job=~"lockstep-.*"}')}
        absent = [name for name in documented if name not in emitted
                  and (name,) not in self.not_emitted]
        return ([f"{name} is emitted and not documented"
                 for name in sorted(emitted - set(documented))] +
                [f"{name} is documented and not emitted"
                 for name in sorted(absent)] +
                [f"not_emitted.txt excuses {key[0]}, which is not documented"
                 for key in self.not_emitted if key[0] not in documented])

    def alert(self):
        firing = [alert for alert in self.prometheus.ask("alerts")["alerts"]
                  if alert["labels"]["alertname"] == self.arguments.alert
                  and alert["state"] == "firing"]
        for alert in firing:
            print(alert["annotations"]["summary"])
        return [] if firing else [f"{self.arguments.alert} does not fire"]

    def wrong(self):
        found = []
        checks = (self.targets, self.panels, self.variables, self.agreement,
                  self.rules, self.catalogue)
        if self.arguments.alert:
            checks = (self.alert,)
        elif self.arguments.kind:
            checks = (self.job_dashboard,)
        for check in checks:
            try:
                found += check()
            except OSError as error:  # Not yet up, say.
                found.append(f"{check.__name__}: {error}")
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("prometheus", "promtool", "cluster", "job", "workers", "token-file"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--alert")
    parser.add_argument("--kind", choices=sorted(KINDS))
    arguments = parser.parse_args()
    questions = Questions(Prometheus(arguments.prometheus), arguments)
    start = time.monotonic()
    while True:
        wrong = questions.wrong()
        if not wrong or time.monotonic() > start + PATIENCE:
            break
        time.sleep(0.5)  # Between two looks, each a new condition.
    if not arguments.alert and not arguments.kind:
        wrong += questions.pages()
    took = time.monotonic() - start
    if wrong:
        print("\n".join(wrong))
        print(f"{len(wrong)} things are wrong after {took:.1f} s")
        return 1
    if not arguments.alert:
        print(f"{len(questions.answered)} queries have samples or may be "
              f"empty; all is well after {took:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
