"""Builds the dashboards as ``dashboards/*.json``: python integrations/grafana/build.py [FOLDER]

For development only; it needs spanscore and grafana-foundation-sdk (both in the extra ``dev``). The JSON is committed, and a
test builds it anew and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from one_metric import one_metric
from operators import operators
from overview import overview


def main(arguments: list[str]) -> None:
    """Write every dashboard into the given folder, by default the folder ``dashboards`` next to this file."""
    folder = Path(arguments[0]) if arguments else Path(__file__).with_name("dashboards")
    folder.mkdir(parents=True, exist_ok=True)
    for dashboard in (overview(), operators(), one_metric()):
        text = JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(dashboard)
        (folder / f"{dashboard.uid}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
