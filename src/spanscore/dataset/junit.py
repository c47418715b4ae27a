"""GateResult → a file as JUnit writes it, which every CI shows: a test per metric, a failure where it does not hold."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from spanscore.dataset.gate import GateResult, MetricGate
from spanscore.errors import writing

__all__ = ["write_junit"]


def write_junit(result: GateResult, path: Path, *, suite: str) -> None:
    """Write the verdicts; no content of a case is in them.

    Args:
        result: of the gate.
        path: replaced where it exists.
        suite: how they are called together: the file of the cases.

    Raises:
        ConfigurationError: it cannot be written.
    """
    told = [(metric, _why(metric)) for metric in result.metrics]
    failures = sum(bool(metric.failed) for metric, _ in told)
    errors = sum(metric.incomplete and not metric.failed for metric, _ in told)
    counts = {"tests": str(len(told)), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites", counts)
    suites = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for metric, why in told:
        case = ElementTree.SubElement(suites, "testcase", {"classname": "spanscore", "name": metric.metric})
        if metric.failed or metric.incomplete:
            kind = "failure" if metric.failed else "error"
            ElementTree.SubElement(case, kind, {"message": why})
    with writing(path):
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _why(metric: MetricGate) -> str:
    return "; ".join([*metric.failed, *([metric.lacks] * metric.incomplete)])
