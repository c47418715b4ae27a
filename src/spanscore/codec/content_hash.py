"""A sample's content → a name for it, in any process."""

from __future__ import annotations

from hashlib import blake2b

from spanscore.model.sample import Sample

__all__ = ["content_hash"]


def content_hash(sample: Sample) -> str:
    """Return 32 hex digits that are the same for the same content of a sample."""
    try:
        text = sample.model_dump_json(exclude_none=True)
    except Exception:  # noqa: BLE001  (half a surrogate pair, an object among a tool's arguments: pydantic cannot write them)
        text = repr(sample)
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
