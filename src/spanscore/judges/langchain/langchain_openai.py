"""Create OpenAI's chat model or embeddings from ``openai:…``, without the ``langchain`` package that other providers need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.judges.langchain.errors import without_input


def openai(kind: str, model: str, role: str, arguments: Mapping[str, Any]) -> Any:
    """Return OpenAI's chat model or embeddings; missing arguments come from the library's environment variables.

    Args:
        kind: name of the library's class.
        role: ``judge`` or ``embeddings``, for messages.

    Raises:
        ConfigurationError: the library or its key is missing, or the class lacks an argument; the message names the remedy.
    """
    try:
        import langchain_openai
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    model_class = getattr(langchain_openai, kind)
    parameters = {name for field, about in model_class.model_fields.items() for name in (field, about.alias) if name}
    for name in arguments:
        if name not in parameters:  # the library itself would only print a warning, and send the argument on
            meant = did_you_mean(name, parameters)
            raise ConfigurationError(
                f"{role} 'openai:{model}': {kind} takes no {name!r}; {meant and f'{meant} '}Give a parameter of the "
                f"server alone in extra_body: {{{name}: …}}"
            )
    try:
        return model_class(model=model, **arguments)
    except Exception as error:  # mostly a missing key: the client's message names the environment variable
        raise ConfigurationError(f"{role} 'openai:{model}' cannot be made: {without_input(error)}") from error
