"""A metric's parameter → what of it tells one version from another, as JSON.

A judge, an embedder or a model that a metric holds is named by its model: another one starts another evaluator version, another
key or address for the same one does not. Any other object is its class, for a default repr holds an address and differs every
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from spanscore.errors import ConfigurationError
from spanscore.judges.embeddings import embedder_name
from spanscore.judges.langchain.models import model_name

__all__ = ["parameters_of_version", "plain", "plain_parameter"]

_LEAVE_OUT = "begin its name with an underscore, and it is no part of the version"


def parameters_of_version(metric: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric's parameters as JSON.

    Raises:
        ConfigurationError: one cannot be; the message names the attribute and says what to do.
    """
    told = {}
    for name, value in parameters.items():
        try:
            told[name] = plain_parameter(value)
        except Exception as error:  # whatever a user's object does when it is looked at
            what = (
                str(error) if isinstance(error, ConfigurationError) else f"looking at it raised {type(error).__name__}"
            )
            raise ConfigurationError(
                f"{metric}: what it holds as {name} cannot be part of its version: {what}; {_LEAVE_OUT}"
            ) from error
    return told


def plain(value: Any, of_object: Callable[[Any], Any]) -> Any:
    """Return a parameter as JSON: collections one by one, and of what else is no plain value what ``of_object`` makes of it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, of_object) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(item, of_object) for item in value]
        return items if isinstance(value, list | tuple) else sorted(items, key=str)
    return value if value is None or isinstance(value, str | int | float) else of_object(value)


def plain_parameter(value: Any) -> Any:
    """Return a parameter as JSON."""
    return plain(value, _of_object)


def _of_object(value: Any) -> Any:
    if isinstance(value, type):
        return value.__qualname__
    model = _model_asked(value)
    if model is not None:
        return model
    if is_dataclass(value):  # not by asdict(): it copies what cannot be copied, such as a lock
        return {field.name: plain_parameter(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Sequence):
        return [plain_parameter(item) for item in value]
    return getattr(value, "__qualname__", type(value).__qualname__)


def _model_asked(value: Any) -> str | None:
    """Return the model of a judge, of an embedder, or of what LangChain can ask; None for anything else."""
    if _has(value, "ask"):
        return _model_of_judge(value)
    if _has(value, "embed"):
        return embedder_name(value)
    if _has(value, "ainvoke") or _has(value, "aembed_documents"):
        return " | ".join(map(model_name, _models(value)))
    return None


def _has(value: Any, method: str) -> bool:
    return callable(getattr(value, method, None))


def _model_of_judge(judge: Any) -> str:
    model = getattr(judge, "model", None)
    if not isinstance(model, str) or not model:
        raise ConfigurationError(f"a {type(judge).__name__} is a judge that names no model; give it a text as model")
    return model


def _models(runnable: Any) -> Iterator[Any]:
    """Yield what a LangChain runnable asks: of a binding what is bound, of a sequence its steps, and what is in reserve."""
    if (bound := getattr(runnable, "bound", None)) is not None:
        yield from _models(bound)
    elif isinstance(steps := getattr(runnable, "steps", None), list):
        for step in steps:
            yield from _models(step)
    elif isinstance(others := getattr(runnable, "fallbacks", None), list | tuple):
        for one in (runnable.runnable, *others):
            yield from _models(one)
    else:
        yield runnable
