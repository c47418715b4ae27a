"""plotly.js as its Python package brings it along: the charts' code, put into the page once, so that it needs no network.

The package holds the whole of plotly.js only; the parts that bars and lines need (1 MB) are published for npm alone. So the
page carries all 4.8 MB, written in the way in which a browser reads them fastest: once, and one byte per character.
"""

from __future__ import annotations

import json
import re

from spanscore.errors import MissingExtraError

__all__ = ["source"]

_BEGIN, _END = "this, () => {", "return Plotly;\n}));"
"""Around plotly.js proper: a wrapper that knows several ways to load a module, of which a page needs none."""
_NOTICE_END = "*/"


def source() -> str:
    """Return plotly.js, some 5 MB of ASCII.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise MissingExtraError("plotly", "report") from None
    return _narrow(_unwrapped(str(get_plotlyjs()))).replace("</script", "<\\/script")


def _unwrapped(script: str) -> str:
    """Take off the wrapper, and leave the notice above it; a script of another shape stays as it is.

    V8 skips over the body of a function that is handed to a wrapper, sees that it is called, and reads all of it again: 0.2 s.
    What is left is called where it stands, which V8 foresees.
    """
    head, _, rest = script.partition(_BEGIN)
    notice, ends, _ = head.partition(_NOTICE_END)
    if not (ends and rest.endswith(_END)):
        return script
    return notice + ends + rest.removesuffix(_END)


def _narrow(script: str) -> str:
    """Escape what is not ASCII: 25 characters of 4.8 million, any of which makes a browser hold them all in two bytes each."""
    return re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], script)
