"""The keys and the variables → the made parts of configuration.md and environment.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from docs.reference.pages import table

from spanscore.cli._schema import Key, Schema, keys_in
from spanscore.config.judging import OF_SCORER, JurySettings
from spanscore.config.tree import SHORT_FORMS, ScorerSettings
from spanscore.judges.langchain.models import KEYS
from spanscore.metrics.catalog.configured import SHADOW

__all__ = ["configuration", "environment"]

_HEADERS = ("key", "allowed values", "default", "meaning", "in Python")
_PYTHON: Final = {
    "metrics": "OnlineScorer(metrics=…)",
    f"metrics[].<metric>.{SHADOW}": "JudgeSettings(shadows=…)",
    **{f"metrics[].<metric>.{key}": f"Jury({key}=…)" for key in JurySettings.model_fields},
    f"metrics[].<metric>.{SHADOW}.budget": "JudgeSettings(shadow_budget=…)",
    "embeddings": "embedder(…)",
    "judge": "judge({}=…)",
    "judge.fallback[]": "judge({}=…)",
    **{f"judge.{field}": f"JudgeSettings({field}=…)" for field in OF_SCORER},
    "judge.budget[]": "Budget({}=…)",
    f"metrics[].<metric>.{SHADOW}.budget[]": "Budget({}=…)",
    "judge.prices.<model>": "judge(prices=…)",
    "sampling.rules[]": "Rule({}=…)",
    "sampling.rules[].when": "RuleCondition({}=…)",
    "sampling.rules[].when.score": "ScoreBelow({}=…)",
    "sampling.feedback": "FeedbackSampling({}=…)",
    "sampling.head_sampling_rate": "HeadSampling({}=…)",
    "capture.extract": "Extract({}=…)",
    "serve_metrics": "scorer.serve_metrics(…)",
}
"""Key or section → its name in Python; other keys are arguments of ``OnlineScorer``."""

_ALTERNATIVES: Final = {
    "alerts.<metric>.baseline.hour_of_week": "offset",
    "alerts.<metric>.baseline.offset": "hour_of_week",
}
"""Key that must be given, unless another key of its section is given → that key."""


def configuration(schema: Schema) -> str:
    """Return every key, section by section."""
    keys = keys_in(schema)
    judge = {key.path.removeprefix("judge."): key for key in keys if key.section == "judge"}
    rows = [key for key in keys if not _is_as_of_the_judge(key, judge)]
    names = dict.fromkeys(key.section for key in rows)
    many = [name for name in names if any(key.section == name != key.path for key in rows)]
    top = ["## Top-level keys", _rows([key for key in rows if key.section not in many])]
    return "\n\n".join([*top, *(_section(name, [key for key in rows if key.section == name], schema) for name in many)])


def _is_as_of_the_judge(key: Key, judge: dict[str, Key]) -> bool:
    section, _, name = key.path.rpartition(".")
    return section.endswith((".shadow", ".fallback[]")) and name in judge and name not in ("model", "budget")


def _section(name: str, keys: Sequence[Key], schema: Schema) -> str:
    rows = schema["properties"][name]["description"] if not any(key.path == name for key in keys) else ""
    return "\n\n".join(filter(None, [f"## {name}", rows.replace("``", "`"), _rows(keys)]))


def _rows(keys: Sequence[Key]) -> str:
    rows = [
        [
            f"`{key.path}`",
            _may_stand(key),
            _default(key),
            key.meaning,
            f"`{python}`" if (python := _python(key.path)) else "–",
        ]
        for key in keys
    ]
    return table(_HEADERS, rows)


def _may_stand(key: Key) -> str:
    return f"{key.type}: {key.allowed}" if key.type == "word" else ", ".join(filter(None, [key.type, key.allowed]))


def _default(key: Key) -> str:
    if key.default is not None:
        return f"`{key.default}`"
    other = _ALTERNATIVES.get(key.path.removeprefix("units.also[]."))
    return f"this or `{other}` must be given" if other else "must be given"


def _python(path: str) -> str:
    """Return the name of a key or its section in Python; empty if only a file has the key."""
    section, _, name = path.rpartition(".")
    if short := next((argument for argument, key in SHORT_FORMS.items() if key == path), None):
        return f"OnlineScorer({short}=…)"
    own = _PYTHON.get(path, "{}")
    if written := own if "{}" not in own else _PYTHON.get(section):  # with braces it is the form of the section's keys
        return written.format(name)
    top = section or name
    if top not in ScorerSettings.model_fields:
        return ""
    if not section:
        return f"OnlineScorer({name}=…)"
    annotation = ScorerSettings.model_fields[top].annotation
    kinds = (kind.__name__ for kind in (annotation, *get_args(annotation)) if hasattr(kind, "model_fields"))
    return f"OnlineScorer({section}={next(kinds, '')}({name}=…))"


# --- the environment ----------------------------------------------------------------------------------------------


def environment() -> str:
    """Return the names of the variables that hold the keys of judges."""
    rows = [[f"`{provider}:…`", ", ".join(f"`{name}`" for name in names)] for provider, names in KEYS.items()]
    return table(["judge", "its key, any one of them"], rows)
