"""The rules that a question needs: promtool evaluates every rule at every step, and most questions are of one alert."""

from __future__ import annotations

from typing import Any

import yaml
from tests.yaml_files import read_yaml

__all__ = ["needed_for"]


def needed_for(alerts: set[str], rules: str) -> str:
    """Return a rules file with these alerts only, and with all that is recorded for them."""
    groups = read_yaml(rules)["groups"]
    every = [rule for group in groups for rule in group["rules"]]
    needed = [rule for rule in every if rule.get("alert") in alerts]
    while more := [rule for rule in every if rule not in needed and _is_read(rule, needed)]:
        needed += more
    kept = [{**group, "rules": [rule for rule in group["rules"] if rule in needed]} for group in groups]
    return yaml.safe_dump({"groups": kept}, sort_keys=False)


def _is_read(rule: dict[str, Any], by: list[dict[str, Any]]) -> bool:
    return "record" in rule and any(rule["record"] in str(other) for other in by)
