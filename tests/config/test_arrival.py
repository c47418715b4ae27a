"""Every key of a configuration file arrives: in a part of the scorer, or in the files that watch its scores.

Each key is set by itself to a unique value, and the parts made from the file must differ. The stored options do not count: a
key that is accepted but read by no part fails here.
"""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType, MethodType
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from tests.live import a_trace
from tests.servers.server import free_port

from spanscore import OnlineScorer
from spanscore.config.messages import file_fields
from spanscore.config.outputs import SINK_SETTINGS
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.config.units import Units
from spanscore.core.files import check_disk
from spanscore.durable import spool
from spanscore.errors import ConfigurationError
from spanscore.metrics import Faithfulness
from spanscore.monitoring.rules import rule_files
from spanscore.outputs.instruments import MeterInstruments
from spanscore.scorer import pipeline_of, receivers_of
from spanscore.wiring.from_config import ConfigFile

CHEAP = ["exact_match", "string_presence"]
"""They ask no judge, so that a rule may look at their scores; of every unit."""
SPOOLS = TemporaryDirectory()
"""Until the tests end."""
INTENT = {"category": {"name": "intent", "categories": {"refund": "Wants money back.", "order": "Wants to buy."}}}
ALERTS = {"faithfulness": {"baseline": 0.85}, "intent": {"share_of": "refund", "max": 0.5, "baseline": 0.25}}
BASE: dict[str, Any] = {
    "metrics": ["faithfulness", "response_relevancy", *CHEAP, INTENT],
    "judge": {
        "model": "openai:usual",
        "fallback": [{"model": "openai:as-usual"}],
        "prices": {"*usual": {"input": 50.0, "output": 2.0}},
        "budget": [{"calls": 1_000, "per": "1h"}],
    },
    "embeddings": "openai:usual",
    "units": {"also": [{"kind": "retriever", "metrics": ["faithfulness", "intent"], "alerts": deepcopy(ALERTS)}]},
    "sampling": {
        "rates": dict.fromkeys(CHEAP, 1.0),
        "rules": [{"when": {"score": {"metric": "exact_match", "below": 0.5}}, "rate": 0.9}],
        "feedback": {"rate": 0.5},
    },
    "alerts": ALERTS,
    "judge_check": {"golden_set": str(Path(__file__).parents[1] / "data" / "labelled.jsonl"), "name": "user_feedback"},
    "compare": {"by": "service.version"},
    "spool": {"path": f"{SPOOLS.name}/spool.db"},
    "collect": {"when": ["faithfulness<0.5"], "out": f"{SPOOLS.name}/cases.jsonl"},
}
"""An element in each list and dict that holds keys; and a model, as the offline judge has no limits."""
UNUSUAL: dict[str, Any] = {
    "metrics": [{"faithfulness": {"pass_at": 0.4321}}, "response_relevancy", *CHEAP, INTENT],
    "capture.metadata": ["unusual"],
    "capture.images": "drop",
    "judge.model": "openai:unusual",
    "judge.base_url": "http://127.0.0.1:9/unusual",
    "judge.api_key_env": "UNUSUAL_KEY",
    "judge.api_key_file": str(Path(__file__).parents[1] / "data" / "judge_key.txt"),
    "judge.fallback.*.model": "openai:unusual",
    "judge.fallback.*.base_url": "http://127.0.0.1:9/unusual",
    "judge.fallback.*.api_key_env": "UNUSUAL_KEY",
    "judge.fallback.*.api_key_file": str(Path(__file__).parents[1] / "data" / "judge_key.txt"),
    "judge.fallback.*.model_kwargs": {"temperature": 0.4321},
    "judge.fallback.*.structured": "text",
    "judge.cache": "memory",
    "sessions.replicas": "sticky",
    "redactor": {"tests.config.test_arrival:Unusual": {"instead": "unusual"}},
    "collect.when": ["faithfulness<0.4321"],
    "collect.out": f"{SPOOLS.name}/unusual.jsonl",
    "collect.max_bytes": 43_210,
    "spool.path": f"{SPOOLS.name}/unusual.db",
    "spool.sync": "normal",
    "judge.structured": "text",
    "judge.prompt_order": "instruction_first",
    "judge.fallback.*.prompt_order": "instruction_first",
    "judge.model_kwargs": {"temperature": 0.4321},
    "judge.prices.*.cached_input": 0.4321,
    "judge.prices.*.cache_write": 0.4321,
    "judge.budget.*.metric": "faithfulness",
    "embeddings": "openai:unusual",
    "units.also.*.kind": "tool",
    "units.also.*.metrics": ["faithfulness", "intent", "response_relevancy"],
    "sampling.rates": {"faithfulness": 0.4321, **dict.fromkeys(CHEAP, 1.0)},
    "sampling.head_sampling_rate.by_service": {"unusual": 0.4321},
    "sampling.rules.*.when.score.metric": "string_presence",
    "sampling.rules.*.when.status": "error",
    "sampling.rules.*.when.metadata": {"tier": "unusual", "region": "eu"},
    "capture.extract.user_input": "input.unusual",
    "capture.extract.response": "output.unusual",
    "capture.extract.retrieved_contexts": "output.unusual",
    "capture.extract.retrieval_tools": ["unusual"],
    "judge_check.golden_set": str(Path(__file__).parents[1] / "data" / "labelled_other.jsonl"),
    "judge_check.metrics": ["faithfulness"],
    "judge_check.name": "unusual",
    "monitoring.dashboard_url": "https://unusual/",
    "monitoring.trace_url": "https://unusual/traces",
    "alerts.*.share_of": "order",
    "alerts.*.labels": {"team": "unusual"},
    "alerts.*.evaluator_version": f"{Faithfulness('lexical').version}/usual/1",  # the one that it has; the default is any
    "alerts.*.runbook": "https://unusual/runbook",
    "alerts.*.baseline.hour_of_week": str(Path(__file__).parents[1] / "data" / "baseline.yaml"),
    "alerts.*.baseline.offset": 172_800.0,
    "feedback_scales": {"mood": ["bad", "unusual"]},
    "monitoring.dimensions": {"tier": ["unusual"]},
    "monitoring.services": ["unusual"],
    "monitoring.calibrations": [str(Path(__file__).parents[1] / "data" / "calibration.json")],
    "monitoring.windows": [4321.0],
    "monitoring.interval": 45.0,
    "units.scopes": ["unusual"],
    "units.ignore_scopes": ["unusual"],
    "units.kinds": ["agent"],
    "outputs.sinks": ["spanscore.testing:MemorySink"],
    "units.dialects": ["genai"],
    "units.translations": ["openinference"],
    "limits.job_queue": {"memory": {"capacity": 4_321}},
}
"""Values for keys that accept only certain numbers or texts."""


class Unusual:
    """A redactor with a parameter."""

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __call__(self, text: str) -> str:
        return text.replace("usual", self.instead)


def leaves(tree: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield each key with its field; ``*`` for an element of a list, or a key of the user's own."""
    for name in file_fields(tree):
        field = tree.model_fields[name]
        inner = next(
            (one for one in arguments(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)), None
        )
        many = any(get_origin(one) in (Sequence, Mapping) for one in arguments(field.annotation))
        if inner is None or float in arguments(field.annotation):
            yield f"{above}{name}", field
        if inner is not None:
            yield from leaves(inner, f"{above}{name}.{'*.' if many else ''}")


def arguments(annotation: Any) -> list[Any]:
    return [annotation, *(inner for one in get_args(annotation) for inner in arguments(one))]


IN_PLACE_OF = {"judge.budget.*.usd": "calls", "judge.budget.*.tokens": "calls", "limits.job_queue": "spool"}
"""Keys that exclude another key."""
OF_SHARES = {"alerts.*.share_of", "alerts.*.max", "alerts.*.min_rise"}
INNER = "units.also.*."
"""Prefix of the alerts on inner units, whose keys are those of ``alerts``."""
VARIES = object()
LEAVES = dict(leaves(Configuration))
SERVED = {path for path in LEAVES if path.startswith(("serve_metrics.", "serve.", "kafka.", "worker."))}
AWAY = {path for path in LEAVES if path.startswith("remote_scoring.")}
"""They take the place of the parts that score; their tests are in tests/durable."""
REFUSED = {"units.also.*.alerts.*.baseline.hour_of_week"}
"""Keys of ``alerts`` that inner units cannot have; tests/monitoring/test_watched_means.py has their error."""
AT_OPENING = {"spool.allow_network_disk"}
"""Keys that are read when a file is opened, and kept by no part; each has a test of its own below."""
IN_PROCESS = {"scopes", "ignore_scopes", "kinds", "dialects", "translations"}
WIRE = {f"units.{name}" for name in Units.model_fields if name not in IN_PROCESS}
"""They take a server, and so tests of their own; all but those of the page in tests/service."""


def unusual(path: str) -> Any:
    """Return a value that is no default, and that nothing else has."""
    field, nth = LEAVES[path], [*LEAVES].index(path)
    default = [field.default is not True] if bool in arguments(field.annotation) else []
    own = UNUSUAL.get(path, UNUSUAL.get(path.removeprefix(INNER)))
    for value in (own, *default, 4_000 + nth, 40.5 + nth, 0.4 + nth / 1_000, f"unusual {nth}"):
        if value is not None and allowed(value, field):
            return value
    raise AssertionError(f"say in UNUSUAL what {path} can be")


def allowed(value: Any, field: FieldInfo) -> bool:
    try:
        TypeAdapter(Annotated[field.annotation, field]).validate_python(value, strict=not isinstance(value, str))
    except ValidationError:
        return False
    return True


def configured(path: str | None) -> dict[str, Any]:
    """Return a configuration in which one key has an unusual value; None = none has."""
    whole = deepcopy(BASE)
    if path is not None:
        *above, leaf = path.split(".")
        section: Any = whole
        for part in above:
            is_share = isinstance(section, dict) and part == "*" and path.removeprefix(INNER) in OF_SHARES
            section = section["intent"] if is_share else _inside(section, part)
        section[leaf] = unusual(path)
        section.pop(IN_PLACE_OF.get(path), None)
        whole.pop(IN_PLACE_OF.get(path), None)
    if path == "spool.score_here":
        del whole["sampling"]["feedback"]
    return whole


def _inside(section: Any, part: str) -> Any:
    if part != "*":
        if not isinstance(section.get(part, {}), dict | list):
            section[part] = {}  # a plain value may stand in for a section
        return section.setdefault(part, {})
    return section[0] if isinstance(section, list) else next(iter(section.values()))


def made_of(file: Path, path: str | None) -> dict[str, Any]:
    """Return place → value of all that a configuration with one unusual value makes; None = with none."""
    return made_from(file, configured(path))


def made_from(file: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return place → value of all that a configuration makes: the parts of a scorer, and the files that watch it."""
    file.write_text(yaml.safe_dump(document))
    gc.collect()  # limiters of earlier scorers are shared until they are collected
    settings = read_settings(file).settings
    with OnlineScorer.from_config(file, tracer_provider=a_trace().provider) as scorer:
        pipeline_of(scorer).span_thread.ensure()
        receivers_of(scorer).callback(), receivers_of(scorer).spans()
        assert scorer.flush(10)
        metrics = [*pipeline_of(scorer).metrics.values()]
        rules = rule_files(settings.alerts, metrics, settings.monitoring, also=settings.units.also)
        return dict(values(scorer, "scorer", {})) | rules


OF_NO_KEY = (ScorerSettings, ConfigFile, MeterInstruments, type)
"""Stored options, the file that a reload reads, and the instruments of the process, which keep earlier scorers' counts."""


_ID = re.compile(r"object \d+")
"""Key of an account without credentials. It has the id of the model, which may be used again: then it seems not to vary."""


def values(thing: Any, at: str, known: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield place → value for all attributes of an object, except those of ``OF_NO_KEY``."""
    if isinstance(thing, str):
        yield at, _ID.sub("object", thing)
    elif thing is None or isinstance(thing, bool | int | float | bytes):
        yield at, thing
    elif id(thing) not in known and not isinstance(thing, OF_NO_KEY):
        known[id(thing)] = thing  # kept alive, so that no other object gets its id
        for name, part in _parts(thing):
            yield from values(part, f"{at}.{name}", known)


def _parts(thing: Any) -> Collection[tuple[Any, Any]]:
    """Return the attributes of an object by name; () for objects of other libraries."""
    for kind, parts in PARTS.items():
        if isinstance(thing, kind):
            return parts(thing)
    if type(thing).__module__.split(".")[0] not in ("spanscore", "langchain_openai"):
        return ()
    # Not __weakref__, which CPython 3.11.2 has of the class that a dataclass with slots was made of (gh-102069).
    slots = [
        name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if not name.startswith("__")
    ]
    own = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
    return {**own, **getattr(thing, "__dict__", {})}.items()


def _closed_over(function: FunctionType) -> Collection[tuple[str, Any]]:
    return [
        *zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True)
    ]


PARTS: dict[Any, Callable[[Any], Collection[tuple[Any, Any]]]] = {
    Mapping: lambda mapping: mapping.items(),
    (list, tuple, set, frozenset): lambda many: [*enumerate(many)],
    MethodType: lambda method: [("self", method.__self__)],
    functools.partial: lambda call: [("args", call.args), ("keywords", call.keywords)],
    FunctionType: _closed_over,
    Path: lambda path: [("path", str(path))],
    SecretStr: lambda secret: [("secret", secret.get_secret_value())],
    type(blake2b()): lambda digest: [("digest", digest.hexdigest())],
}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("UNUSUAL_KEY", "unusual")
    monkeypatch.setenv("UNUSUAL_SECRET", f"whsec_{'dW51c3VhbHVu' * 4}")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The parts of a file with usual values only; ``VARIES`` for values that differ from run to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "none")
        return equal_places(*(made_of(tmp_path_factory.mktemp("usual") / "spanscore.yaml", None) for _ in range(2)))


def equal_places(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {place: one.get(place) if one.get(place) == other.get(place) else VARIES for place in {**one, **other}}


@pytest.mark.parametrize("path", sorted(LEAVES.keys() - SERVED - WIRE - AWAY - REFUSED - AT_OPENING))
def test_a_key_arrives_in_a_part_or_in_a_file(path: str, tmp_path: Path, usual: dict[str, Any]) -> None:
    assert changed_places(made_of(tmp_path / "spanscore.yaml", path), usual), f"no part reads {path}"


def test_a_file_without_an_unusual_value_changes_no_part(tmp_path: Path, usual: dict[str, Any]) -> None:
    """Any difference here would hide a key that no part reads."""
    assert changed_places(made_of(tmp_path / "spanscore.yaml", None), usual) == []


def changed_places(made: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    stable = {place for place in made | usual if usual.get(place) is not VARIES}
    return [place for place in stable if made.get(place, "none") != usual.get(place, "none")]


SINKS: dict[str, dict[str, Any]] = {
    "webhook": {"url": "http://127.0.0.1:9/usual", "when": ["faithfulness<0.5"]},
    "phoenix": {"url": "http://127.0.0.1:9/usual"},
    "langfuse": {"url": "http://127.0.0.1:9/usual", "public_key": "usual", "secret_key": "${OPENAI_API_KEY}"},
}
UNUSUAL_IN_SINKS: dict[str, Any] = {
    "url": "http://127.0.0.1:9/unusual",
    "when": ["faithfulness<0.4321"],
    "per_hour": 4_321,
    "format": "slack",
    "secret": "${UNUSUAL_SECRET}",
    "url_template": "https://unusual/{trace_id}",
    "content": True,
    **dict.fromkeys(("api_key", "public_key", "secret_key"), "${UNUSUAL_KEY}"),
}


@pytest.mark.parametrize(
    ("sink", "key"), [(name, key) for name, settings in SINK_SETTINGS.items() for key in settings.model_fields]
)
def test_a_key_of_a_sink_arrives_in_the_sink_or_its_outbox(sink: str, key: str, tmp_path: Path) -> None:
    one, same, other = (
        made_from(tmp_path / "spanscore.yaml", {"metrics": ["faithfulness"], "outputs": {"sinks": [{sink: written}]}})
        for written in (SINKS[sink], SINKS[sink], {**SINKS[sink], key: UNUSUAL_IN_SINKS[key]})
    )

    assert changed_places(other, equal_places(one, same)), f"no part reads {key} of {sink}"


@pytest.mark.parametrize("allowed", [False, True])
def test_a_spool_on_a_network_disk_is_opened_only_if_the_file_allows_it(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "check_disk", lambda path: check_disk(path, "22 27 0:21 / / rw - nfs4 server:/ rw"))
    spooled = {"metrics": CHEAP, "spool": {"path": str(tmp_path / "spool.db"), "allow_network_disk": allowed}}
    (tmp_path / "spanscore.yaml").write_text(yaml.safe_dump(spooled))

    with nullcontext() if allowed else pytest.raises(ConfigurationError, match="network disk"):
        OnlineScorer.from_config(tmp_path / "spanscore.yaml", tracer_provider=a_trace().provider).shutdown()


def test_the_metrics_are_served_where_the_file_says(tmp_path: Path) -> None:
    where = {"host": "127.0.0.2", "port": free_port()}
    (tmp_path / "spanscore.yaml").write_text(yaml.safe_dump({"metrics": ["exact_match"], "serve_metrics": where}))

    with OnlineScorer.from_config(tmp_path / "spanscore.yaml", tracer_provider=a_trace().provider) as scorer:
        made = dict(values(scorer, "scorer", {}))

    assert {f"serve_metrics.{name}" for name in where} == {path for path in SERVED if path.startswith("serve_metrics.")}
    assert f"http://127.0.0.2:{where['port']}/metrics" in made.values()
