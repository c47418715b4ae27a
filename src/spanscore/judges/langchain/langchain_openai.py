"""``"openai:…"`` → OpenAI's chat model or embeddings, without the ``langchain`` package that other providers' names need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanscore.core.printable import did_you_mean
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.judges.langchain.errors import without_input


def openai(kind: str, model: str, role: str, made_with: Mapping[str, Any]) -> Any:
    """Return OpenAI's chat model or embeddings of this name; what is not given is of their own environment variables.

    Args:
        kind: the library's class.
        model: its model.
        role: what it is wanted for, in messages.
        made_with: further arguments.

    Raises:
        ConfigurationError: the library or its key is missing, or it takes no such argument; the message says what to do.
    """
    try:
        import langchain_openai
    except ImportError as error:
        raise MissingExtraError("langchain-openai", "openai") from error
    maker = getattr(langchain_openai, kind)
    arguments = {name for field, about in maker.model_fields.items() for name in (field, about.alias) if name}
    for name in made_with:
        if name not in arguments:  # the library itself would print a warning, and send it on
            meant = did_you_mean(name, arguments)
            raise ConfigurationError(
                f"{role} 'openai:{model}': {kind} takes no {name!r}; {meant and f'{meant} '}What only the server knows goes "
                f"into extra_body: {{{name}: …}}"
            )
    try:
        return maker(model=model, **made_with)
    except Exception as error:  # a missing key, mostly: the client's message names the variable
        raise ConfigurationError(f"{role} 'openai:{model}' cannot be made: {without_input(error)}") from error
