"""Every instrument and attribute that ``integrations/`` names is in ``semconv``, and every instrument is shown somewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from tests.integrations.stage import INTEGRATIONS, dashboards, panels
from tests.yaml_files import read_yaml

import spanscore
from spanscore import semconv
from spanscore.monitoring.promql import label, series
from spanscore.outputs.instrument_table import INSTRUMENTS

KNOWN = {
    value
    for name, constant in vars(semconv).items()
    if name.isupper()
    for value in (constant if isinstance(constant, (tuple, frozenset)) else [constant])
    if isinstance(value, str)
}
FAMILIES = tuple(name for name in KNOWN if name.endswith("."))
"""Followed by a metric, or a part of an annotation."""
SERIES = {
    name + part
    for instrument, about in INSTRUMENTS.items()
    for name in [series(instrument)]
    for part in (("_bucket", "_sum", "_count", "") if about.kind == "histogram" else ("",))
}
LABELS = {label(name) for name in KNOWN} | {
    "le",
    "job",
    "instance",
    "service_name",
    "service_instance_id",
    "reason",
    "of",
}
REFERENCE = (INTEGRATIONS / "jaeger" / "README.md").read_text(encoding="utf-8")
ALERT_LABELS = {"severity", "metric", "window", "alertname", "segment"}


def _texts(*kinds: str) -> Iterator[tuple[Path, str]]:
    for file in sorted(INTEGRATIONS.rglob("*")):
        if file.suffix in kinds:
            yield file, file.read_text(encoding="utf-8")


def _expressions() -> Iterator[str]:
    for dashboard in dashboards().values():
        yield from (target["expr"] for panel in panels(dashboard) for target in panel["targets"] if "expr" in target)
    for file in sorted((INTEGRATIONS / "prometheus").glob("*.yml")):
        for group in read_yaml(file.read_text(encoding="utf-8")).get("groups", []):
            yield from (rule["expr"] for rule in group["rules"])


def _groups() -> set[str]:
    files = (INTEGRATIONS / "prometheus").glob("*.yml")
    trees = [read_yaml(file.read_text(encoding="utf-8")) for file in files]
    return {group["name"] for tree in trees for group in tree.get("groups", [])}


def _known(dotted: str) -> bool:
    return dotted in KNOWN or dotted.startswith(FAMILIES)


def _code(dotted: str) -> bool:
    """Return whether it is a name of a Python module, a file, or the public surface."""
    _, first, *_, last = (*dotted.split("."), dotted.rpartition(".")[2])
    known = first in spanscore.__all__ or last in {"yaml", "yml", "json"}
    return known or importlib.util.find_spec(f"spanscore.{first}") is not None


def test_every_attribute_of_ours_on_an_evaluation_span_is_in_the_reference() -> None:
    code = (Path(spanscore.__file__).parent / "outputs" / "score_spans.py").read_text(encoding="utf-8")
    named = (getattr(semconv, name) for name in re.findall(r"\bsemconv\.([A-Z][A-Z0-9_]+)", code))
    ours = {name for name in named if isinstance(name, str) and name.startswith("spanscore.")}
    ours -= {
        semconv.JUDGE_STEP,
        *(name for name in ours if name.endswith(".")),
    }  # of judges' spans, and of units' spans

    assert ours
    assert {name for name in ours if f"`{name}`" not in REFERENCE} == set()


def test_every_attribute_of_ours_that_a_unit_leaves_with_is_in_the_reference() -> None:
    code = (Path(spanscore.__file__).parent / "pipeline" / "tracker.py").read_text(encoding="utf-8")
    named = (getattr(semconv, name) for name in re.findall(r"\bsemconv\.([A-Z][A-Z0-9_]+)", code))
    ours = {name for name in named if isinstance(name, str) and name.startswith("spanscore.")}
    of_units = REFERENCE.partition("On the unit's span only")[2].partition("On the evaluation span only")[0]

    assert ours
    assert {name for name in ours if f"`{name}`" not in of_units} == set()


def test_every_attribute_that_is_named_exists() -> None:
    named = {
        (str(file.relative_to(INTEGRATIONS)), found)
        for file, text in _texts(".md", ".yaml", ".yml", ".json")
        for found in re.findall(r"\b(?:spanscore|gen_ai|openinference)(?:\.[a-z_0-9]+)+", text)
    }

    assert named
    assert [one for one in sorted(named) if not _known(one[1]) and not _known(f"{one[1]}.") and not _code(one[1])] == []


def test_what_goes_by_scope_names_both_scopes_of_evaluators() -> None:
    named = {
        str(file.relative_to(INTEGRATIONS)): set(re.findall(r"scope\.name\s*[=!]=\s*\"([\w.]+)\"", text))
        for file, text in _texts(".md", ".yaml", ".yml", ".json", ".py")
        if re.search(r"scope[.:]name\b", text)
    }

    assert {"collector/otelcol.yaml", "collector/README.md"} <= named.keys()
    assert {file: scopes for file, scopes in named.items() if not scopes >= semconv.EVALUATOR_SCOPES} == {}


def test_every_series_that_is_asked_for_exists() -> None:
    named = {
        (str(file.relative_to(INTEGRATIONS)), found)
        for file, text in _texts(".md", ".yaml", ".yml", ".json")
        for found in re.findall(r"(?<![\w:./-])spanscore_[A-Za-z0-9_]+", text)
    }

    known = SERIES | LABELS | _groups()
    assert named
    assert [one for one in sorted(named) if one[1] not in known] == []


def test_every_label_that_is_asked_for_exists() -> None:
    named = {
        name
        for expression in _expressions()
        for names in [
            *re.findall(r"(?:by|without|on|ignoring) ?\(([^)]*)\)", expression),
            *re.findall(r"(\w+) ?(?:=~|!~|!=|=)\"", expression),
        ]
        for name in re.findall(r"\w+", names)
    }

    assert {"gen_ai_evaluation_name", "job"} <= named
    assert named - LABELS - ALERT_LABELS == set()


def _asked() -> str:
    alerts = read_yaml((INTEGRATIONS / "grafana" / "alerting" / "spanscore.yaml").read_text(encoding="utf-8"))
    models = [data["model"] for group in alerts["groups"] for rule in group["rules"] for data in rule["data"]]
    return "\n".join([*_expressions(), *(model["expr"] for model in models if "expr" in model)])


COUNTED = re.compile(r"(?:increase|rate)\(spanscore_(eligible|evaluations)_total(?:\{([^}]*)\})?\[")


def _is_once(instrument: str, matchers: str, expression: str) -> bool:
    """Whether units that another process scores, and counts there, are left out, asked for alone, or taken off."""
    if instrument == "eligible":
        return 'spanscore_evaluation_outcome="delegated"' in expression
    found = re.findall(r'spanscore_evaluation_outcome(=~|!~|!=|=)"([^"]*)"', matchers)
    return any(
        value == "delegated" or (re.fullmatch(value, "delegated") is not None) == sign.startswith("!")
        for sign, value in found
    )


def test_no_alert_record_or_panel_counts_a_unit_twice_that_another_process_scores() -> None:
    counts = [(*found, asked) for asked in _asked().splitlines() for found in COUNTED.findall(asked)]

    assert {instrument for instrument, _, _ in counts} == {"eligible", "evaluations"}
    assert [asked for instrument, matchers, asked in counts if not _is_once(instrument, matchers, asked)] == []


BESIDE = ("shadow", "feedback", "judge_check", "external")
"""Sources in which the same units, or none, are judged once more, or by others: in no number of the population's."""
OF_SCORES = r"\b(spanscore_(?:scored|weight|quality)\w*)(\{[^}]*\}|(?!\w))"
EXTERNAL = re.compile(
    r'\b(spanscore_(?:scored|weight)\w*)(\{job=~"\$service",spanscore_evaluation_source="external"\})'
)
"""The queries of the panels of external scores, and only those: with all matchers, so that no other query counts as one."""
MATCHER = re.compile(r'spanscore_evaluation_source(=~|!~|!=|=)"([^"]*)"')


def _selects(matchers: str, source: str) -> bool:
    """Whether a selector reads a source, as Prometheus does: every matcher matches the whole value."""
    found = {sign: re.fullmatch(value, source) is not None for sign, value in MATCHER.findall(matchers)}
    return all(fits == (not sign.startswith("!")) for sign, fits in found.items())


def test_no_alert_record_or_panel_reads_what_is_judged_beside_the_population() -> None:
    counted = r"\b(spanscore_(?:eligible|evaluations|excluded|scored|weight|quality)\w*)(\{[^}]*\}|(?!\w))"

    selectors = [one for one in re.findall(counted, _asked()) if EXTERNAL.fullmatch("".join(one)) is None]

    assert {name for name, _ in selectors} >= {"spanscore_eligible_total", "spanscore_weight_quality_total"}
    assert [(name, one) for name, one in selectors for source in BESIDE if _selects(one, source)] == []
    assert all(_selects(one, "") for _, one in selectors)


def test_no_alert_record_or_panel_reads_what_a_fallback_judged() -> None:
    asked = _asked()

    selectors = [one for one in re.findall(OF_SCORES, asked) if EXTERNAL.fullmatch("".join(one)) is None]

    rules = read_yaml((INTEGRATIONS / "prometheus" / "spanscore.rules.yml").read_text(encoding="utf-8"))["groups"]
    alerts_asked = "\n".join(rule["expr"] for group in rules for rule in group["rules"] if "alert" in rule)
    selectors += [
        one
        for one in re.findall(r"\b(spanscore_evaluations_total)(\{[^}]*\})", alerts_asked)
        if 'spanscore_evaluation_outcome="queue_full"' not in one[1]  # never judged
    ]

    assert len(selectors) > 100
    assert [name for name, matchers in selectors if 'spanscore_evaluation_source=""' not in matchers] == []


def test_scores_of_others_are_asked_for_by_their_own_panels_alone() -> None:
    asking = {
        panel["title"]
        for dashboard in dashboards().values()
        for panel in panels(dashboard)
        for target in panel["targets"]
        for _, matchers in re.findall(OF_SCORES, target.get("expr", ""))
        if _selects(matchers, "external")
    }

    assert asking == {"External scores", "Mean of external scores"}


def test_every_instrument_is_shown_by_a_panel_or_a_rule() -> None:
    asked = " ".join(_expressions())

    assert [name for name in INSTRUMENTS if not re.search(rf"\b{series(name)}(_bucket|_sum|_count)?\b", asked)] == []
