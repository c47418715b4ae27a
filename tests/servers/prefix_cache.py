"""Cached prefixes of prompts, counted by the published rules of two providers.

OpenAI (developers.openai.com, "Prompt caching", November 2026): tools and the schema of the answer precede the messages.
Prefixes of 1,024 tokens or more are cached, in steps of 128. Writing costs nothing.

Anthropic (platform.claude.com, "Prompt caching", November 2026): the order is tools, system, messages. A prefix is written and
read up to blocks with ``cache_control``, from a length on that depends on the model.

A prefix can be read when the answer to its first request has begun.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

LEAST, STEP = 1_024, 128
Encode = Callable[[str], Sequence[Hashable]]


class Counted(NamedTuple):
    """The tokens of a prompt: all of them, and those of them that were read from the cache or written to it."""

    total: int
    read: int
    written: int


class PrefixCache:
    """A provider's cache of prefixes. Any thread.

    Args:
        encode: text → tokens.
        least: tokens of the shortest cached prefix.
    """

    def __init__(self, encode: Encode, least: int = LEAST) -> None:
        self._encode, self._least = encode, least
        self._lock = threading.Lock()
        self._known: set[Hashable] = set()

    def of_openai(self, body: dict[str, Any]) -> tuple[Counted, Callable[[], None]]:
        """Return the tokens of a request, and a function that adds its prefixes to the cache."""
        front = [json.dumps(body[name]) for name in ("tools", "response_format") if not _is_plain(body.get(name))]
        texts = [*front, *(f"{message['role']}\n{_text(message['content'])}" for message in body["messages"])]
        tokens = [token for text in texts for token in self._encode(text)]
        ends = range(self._least, len(tokens) + 1, STEP)
        counted, keys = self._longest(body["model"], tokens, ends)
        return counted._replace(written=0), lambda: self._add(keys)

    def of_anthropic(self, body: dict[str, Any]) -> tuple[Counted, Callable[[], None]]:
        """Return the tokens of a request, and a function that adds its marked prefixes to the cache."""
        blocks = [*_blocks(body)]
        sizes = [self._encode(text) for text, _ in blocks]
        tokens = [token for size in sizes for token in size]
        marked = [end for end, (_, is_marked) in zip(accumulate(map(len, sizes)), blocks, strict=True) if is_marked]
        counted, keys = self._longest(body["model"], tokens, [end for end in marked if end >= self._least])
        return counted, lambda: self._add(keys)

    def _longest(
        self, model: str, tokens: Sequence[Hashable], ends: Sequence[int]
    ) -> tuple[Counted, dict[int, Hashable]]:
        keys: dict[int, Hashable] = {end: (model, hash(tuple(tokens[:end]))) for end in ends}
        with self._lock:
            read = max((end for end, key in keys.items() if key in self._known), default=0)
        return Counted(len(tokens), read, max(ends, default=read) - read), keys

    def _add(self, keys: dict[int, Hashable]) -> None:
        with self._lock:
            self._known.update(keys.values())


def _is_plain(form: Any) -> bool:
    return form is None or form == {"type": "json_object"}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a request in the order of Anthropic's cache, and whether each is marked."""
    if "tools" in body:
        yield json.dumps(body["tools"]), False
    for content in (body.get("system", ""), *(message["content"] for message in body["messages"])):
        if isinstance(content, str):
            yield content, False
        else:
            yield from ((block["text"], "cache_control" in block) for block in content)
