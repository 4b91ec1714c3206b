"""What dashboards, rules, runbook and metric catalogues must keep.

Every function returns sentences about what is wrong; none is none.
"""

import re

import promql

# Prometheus's own.
BUILT_IN = {"up", "ALERTS"}
UNITS = {"none", "percentunit", "s", "h", "bytes", "Bps", "ops", "reqps",
         "flops", "celsius", "watt", "hertz", "currencyUSD"}
DASHBOARD_KEYS = {"tags": ["lockstep"], "id": None, "refresh": "30s",
                  "timezone": "browser", "graphTooltip": 1,
                  "editable": False, "schemaVersion": 39}
# Variables that Grafana itself knows.
GRAFANA = {"__rate_interval", "__range", "__url_time_range", "__field",
           "__interval"}
# At the ends of descriptions in the job's dashboard, as its generator has them.
JOINED = "Joined programs and native jobs only."
NATIVE = "Native jobs only."
HELD_GPUS = "Jobs with GPUs only."
SEVERITIES = {"critical", "warning", "info"}


def catalogue(text):
    """Names in the tables of a metric document: those of the first column.

    `a_{x,y}_total` stands for two; a name that begins with "_" takes the
    place of the last words of the one before it in the same cell.
    """
    names = []
    for line in text.splitlines():
        cells = re.split(r"(?<!\\)\|", line)
        if len(cells) < 3 or cells[0].strip():
            continue
        for word in re.findall(r"`([A-Za-z_][\w{},:]*)`", cells[1]):
            expanded = _braces(word)
            if re.fullmatch(r"(lockstep|process|grpc_server)_\w+",
                            expanded[0]):
                names += expanded
    return names


def _braces(word):
    match = re.match(r"([^{}]*)\{([^{}]*)\}(.*)", word)
    if not match:
        return [word]
    before, choices, after = match.groups()
    return [name for choice in choices.split(",")
            for name in _braces(before + choice + after)]


def panels(dashboard):
    return [p for p in dashboard.get("panels", []) if p.get("type") != "row"]


def mark(panel):
    """What the end of the description says about who fills the panel. None: all."""
    description = panel["description"]
    found = re.search(r"[A-Z][^.:;]* only\.$", description)
    return found[0] if found else None


def marks(dashboard):
    """Marks that nobody checks."""
    return [f'"{panel["title"]}" has the mark "{mark(panel)}"'
            for panel in panels(dashboard)
            if mark(panel) not in (None, JOINED, NATIVE, HELD_GPUS)]


def queries(dashboard):
    """(where, expression) of panels and annotations."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for note in dashboard.get("annotations", {}).get("list", []):
        yield "annotation " + note["name"], note["expr"]


def layout(dashboard):
    """Panels that overlap, leave the grid or share an id."""
    wrong = []
    seen = {}
    cells = {}
    for panel in dashboard.get("panels", []):
        title = panel.get("title", "?")
        if panel.get("id") in seen:
            wrong.append(f'"{title}" has the id of "{seen[panel["id"]]}"')
        seen[panel.get("id")] = title
        at = panel["gridPos"]
        if at["x"] + at["w"] > 24 or min(at.values()) < 0:
            wrong.append(f'"{title}" leaves the grid')
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in cells and cells[x, y] != title:
                    wrong.append(f'"{title}" lies on "{cells[x, y]}"')
                cells[x, y] = title
    return sorted(set(wrong))


def _panel(panel):
    wrong = []
    title = panel.get("title", "?")
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    if len(panel.get("description", "")) < 3:
        wrong.append(f'"{title}" has no description')
    if defaults.get("unit") not in UNITS:
        wrong.append(f'"{title}" has the unit {defaults.get("unit")}')
    for key in ("noValue", "thresholds"):
        if not defaults.get(key):
            wrong.append(f'"{title}" has no {key}')
    if not panel.get("targets"):
        wrong.append(f'"{title}" asks nothing')
    for target in panel.get("targets", []):
        if target.get("datasource", {}).get("uid") != "${datasource}":
            wrong.append(f'"{title}" has a data source of its own')
        if panel["type"] != "table" and not target.get("legendFormat"):
            wrong.append(f'"{title}" does not name its series')
        for window in promql.windows(target["expr"], "rate"):
            if window not in ("$__rate_interval", "$__range"):
                wrong.append(f'"{title}" takes a rate over {window}')
    return wrong


def dashboard(content):
    wrong = [f"{key} is {content.get(key)!r}, not {value!r}"
             for key, value in DASHBOARD_KEYS.items()
             if content.get(key, "missing") != value]
    if not re.fullmatch(r"lockstep-[a-z-]{1,31}", content.get("uid", "")):
        wrong.append(f"uid is {content.get('uid')!r}")
    wrong += layout(content)
    wrong += marks(content)
    titles = [panel.get("title") for panel in panels(content)]
    wrong += [f'two panels are called "{title}"'
              for title in sorted(set(titles)) if titles.count(title) > 1]
    for panel in panels(content):
        wrong += _panel(panel)
    variables = {v["name"] for v in content["templating"]["list"]}
    if "datasource" not in variables:
        wrong.append("there is no variable datasource")
    for where, expression in queries(content):
        for used in re.findall(r"\$\{?(\w+)", expression):
            if used not in variables | GRAFANA:
                wrong.append(f'"{where}" uses ${used}, which is no variable')
    return wrong


def rules(text):
    """The alerts and recordings of a rule file: dicts of texts.

    Reads the form that our files have (rules at 6 spaces, their keys at 8,
    annotations at 10), not YAML: no package is needed.
    """
    found = []
    inside = ""
    key = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        match = re.match(r"\s*(?:- )?(\w+):\s*(?:[|>]-?$)?(.*)$", line)
        starts = re.match(r"      - (alert|record): ", line)
        if starts:
            found.append({})
        if not found or not line.strip() or line.lstrip().startswith("#"):
            key = None
        elif match and (starts or indent == 8 or (
                indent == 10 and inside == "annotations")):
            key = match[1]
            if indent < 10:
                inside = key
            found[-1][key] = match[2].strip()
        elif indent < 8:
            key = None  # Of the next group.
        elif key:
            found[-1][key] = (found[-1][key] + " " + line.strip()).strip()
    return found


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def tested(tests):
    """(alerts with a case that fires, alerts with one that is quiet).

    Reads the cases of promtool's alert_rule_test in the form that our files
    have. A case that fires says the alert's labels and annotations: one
    without them would pass whatever the alert's text came to.
    """
    fires, quiet = set(), set()
    for case in re.split(r"^      - (?=alertname: )|^  - ", tests,
                         flags=re.MULTILINE):
        match = re.match(r"alertname: (\w+)\n", case)
        if match and re.search(r"^        exp_alerts: \[\]$", case,
                               re.MULTILINE):
            quiet.add(match[1])
        elif match and re.search(r"exp_labels:.*\n\s+exp_annotations:\n"
                                 r"(?:.*\n)*?\s+description: ", case):
            fires.add(match[1])
    return fires, quiet


def alerts(rule_list, runbook, tests):
    """rule_list: of rules(); the texts of the runbook and the unit tests."""
    wrong = []
    fires, quiet = tested(tests)
    names = [rule["alert"] for rule in rule_list if "alert" in rule]
    headings = re.findall(r"^## (Lockstep\w+)$", runbook, re.MULTILINE)
    wrong += [f"the runbook tells of {h}, which is no alert"
              for h in headings if h not in names]
    sections = dict(zip(headings, re.split(r"^## .*$", runbook,
                                           flags=re.MULTILINE)[1:]))
    for rule in rule_list:
        if "alert" not in rule:
            continue
        name = rule["alert"]
        if not re.fullmatch(r"Lockstep[A-Z]\w+", name):
            wrong.append(f"{name} is not called Lockstep...")
        for key in ("expr", "for", "summary", "description", "runbook_url"):
            if not rule.get(key):
                wrong.append(f"{name} has no {key}")
        severity = re.search(r"severity: *(\w+)", rule.get("labels", ""))
        if not severity or severity[1] not in SEVERITIES:
            wrong.append(f"{name} has no severity")
        if rule.get("runbook_url") != (
                '"{{ with $externalLabels.lockstep_docs }}{{ . }}/{{ end }}'
                f'docs/runbook.md#{anchor(name)}"'):
            wrong.append(f"{name} leads to {rule.get('runbook_url')}")
        section = sections.get(name, "")
        for part in ("**Means**", "**Look**", "**Do**"):
            if part not in section:
                wrong.append(f"the runbook has no {part} for {name}")
        # An alert that always fires has no quiet case.
        if name not in quiet and rule.get("expr") != "vector(1)":
            wrong.append(f"no test where {name} is quiet")
        if name not in fires:
            wrong.append(f"no test where {name} fires")
    wrong += [f"there is a test of {name}, which is no alert"
              for name in sorted((fires | quiet) - set(names))]
    return wrong


def quoted_panels(runbook, titles):
    """What the runbook quotes is a panel, save where it says `line "..."`."""
    quoted = re.findall(r'(line )?"([^"]+)"', " ".join(runbook.split()))
    wrong = {title for line, title in quoted if not line} - set(titles)
    return [f'the runbook sends to "{title}", which is no panel'
            for title in sorted(wrong)]


def names(expressions, documented, recorded):
    """expressions: (where, PromQL). Metrics that nobody documents."""
    known = set(documented) | set(recorded) | BUILT_IN
    return [f"{where}: nobody documents {metric}"
            for where, expression in expressions
            for metric in sorted(promql.metrics(expression))
            if promql.family(metric, known) not in known]


def unused(expressions, documented, excused):
    """excused: name -> reason. Documented metrics that nobody looks at."""
    used = {promql.family(metric, documented)
            for _, expression in expressions
            for metric in promql.metrics(expression)}
    wrong = [f"{name} is in no panel and no rule, and no reason is given"
             for name in sorted(set(documented)) if name not in used
             and name not in excused]
    wrong += [f"{name} is excused and used" for name in sorted(excused)
              if name in used]
    wrong += [f"{name} is excused and no metric" for name in sorted(excused)
              if name not in documented]
    wrong += [f"{name} is excused without a reason"
              for name, reason in sorted(excused.items())
              if len(reason) < 10]
    return wrong
