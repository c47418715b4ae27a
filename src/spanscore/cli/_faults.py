"""A configuration file → its settings, its metrics, and all that is wrong with it at once. Nobody is asked for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from spanscore.dialects.extract import Extract
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges import embedder
from spanscore.judges.keys import missing_key
from spanscore.line.build import rules_of
from spanscore.metrics.catalog.configured import entries, judge_of
from spanscore.metrics.catalog.registry import create
from spanscore.model.score import refuse_taken_name
from spanscore.otel.instruments import checked_segments
from spanscore.protocols import Metric
from spanscore.sampling.rates import RateSampler
from spanscore.settings import Settings, examine_settings, wrong_settings

__all__ = ["Examined", "examined", "named_problems", "sound"]

_PROVIDERS = re.compile(r"supported providers[^:\n]*:|set provider from:", re.IGNORECASE)
"""In LangChain's words on a provider it does not know; behind it stand those it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A configuration file that was looked at.

    Attributes:
        settings: with the defaults where something is wrong.
        metrics: those that can be made, judged by nobody: good for their names, scales and fields.
        faults: what is wrong in the file, a line each.
        gaps: what this environment lacks of it, a line each.
    """

    settings: Settings
    metrics: Sequence[Metric]
    faults: tuple[str, ...]
    gaps: tuple[str, ...]


def sound(config: Path, *, judge: bool = True, embeddings: bool = True) -> Examined:
    """Return a configuration that has no fault; it may have gaps.

    Args:
        config: its file.
        judge: whether its judge is looked at; not where another one is asked.
        embeddings: whether its embeddings are.

    Raises:
        ConfigurationError: it has faults; the message tells them all.
    """
    found = examined(config, judge=judge, embeddings=embeddings)
    if found.faults:
        raise wrong_settings(config, found.faults)
    return found


def examined(config: Path, *, judge: bool = True, embeddings: bool = True) -> Examined:
    """Return a configuration with all that is wrong with it. Makes the judge's client and the metrics; contacts nobody.

    Raises:
        ConfigurationError: the file is not there, or is no mapping in YAML.
    """
    reading = examine_settings(config)
    settings, problems = reading.settings, list[ConfigurationError]()
    if judge:
        problems += named_problems("judge.model", settings.judge.model, lambda: judge_of(settings))
    if embeddings:
        problems += _embeddings_problems(settings)
    made, unmade = _metrics(settings, problems)
    if reading.all_metrics:
        problems += map(ConfigurationError, _name_faults(settings, made, unmade))
    problems += _part_problems(settings)
    return Examined(
        settings=settings,
        metrics=made,
        faults=(*reading.faults, *(str(one) for one in problems if not isinstance(one, NotReadyError))),
        gaps=tuple(dict.fromkeys(str(one) for one in problems if isinstance(one, NotReadyError))),
    )


def _metrics(settings: Settings, problems: list[ConfigurationError]) -> tuple[list[Metric], list[str]]:
    """Return the metrics, and the names that those would have which cannot be made; why is added to the problems."""
    made, unmade = list[Metric](), list[str]()
    for name, parameters in entries(settings):
        try:
            metric = create(name, judge="lexical", embeddings="lexical", **parameters)
            refuse_taken_name(metric.name)
            made.append(metric)
        except ConfigurationError as error:
            unmade.append(str(parameters.get("name", name)))
            problems.append(_problem(error, _of_metric(name, error)))
    return made, unmade


def _problem(error: ConfigurationError, fault: str) -> ConfigurationError:
    """Return a fault told with its place; a gap as it is: two places may lack the same library, and it is told once."""
    return error if isinstance(error, NotReadyError) else ConfigurationError(fault)


def _of_metric(name: str, error: ConfigurationError) -> str:
    return f"metrics: {error}" if name in str(error) else f"metrics: {name}: {error}"


# --- names ------------------------------------------------------------------------------------------------------


def _name_faults(settings: Settings, made: Sequence[Metric], unmade: Sequence[str]) -> Iterator[str]:
    names = Counter(metric.name for metric in made)
    for name, times in names.items():
        if times > 1:
            yield f"metrics: {times} are called {name!r}; give each but one another name="
    if any(":" in name for name in unmade):
        return  # from outside, and what such a metric calls its scores is not known
    known = [*names, *unmade]
    for place, given in (("sampling.rates", settings.sampling.rates), ("alerts", settings.alerts)):
        for name in given:
            if name not in known and not get_close_matches(name, unmade, n=1):  # meant with the one that is misspelt
                near = get_close_matches(name, names, n=1)
                meant = f"did you mean {near[0]!r}? " if near else ""
                yield f"{place}.{name}: no metric has this name; {meant}There are {', '.join(known) or 'none'}"


# --- judge and embeddings -----------------------------------------------------------------------------------------


def _embeddings_problems(settings: Settings) -> Iterator[ConfigurationError]:
    named = settings.embeddings
    if named is not None:
        yield from named_problems("embeddings", named, lambda: embedder(named))
    elif settings.judge.model != "lexical":  # beside the offline judge the offline embeddings are the default
        yield from _without_embeddings(settings)


def named_problems(place: str, named: str, make: Callable[[], object]) -> Iterator[ConfigurationError]:
    """Yield what keeps a judge or embeddings from being made by name: what is wrong with it, or what this environment lacks.

    Args:
        place: where the name stands: a key, an option.
        named: ``lexical`` or ``provider:model``.
        make: makes it.
    """
    key = missing_key(named)
    provider, colon, model = named.partition(":")
    if colon and not model.strip():
        yield ConfigurationError(f"{place}: {named!r} names no model; write {provider}:model")
        return
    if key is not None:
        yield NotReadyError(f"{key} is not set; {place} {named!r} needs it")
    try:
        make()
    except NotReadyError as error:
        yield error
    except ConfigurationError as error:
        if key is None:  # else it is the key that the client misses
            yield ConfigurationError(f"{place}: {_why(named, error)}")


def _why(named: str, error: ConfigurationError) -> str:
    """Return why a name stands for nothing; of LangChain's page on it only the providers it knows."""
    provider, colon, _ = named.partition(":")
    said = str(error.__cause__ or error)
    listed = _PROVIDERS.split(said, maxsplit=1)
    if len(listed) == 1:
        return " ".join(str(error).split())
    known = _known(listed[1])
    near = get_close_matches(provider, ["lexical", *known] if not colon else known, n=1)
    meant = "" if not near else f"; did you mean {near[0] + named[len(provider) :]!r}?"
    wrong = f"{named!r} is of no known provider" if colon else f"{named!r} names no provider"
    return f"{wrong}{meant or '.'} Write 'lexical' or 'provider:model', with one of {', '.join(known)}"


def _known(text: str) -> list[str]:
    """Return the names in a list of LangChain's: with commas between, or a line each with a package behind a colon."""
    names = re.sub(r":.*", "", text.strip().split("\n\n")[0])
    return [name for name in re.findall(r"[a-z]\w+", names) if name != "dict_keys"]


def _without_embeddings(settings: Settings) -> Iterator[ConfigurationError]:
    for name, parameters in entries(settings):
        try:
            create(name, judge=_AnyJudge(), **parameters)
        except NotReadyError:
            continue  # told where the metrics are made
        except ConfigurationError as error:
            if "embeddings" in str(error):
                yield ConfigurationError(f"embeddings: {error}; set embeddings: 'provider:model'")


class _AnyJudge:
    """Stands for a chat model where only the other parameters are looked at."""

    model = "any"

    async def ask(self, prompt: Any) -> Any:
        raise NotImplementedError


# --- what the scorer's parts refuse -------------------------------------------------------------------------------


def _part_problems(settings: Settings) -> Iterator[ConfigurationError]:
    """Yield what a scorer's parts would refuse: they are tried here."""
    sampling, segments = settings.sampling, settings.monitoring.segments
    key = {} if sampling.key is None else {"key": sampling.key.encode()}
    tried: list[tuple[str, Callable[[], object]]] = [
        ("", lambda: RateSampler({}, rules=rules_of(sampling), **key)),
        ("monitoring.segments: ", lambda: checked_segments(segments)),
    ]
    for name in ("user_input", "response", "retrieved_contexts"):
        place = {name: getattr(settings.capture, name)}
        tried += [("capture.", partial(Extract, **place))]
    for at, make in tried:
        try:
            make()
        except ConfigurationError as error:
            yield ConfigurationError(f"{at}{error}")
