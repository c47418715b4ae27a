"""Mistakes in a configuration and their messages: the key, the fault, and the correct form.

A line here is the beginning of the message, because lists of allowed values grow; the file has no other message.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.test_reference import KEYS
from tests.live import a_trace

from spanscore import ConfigurationError, OnlineScorer
from spanscore.cli._config_report import config_report
from spanscore.config.messages import NEW_KEYS, NEW_OPTIONS, renamed_key, yaml_of
from spanscore.config.reading import read_settings
from spanscore.config.tree import Configuration

M = "metrics: [exact_match]\n"
TOP = "Allowed here: judge, sampling, capture, outputs, limits, units, ses"
A_LIST = (
    "write a list of names, each alone or with its parameters: [response_relevancy, {faithfulness: {pass_at: 0.7}}]"
)
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{one}'] * 9)}]\n" for one, name in zip("abcdefgh", "bcdefghi", strict=True)
)

NO_CONFIGURATION: dict[str, tuple[str | bytes, str]] = {
    "a list at the top": ("- exact_match", "FILE holds no settings; write keys with values, such as metrics: [faithfulness]"),
    "a word": ("faithfulness", "FILE holds no settings; write keys with values, such as metrics: [faithfulness]"),
    "a number as a key": ("1: 2", "FILE holds no settings; write keys with values, such as metrics: [faithfulness]"),
    "latin-1": (M.encode() + b"service_name: caf\xe9", "FILE, line 2 is not valid UTF-8; save the file as UTF-8"),
    "utf-16": (M.encode("utf-16"), "FILE, line 1 is not valid UTF-8; save the file as UTF-8"),
    "a tab": ("metrics:\n\t- exact_match", "FILE, line 2 is no YAML: the line is indented with a tab; indent with spaces"),
    "NUL": (f"{M}service_name: 'a\0b'", r"FILE, line 2: YAML does not allow the control character \x00"),
    "a list left open": ("metrics: [exact_match\njudge: {model: lexical}",
                         "FILE, line 1 is no YAML: a list that [ begins is not closed; write ]"),
    "a mapping left open": (f"{M}judge: {{model: lexical\n",
                            "FILE, line 2 is no YAML: a mapping that { begins is not closed; write }"),
    "a quote left open": (f"{M}service_name: 'bot\n", "FILE, line 2 is no YAML: a text that begins with a quote does not end"),
    "a colon in a value": (f"{M}service_name: a: b", "FILE, line 2 is no YAML: a ': ' too many in this line, or none in the"),
    "a colon forgotten": (f"metrics [x]\n{M}", "FILE, line 2 is no YAML: a ': ' too many in this line, or none in the one ab"),
    "bad indentation": ("metrics:\n  - exact_match\n - faithfulness",
                        "FILE, line 3 is no YAML: this line is not indented like the lines above; align the keys of"),
    "a template": (f"{M}service_name: {{{{ name }}}}",
                   "FILE, line 2 is no YAML: a value that begins with { or [ is read as a mapping or a list; put it in quotes"),
    "a value with @": (f"{M}service_name: @bot", "FILE, line 2 is no YAML: no value begins with @, ` or %; put it in quotes"),
    "a value with *": (f"{M}service_name: *bot", "FILE, line 2 is no YAML: a value that begins with * is read as an alias, an"),
    "a value with !": (f"{M}service_name: !bot x", "FILE, line 2 is no YAML: a value that begins with ! is read as a tag, an"),
    "a Python object": (f"{M}service_name: !!python/object/apply:os.system [ls]",
                        "FILE, line 2 is no YAML: a value that begins with ! is read as a tag, and none has this name"),
    "a tag of another kind": (f"{M}service_name: !!int bot", "FILE is no YAML: a tag (!!) is before a value of another kind"),
    "an anchor twice": ("metrics: &a [exact_match]\njudge: &a {model: lexical}",
                        "FILE, line 2 is no YAML: the anchor (&) exists already; give each anchor a name of its own"),
    "two documents": (f"{M}---\n{M}", "FILE, line 2 is no YAML: a second document begins (---); a configuration is one"),
    "an alias bomb": (BOMB + M, "FILE, line 1: this value has more than 100,000 values, by its aliases (*)"),
    "an alias in itself": (f"{M}outputs: {{sinks: &a [*a]}}", "FILE, line 2: values are nested deeper than 32 levels"),
    "deep nesting": (f"{M}service_name: {'[' * 100_000}", "FILE, line 2: values are nested deeper than 32 levels"),
    "5,000 digits": (f"{M}limits: {{workers: {'9' * 5_000}}}", "FILE, line 2: a number of 5,000 digits; no setting takes"),
    "a data set": (b"#" * 2_000_000, "FILE is larger than 1,000,000 bytes, which no configuration is"),
}  # fmt: skip

WRONG: dict[str, tuple[str, str]] = {
    # names
    "no metrics": ("judge: {model: lexical}", f"metrics: is required; {A_LIST}"),
    "an empty file": ("", f"metrics: is required; {A_LIST}"),
    "metrics without one": ("metrics:", f"metrics: is empty; {A_LIST}"),
    "a metric and no list": ("metrics: faithfulness", f"metrics: is no list (given: 'faithfulness'); {A_LIST}"),
    "metrics as keys": ("metrics: {faithfulness: {}}", f"metrics: is no list (given: {{'faithfulness': {{}}}}); {A_LIST}"),
    "an unknown metric": ("metrics: [faithfullness]", "metrics: unknown metric 'faithfullness': did you mean 'faithfulness'"),
    "a class's name": ("metrics: [Faithfulness]", "metrics: unknown metric 'Faithfulness': did you mean 'faithfulness'"),
    "a parameter not indented": (
        "metrics:\n  - faithfulness:\n    pass_at: 0.7",
        "metrics.0: pass_at is on the level of faithfulness; indent it further: faithfulness: {pass_at: …}",
    ),
    "a metric's value": (
        "metrics: [{faithfulness: 0.7}]",
        "metrics.0: names no metric (given: {'faithfulness': 0.7}); write a name, alone or with its parameters: faithfulness,",
    ),
    "an unknown parameter": (
        "metrics: [{faithfulness: {passat: 0.7}}]",
        "metrics: metric 'faithfulness' has no parameter 'passat': did you mean 'pass_at'?",
    ),
    "a pass mark in per cent": (
        "metrics: [{faithfulness: {pass_at: 70}}]",
        "metrics: faithfulness: pass_at is 70; it is on the quality scale, between 0 and 1",
    ),
    "a missing parameter": (
        "metrics: [simple_criteria_score]",
        "metrics: metric 'simple_criteria_score': missing a required argument: 'definition'",
    ),
    "a metric twice": (
        "metrics: [exact_match, exact_match]",
        "metrics: 2 are called 'exact_match'; give each but one a name of its own: {exact_match: {name: …}}",
    ),
    "a missing module": (
        "metrics: ['nonesuch_pkg:Metric']",
        "metrics: metric 'nonesuch_pkg:Metric': Python finds no module 'nonesuch_pkg'; install it, or name",
    ),
    # keys
    "a wrong key": (f"{M}sampel: {{rate: 1}}", f"sampel: no such setting; did you mean 'sampling'? {TOP}"),
    "a wrong inner key": (f"{M}sampling: {{rte: 1}}", "sampling.rte: no such setting; did you mean 'rate'? Allowed here: r"),
    "a key too far up": (f"{M}rate: 0.1", "rate: no such setting; did you mean 'sampling.rate' or 'sampling.feedback.rate'?"),
    "dimensions at the top": (
        f"{M}dimensions: {{a: [b]}}",
        "dimensions: no such setting; did you mean 'monitoring.dimensions'?",
    ),
    "a budget at the top": (f"{M}budget: [{{usd: 5, per: 1d}}]", "budget: no such setting; did you mean 'judge.budget'?"),
    "an anchor's own key": (f"{M}x-common: &a {{rate: 1}}\nsampling: *a", f"x-common: no such setting. {TOP}"),
    "a key twice": (f"{M}sampling: {{rate: 1}}\n{M}", "metrics: is given in lines 1 and 3; keep one of them"),
    "an inner key three times": (
        f"{M}sampling:\n  rate: 1\n  rate: 0.5\n  rate: 0.1",
        "sampling.rate: is given in lines 3, 4 and 5; keep one of them",
    ),
    "a key twice in a line": (
        f"{M}sampling: {{rate: 1, rate: 0}}",
        "sampling.rate: is given 2 times in line 2; keep one of them",
    ),
    "a section left empty": (
        f"{M}sampling:",
        "sampling: is empty (given: None); write keys with values, such as sampling: {rate: …}. Keys are rate, rates, rules",
    ),
    "a value for a section": (
        f"{M}serve: 4318",
        "serve: is a single value (given: 4318); write keys with values, such as serve: {",
    ),
    "temperature": (f"{M}judge: {{temperature: 0}}", "judge.temperature: no such setting; write model_kwargs: {temperature:"),
    "a control character in a key": (f'{M}"s\\x1b[2Jx": 1', f"s\\x1b[2Jx: no such setting. {TOP}"),
    # rates, rules
    "a rate above 1": (f"{M}sampling: {{rate: 5}}", "sampling.rate: must be 1 or less (given: 5); 5 per cent are 0.05, or 5%"),
    "more than all": (f"{M}sampling: {{rate: 200%}}", "sampling.rate: must be 1 or less (given: '200%'); 5 per cent are 0.05"),
    "a rate in words": (f"{M}sampling: {{rate: half}}", "sampling.rate: is no number (given: 'half')"),
    "true for a number": (f"{M}limits: {{workers: true}}", "limits.workers: is no number (given: True)"),
    "a price of all models": (
        f"{M}judge: {{prices: 5}}",
        "judge.prices: is no mapping (given: 5); write keys with values: prices: {key: value}",
    ),
    "a number for a list of budgets": (
        f"{M}judge: {{budget: 5}}",
        "judge.budget: is no list (given: 5); write budget: [{usd: 5, per: 1d}]",
    ),
    "a budget's window in a list": (
        f"{M}judge: {{budget: [{{calls: 1, per: [1]}}]}}",
        "judge.budget.0.per: [1]; allowed is 1m to 30d (given: [1])",
    ),
    "a rate of none": (
        f"{M}sampling: {{rates: {{exactmatch: 0.3}}}}",
        "sampling.rates.exactmatch: no metric has this name; did you mean 'exact_match'? There are exact_match",
    ),
    "control characters in a value": (
        f'{M}sampling: {{rate: "\\x1b]0;x\\a\\u202e"}}',
        r"sampling.rate: is no number (given: '\x1b]0;x\x07\u202e')",
    ),
    "metadata and equals": (
        f"{M}sampling: {{rules: [{{when: {{metadata: user_tier, equals: gold}}, rate: 1}}]}}",
        "sampling.rules.0.when.metadata: is no mapping (given: 'user_tier'); write keys with values: metadata: {key: value}\n"
        "sampling.rules.0.when.equals: no such setting; write metadata: {key: value}",
    ),
    "a misspelt condition": (
        f"{M}sampling: {{rules: [{{when: {{statsu: error}}, rate: 1}}]}}",
        "sampling.rules.0.when.statsu: no such setting; did you mean 'status'? Allowed here: status, workflow, slower_than",
    ),
    "an unknown status": (
        f"{M}sampling: {{rules: [{{when: {{status: failed}}, rate: 1}}]}}",
        "sampling.rules.0.when.status: is not one of 'error' or 'ok' (given: 'failed')",
    ),
    "a rule and no list": (
        f"{M}sampling: {{rules: {{rate: 1}}}}",
        "sampling.rules: is no list (given: {'rate': 1}); write rules: [{when: {status: error}, rate: 1}]",
    ),
    "a rule without a condition": (
        f"{M}sampling: {{rules: [{{rate: 1}}]}}",
        "sampling.rules.0.when: is required; write for example when: {status: error}",
    ),
    "a webhook without a condition": (
        f"{M}outputs: {{sinks: [{{webhook: {{url: 'http://127.0.0.1:1/'}}}}]}}",
        'outputs.sinks: webhook.when: is required; write for example when: ["faithfulness<0.5"]',
    ),
    "a rule without a rate": (
        f"{M}sampling: {{rules: [{{when: {{status: error}}}}]}}",
        "sampling.rules.0.rate: is required; write for example rate: 1",
    ),
    # times, sizes, counts
    "a time in words": (f"{M}limits: {{timeout: soon}}", "limits.timeout: 'soon' is no duration; write for example 30s, 500ms"),
    "two units": (f"{M}limits: {{timeout: 1h30m}}", "limits.timeout: '1h30m' is no duration; write for example 30s, 500ms, 5m"),
    "a time below 0": (f"{M}limits: {{timeout: -1}}", "limits.timeout: must be 0 or more (given: -1)"),
    "no end": (f"{M}limits: {{timeout: .inf}}", "limits.timeout: must be 3,153,600,000 or less (given: inf)"),
    "a size in words": (f"{M}limits: {{queue_bytes: big}}", "limits.queue_bytes: 'big' is no size; write for"),
    "a count in words": (f"{M}limits: {{workers: many}}", "limits.workers: is no whole number (given: 'many')"),
    "a billion workers": (f"{M}limits: {{workers: 1000000000}}", "limits.workers: must be 10,000 or less (given: 1000000000)"),
    "a number as a text of 5,000 digits": (f"{M}limits: {{workers: '{'9' * 5_000}'}}", "limits.workers: is too large (given:"),
    "a window of ages": (f"{M}monitoring: {{windows: [1.0e+300]}}", "monitoring.windows.0: must be 3,153,600,000 or less (giv"),
    "yes and no": (f"{M}capture: {{content: maybe}}", "capture.content: is neither true nor false (given: 'maybe'); write"),
    "a port as a text": (
        f"{M}serve_metrics: '9464'",
        "serve_metrics: is a single value (given: '9464'); write keys with values, such as serve_metrics: {port: …}.",
    ),
    "a port too high": (f"{M}serve_metrics: 99464", "serve_metrics.port: must be 65,535 or less (given: 99464)"),
    # judges
    "a model alone": (
        f"{M}judge: {{model: gpt-4o}}",
        "judge.model: 'gpt-4o' names no provider; write 'provider:model', such as 'openai:gpt-4o-mini'",
    ),
    "a misspelt provider": (
        f"{M}judge: {{model: 'opnai:gpt-4o'}}",
        "judge.model: 'opnai:gpt-4o' is of no known provider; did you mean 'openai:gpt-4o'? Write 'lexical' or 'provider:mo",
    ),
    "a provider alone": (f"{M}judge: {{model: 'openai:'}}", "judge.model: 'openai:' names no model; write openai:model"),
    "no key": (f"{M}judge: {{model: 'openai:m'}}", "OPENAI_API_KEY is not set; judge.model 'openai:m' needs it"),
    "no embeddings": (
        "metrics: [semantic_similarity]\njudge: {model: 'openai:m', base_url: 'http://h/v1'}",
        "embeddings: semantic_similarity needs embeddings: LangChain embeddings (OpenAIEmbeddings() …) or 'lexical'; set embed",
    ),
    "a budget without a time": (
        f"{M}judge: {{budget: [{{usd: 5}}]}}",
        "judge.budget.0.per: is required; write for example per: 1d",
    ),
    "a budget a day": (
        f"{M}judge: {{budget: [{{usd: 5, per: day}}]}}",
        "judge.budget.0.per: 'day'; allowed is 1m to 30d",
    ),
    "a budget in two units": (
        f"{M}judge: {{budget: [{{usd: 5, calls: 3, per: 1d}}]}}",
        "judge.budget.0: a budget has exactly one of usd, tokens, calls; this one has usd and calls",
    ),
    "a budget with a sign": (f"{M}judge: {{budget: [{{usd: $5, per: 1d}}]}}", "judge.budget.0.usd: is no number (given: '$5')"),
    "a budget and no list": (
        f"{M}judge: {{budget: {{usd: 5, per: 1d}}}}",
        "judge.budget: is no list (given: {'usd': 5, 'per': '1d'}); write budget: [{usd: 5, per: 1d}]",
    ),
    # alerts, segments
    "alerts for none": (f"{M}alerts: {{faithfulness: {{baseline: 0.8}}}}", "alerts.faithfulness: no metric has this name; Th"),
    "an alert as a number": (
        f"{M}alerts: {{exact_match: 0.8}}",
        "alerts.exact_match: is a single value (given: 0.8); write keys with values, such as exact_match: {baseline: …}. Keys",
    ),
    "a list of alerts": (
        f"{M}alerts: [exact_match]",
        "alerts: is no mapping (given: ['exact_match']); write keys with values: alerts: {faithfulness: {baseline: 0.9}}",
    ),
    "a baseline of 85": (
        f"{M}alerts: {{exact_match: {{baseline: 85}}}}",
        "alerts.exact_match.baseline: write a quality, [0, 1], {hour_of_week: FILE} of `spanscore baseline`, or {offset: 7d}",
    ),
    "a list of segments": (
        f"{M}monitoring: {{dimensions: [user_tier]}}",
        "monitoring.dimensions: is no mapping (given: ['user_tier']); write keys with values: dimensions: "
        "{user_tier: [gold, free]",
    ),
    "a segment of one value": (
        f"{M}monitoring: {{dimensions: {{user_tier: gold}}}}",
        "monitoring.dimensions.user_tier: is no list (given: 'gold'); write user_tier: […, …]",
    ),
    "a segment without values": (
        f"{M}monitoring: {{dimensions: {{user_tier: []}}}}",
        "monitoring.dimensions: user_tier lists no values; write for example {user_tier: [gold, free]}",
    ),
    "a segment of yes": (
        f"{M}monitoring: {{dimensions: {{paying: [yes]}}}}",
        "monitoring.dimensions.paying.0: is no text (given: True); write it in quotes",
    ),
    "a variable that is not set": (
        f"{M}service_name: ${{NOWHERE}}",
        "service_name: NOWHERE is not set in the environment (given: '${NOWHERE}'); set it, or write $${ for ${ itself",
    ),
}  # fmt: skip


def said(folder: Path, text: str | bytes) -> list[str]:
    """Return the messages about a file."""
    file = folder / "spanscore.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        report = config_report(file)
    except ConfigurationError as error:
        return str(error).replace(str(file), "FILE").splitlines()
    return [*report.errors, *report.missing]


@pytest.mark.parametrize("mistake", NO_CONFIGURATION)
def test_a_file_that_is_no_configuration_is_reported_in_one_line_with_its_place(tmp_path: Path, mistake: str) -> None:
    text, line = NO_CONFIGURATION[mistake]

    [message] = said(tmp_path, text)

    assert message.startswith(line), message


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_reported_with_its_key_what_is_wrong_and_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text, lines = WRONG[mistake]

    message = said(tmp_path, text)

    expected = lines.splitlines()
    assert [line[: len(beginning)] for line, beginning in zip(message, expected, strict=True)] == expected, message


@pytest.mark.parametrize("text", ["0xF", "0xfF", "1e5", "5m", "5%", "yes", "gpt-4o", "a b"])
def test_a_text_in_a_suggested_form_is_read_again_as_the_same_text(text: str) -> None:
    assert yaml.safe_load(yaml_of({"key": text})) == {"key": text}


RIGHT = {
    "a mark in front": f"\ufeff{M}",
    "Windows' line ends": M.replace("\n", "\r\n"),
    "a rate in per cent": f"{M}sampling: {{rate: 5%, rates: {{exact_match: 2.5 %}}}}\nmonitoring: {{max_failed: 5%}}",
    "a baseline in per cent": f"{M}alerts: {{exact_match: {{baseline: 85%, min_drop: 10%, threshold: 50%}}}}",
    "a space before the unit": f"{M}limits: {{timeout: 30 s}}",
    "a date as a text": f"{M}service_name: 2026-13-45",
    "an anchor and a merge": f"{M}monitoring: {{dimensions: &s {{tier: [a]}}}}\nsampling: "
    f"{{rates: {{<<: {{exact_match: 1}}}}}}",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=[*RIGHT])
def test_what_can_only_be_meant_in_one_way_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, text) == []


KEY = "sk-Judge0123456789"
SECRETS = [
    f"{M}api_key: {KEY}",
    f"{M}openai: {KEY}",
    f"{M}jugde: {{model: 'openai:m', api_key: {KEY}}}",
    f"{M}judge: {{model: lexical, apikey: {KEY}}}",
    f"{M}judge: {{api_key_env: ['{KEY}']}}",
    f"{M}judge: {{model_kwargs: {{Authorization: {KEY}}}, max_concurrency: {{x-auth: {KEY}}}}}",
    f"{M}sampling: {{key: [{KEY}]}}",
    f"{M}sampling: {{rules: [{{when: {{metadata: {{a: b}}, sesion_token: {KEY}}}, rate: 1}}]}}",
    f"{M}alerts: {{exact_match: {{slack_webhook: 'https://hooks.example/{KEY}'}}}}",
    f"{M}judge: {{api_key: '{KEY}-${{NOWHERE}}'}}",
    f"metrics: [{{faithfulness: {{}}, client_secret: {KEY}}}]",
    f"{M}judge: {{model: lexical, api_key: {KEY}",
    f"{M}outputs: {{sinks: [{{'nonesuch:Sink': {{password: {KEY}}}, x: 1}}]}}",
]


@pytest.mark.parametrize("text", SECRETS)
def test_what_stands_under_an_unknown_key_or_one_of_a_secret_is_never_shown(tmp_path: Path, text: str) -> None:
    message = said(tmp_path, text)

    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer.from_config(tmp_path / "spanscore.yaml", tracer_provider=a_trace().provider)

    assert message
    assert "Judge0123" not in "\n".join([*message, *traceback.format_exception(raised.value)])


@pytest.mark.parametrize("name", ["SAMPLING__API_KEY", "JUDGE__OPENAI_TOKEN", "SAMPLING"])
def test_nor_is_what_the_environment_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"SPANSCORE_{name}", KEY)

    message = said(tmp_path, M)

    assert message
    assert "Judge0123" not in "\n".join(message)


def test_a_folder_is_reported_as_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder; give the YAML file in it"):
        config_report(tmp_path)


# --- settings of the rules ---------------------------------------------------------------------------------------------


def interval_of(folder: Path, text: str) -> float:
    file = folder / "spanscore.yaml"
    file.write_text(f"metrics: [exact_match]\nmonitoring: {{interval: {text}, windows: [1h]}}", encoding="utf-8")
    return read_settings(file).settings.monitoring.interval


def test_an_interval_is_no_longer_than_prometheus_looks_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"monitoring.interval.*600 s.*looks back 300 s"):
        interval_of(tmp_path, "10m")

    assert interval_of(tmp_path, "5m") == 300


# --- keys of 0.2, in a file and in Python ------------------------------------------------------------------------------


def _as_argument(key: str) -> str:
    section, _, field = key.partition(".")
    return f"{section}={Configuration.model_fields[section].annotation.__name__}({field}=" if field else key  # type: ignore[union-attr]


def nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def test_each_present_name_is_a_key() -> None:
    known = {key.path.replace("<metric>", "*") for key in KEYS} | {key.section for key in KEYS}

    assert [new for new in NEW_KEYS.values() if new not in known] == []
    assert NEW_KEYS.keys() & known == set()


@pytest.mark.parametrize("old", NEW_KEYS)
def test_an_old_key_is_answered_with_the_new_one(old: str, tmp_path: Path) -> None:
    written = old.replace("*", "exact_match")
    settings = {"metrics": ["exact_match"], **nested(written, 1)}
    (file := tmp_path / "spanscore.yaml").write_text(yaml.safe_dump(settings))
    section = old.partition(".")[0]  # an old section is named before its keys
    result, new = (section, NEW_KEYS[section]) if section in NEW_KEYS else (written, NEW_KEYS[old])

    with pytest.raises(ConfigurationError, match=re.escape(f"{result}: is now {new.replace('*', 'exact_match')}")):
        OnlineScorer.from_config(file)


@pytest.mark.parametrize("old", NEW_OPTIONS)
def test_an_old_option_beside_a_file_is_answered_with_the_new_one(old: str, tmp_path: Path) -> None:
    (file := tmp_path / "spanscore.yaml").write_text("metrics: [exact_match]\n")

    with pytest.raises(ConfigurationError, match=re.escape(f"{old} is now {_as_argument(NEW_OPTIONS[old])}")):
        OnlineScorer.from_config(file, **{old: 1})


def test_what_was_never_a_key_has_no_new_name() -> None:
    assert renamed_key(("limits", "spam")) is None
