"""Validation of a JSON value by a JSON Schema, by jsonschema (extra ``checks``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spanscore.errors import ConfigurationError, MissingExtraError


def schema_check(metric: str, schema: Mapping[str, Any]) -> Callable[[Any], str | None]:
    """Return a function that describes the most relevant fault of a JSON value by a schema; None if the value is valid.

    Raises:
        ConfigurationError: the schema is not a JSON Schema.
        MissingExtraError: jsonschema is not installed (extra ``checks``).
    """
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise MissingExtraError("jsonschema", "checks") from error
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ConfigurationError(
            f"{metric}: schema is not a JSON Schema: {error.json_path}: {error.message}"
        ) from error
    validator = kind(schema, registry=referencing.Registry())  # an empty registry sends no requests

    def fault_in(value: Any) -> str | None:
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        return None if error is None else f"{error.json_path}: {error.message}"

    return fault_in
