"""Names in PromQL, as far as lints need them: no parser."""

import re

KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring",
            "group_left", "group_right", "bool", "offset", "inf", "nan"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_LABELS = re.compile(r"\{[^{}]*\}")
_GROUPING = re.compile(
    r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w$:.])([A-Za-z_:][\w:]*)\s*(\()?")


def metrics(expression):
    """The metrics that an expression reads, without functions."""
    text = _STRING.sub('""', expression)
    for pattern in (_LABELS, _RANGE, _GROUPING):
        text = pattern.sub(" ", text)
    return {name for name, called in _NAME.findall(text)
            if not called and name.lower() not in KEYWORDS}


def family(name, families):
    """The family of a series: x_seconds of x_seconds_bucket."""
    for suffix in ("_bucket", "_sum", "_count"):
        if name not in families and name.endswith(suffix):
            return name[:-len(suffix)]
    return name


def windows(expression, function):
    """What is between the brackets of each `function` of the expression."""
    found = []
    for match in re.finditer(r"\b%s\s*\(" % function, expression):
        depth, at = 1, match.end()
        while at < len(expression) and depth > 0:
            depth += {"(": 1, ")": -1}.get(expression[at], 0)
            at += 1
        inside = _STRING.sub('""', expression[match.end():at - 1])
        found += re.findall(r"\[([^\]]*)\]", inside)
    return found
