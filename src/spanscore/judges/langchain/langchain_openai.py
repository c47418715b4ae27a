"""Create OpenAI's chat model or embeddings from ``openai:…``, without the ``langchain`` package that other providers need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.judges.langchain.errors import without_input


def openai(kind: str, model: str, role: str, made_with: Mapping[str, Any]) -> Any:
    """Return OpenAI's chat model or embeddings; missing arguments come from the library's environment variables.

    Args:
        kind: name of the library's class.
        model: name of the model.
        role: ``judge`` or ``embeddings``, for messages.
        made_with: further arguments of the class.

    Raises:
        ConfigurationError: the library or its key is missing, or the class lacks an argument; the message names the remedy.
    """
    try:
        import langchain_openai
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    maker = getattr(langchain_openai, kind)
    arguments = {name for field, about in maker.model_fields.items() for name in (field, about.alias) if name}
    for name in made_with:
        if name not in arguments:  # the library itself would only print a warning, and send the argument on
            meant = did_you_mean(name, arguments)
            raise ConfigurationError(
                f"{role} 'openai:{model}': {kind} takes no {name!r}; {meant and f'{meant} '}Give a parameter of the "
                f"server alone in extra_body: {{{name}: …}}"
            )
    try:
        return maker(model=model, **made_with)
    except Exception as error:  # a missing key, mostly: the client's message names the variable
        raise ConfigurationError(f"{role} 'openai:{model}' cannot be made: {without_input(error)}") from error
