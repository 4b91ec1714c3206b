"""Grafana's classic dashboard JSON from short descriptions.

Panels are laid out from left to right, so that none can overlap; ids are
given in order. Everything that every panel must have (unit, description, a
text for "no data", the data source variable) is a required argument or is set
here, in one place.
"""

SCHEMA_VERSION = 39
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Where something is looked up by name: also in links of other dashboards.
CLUSTER, JOB, NODE = "lockstep-cluster", "lockstep-job", "lockstep-node"

GREEN, YELLOW, RED = "green", "yellow", "red"
# The jobs that fill a panel, if not every job does: the end of its description.
JOINED = "Joined programs and native jobs only."
NATIVE = "Native jobs only."
HELD_GPUS = "Jobs with GPUs only."


class Query:
    """One PromQL expression and what its series are called."""

    def __init__(self, expr, legend, instant=False):
        self.expr = " ".join(expr.split())
        self.legend = legend
        self.instant = instant

    def json(self, number, as_table):
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if as_table else "time_series",
            "instant": self.instant,
            "legendFormat": self.legend,
            "range": not self.instant,
            "refId": chr(ord("A") + number),
        }


class Panel:
    """kind: Grafana's panel type. steps: (from value, colour) pairs, rising.

    only: JOINED, NATIVE or HELD_GPUS. An empty panel shows no_value, or else it.
    options and custom (of fieldConfig.defaults) go over what is set here.
    """

    def __init__(self, kind, title, unit, description, *queries, width=8,
                 height=8, steps=(), minimum=None, maximum=None, options=None,
                 custom=None, links=(), transformations=(), mappings=(),
                 only="", no_value=""):
        self.kind = kind
        self.title = title
        self.unit = unit
        self.description = f"{description} {only}" if only else description
        self.queries = queries
        self.width = width
        self.height = height
        self.steps = steps
        self.minimum = minimum
        self.maximum = maximum
        self.options = options or {}
        self.custom = custom or {}
        self.links = list(links)
        self.transformations = list(transformations)
        self.mappings = list(mappings)
        self.no_value = no_value or only.rstrip(".") or "no data"

    def json(self, number, x, y):
        defaults = {
            "custom": self.custom,
            "links": self.links,
            "mappings": self.mappings,
            "noValue": self.no_value,
            "thresholds": {
                "mode": "absolute",
                "steps": [{"color": GREEN, "value": None}] + [
                    {"color": colour, "value": value}
                    for value, colour in self.steps],
            },
            "unit": self.unit,
        }
        if self.minimum is not None:
            defaults["min"] = self.minimum
        if self.maximum is not None:
            defaults["max"] = self.maximum
        return {
            "datasource": DATASOURCE,
            "description": self.description,
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "id": number,
            "options": self.options,
            "targets": [query.json(i, self.kind == "table")
                        for i, query in enumerate(self.queries)],
            "title": self.title,
            "transformations": self.transformations,
            "type": self.kind,
        }


def graph(title, unit, description, *queries, stacked=False, **more):
    """Lines over time; stacked ones are areas that add up."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 60 if stacked else 5,
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
    }
    options = {
        "legend": {"calcs": ["lastNotNull"], "displayMode": "table",
                   "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    more.setdefault("minimum", 0)
    return Panel("timeseries", title, unit, description, *queries,
                 custom=custom, options=options, **more)


def number(title, unit, description, *queries, **more):
    """The newest values, large."""
    options = {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                          "values": False},
        "textMode": "auto",
    }
    more.setdefault("width", 4)
    more.setdefault("height", 4)
    return Panel("stat", title, unit, description, *queries, options=options,
                 **more)


def timeline(title, description, *queries, **more):
    """Bars that change their colour: of 0/1 series."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom",
                   "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single"},
    }
    custom = {"fillOpacity": 70, "lineWidth": 0}
    mappings = [{"type": "value", "options": {
        "0": {"color": "transparent", "index": 0, "text": "no"},
        "1": {"color": GREEN, "index": 1, "text": "yes"}}}]
    return Panel("state-timeline", title, "none", description, *queries,
                 options=options, custom=custom, mappings=mappings, **more)


def heatmap(title, unit, description, query, **more):
    """One row of colours per series."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "show": True},
        "yAxis": {"axisPlacement": "left", "unit": "none"},
    }
    return Panel("heatmap", title, unit, description, query, options=options,
                 **more)


def table(title, unit, description, *queries, hide=(), **more):
    """The newest values with their labels as columns."""
    options = {"cellHeight": "sm", "footer": {"show": False},
               "showHeader": True}
    hidden = {name: True for name in ("Time",) + tuple(hide)}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden,
                                       "indexByName": {},
                                       "renameByName": {}}},
    ]
    return Panel("table", title, unit, description, *queries, options=options,
                 transformations=transformations, **more)


def link(title, uid, variable, label):
    """From a series to the dashboard of the thing that its label names."""
    return {
        "title": title,
        "url": f"/d/{uid}?var-datasource=${{datasource}}&var-cluster=$cluster"
               f"&var-{variable}=${{__field.labels.{label}}}"
               "&${__url_time_range}",
    }


TO_JOB = link("Job ${__field.labels.job_id}", JOB, "job_id", "job_id")
TO_NODE = link("Node ${__field.labels.node}", NODE, "node", "node")


def variable(name, label, query, every=".*"):
    """A choice of values of a label: one, several or all."""
    return {
        "allValue": every,
        "current": {"selected": True, "text": "All", "value": "$__all"},
        "datasource": DATASOURCE,
        "definition": query,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # Also when the time range changes.
        "sort": 1,
        "type": "query",
    }


def data_source():
    return {"current": {}, "hide": 0, "includeAll": False,
            "label": "Data source", "multi": False, "name": "datasource",
            "query": "prometheus", "refresh": 1, "type": "datasource"}


def annotation(name, expr, colour, title, text):
    return {"datasource": DATASOURCE, "enable": True, "expr": expr,
            "iconColor": colour, "name": name, "step": "30s",
            "tagKeys": "", "textFormat": text, "titleFormat": title}


def dashboard(uid, title, description, variables, rows, annotations=()):
    """rows: (title, [panels])."""
    panels = []
    y = 0
    for row_title, row_panels in rows:
        panels.append({"collapsed": False, "id": len(panels) + 1,
                       "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
                       "panels": [], "title": row_title, "type": "row"})
        y += 1
        x = height = 0
        for panel in row_panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            panels.append(panel.json(len(panels) + 1, x, y))
            x += panel.width
            height = max(height, panel.height)
        y += height
    others = {"asDropdown": False, "icon": "external link",
              "includeVars": True, "keepTime": True, "tags": ["lockstep"],
              "targetBlank": False, "title": "", "type": "dashboards"}
    return {
        "annotations": {"list": list(annotations)},
        "description": description,
        "editable": False,
        "graphTooltip": 1,  # One cross-hair over all panels.
        "id": None,
        "links": [others],
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["lockstep"],
        "templating": {"list": [data_source()] + list(variables)},
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": title,
        "uid": uid,
        "version": 1,
    }
