"""Copies scores from evaluation spans to Phoenix's native annotations, which Phoenix shows, filters and averages.

    python annotate.py --url http://localhost:6006 --project default --hours 24

Run it as often as you like, for example by cron: a span has one annotation per metric and evaluator version, and a later score
replaces an earlier one. A failed evaluation has no value, so it gets no annotation. The script uses HTTP only and does not need
Phoenix's client.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spanscore import semconv

PAGE = 1_000
"""Number of spans per request, Phoenix's maximum."""
TIMEOUT_S = 30.0


class NoAnnotationsError(Exception):
    """A request to Phoenix failed; the message gives the remedy."""


@dataclass(frozen=True, slots=True)
class Phoenix:
    """One project of a Phoenix server.

    Attributes:
        url: base URL of the server.
        project: name of the project.
        api_key: key that is sent as bearer token; empty if Phoenix requires none.
    """

    url: str
    project: str
    api_key: str

    def evaluations(self, since: datetime | None) -> Iterator[list[dict[str, Any]]]:
        """Yield the spans of kind EVALUATOR page by page, in the order of arrival, since a time; None = all.

        Raises:
            NoAnnotationsError: Phoenix does not answer, or its answer has no spans.
        """
        query = {"span_kind": semconv.OPENINFERENCE_EVALUATOR, "limit": str(PAGE), "sort": "id", "order": "asc"}
        query |= {} if since is None else {"start_time": since.isoformat()}
        path = f"/v1/projects/{urllib.parse.quote(self.project, safe='')}/spans"
        while True:
            page = self._ask(f"{path}?{urllib.parse.urlencode(query)}")
            yield page["data"]
            if not page.get("next_cursor"):
                return
            query["cursor"] = page["next_cursor"]

    def annotate(self, annotations: Sequence[dict[str, Any]]) -> None:
        """Add annotations, or replace those of the same span, name and identifier.

        Raises:
            NoAnnotationsError: Phoenix rejects them.
        """
        # Asynchronous: a synchronous request rejects a whole page if one span has not arrived yet.
        self._ask("/v1/span_annotations?sync=false", json.dumps({"data": annotations}).encode())

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        request = urllib.request.Request(f"{self.url}{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise NoAnnotationsError(self._refusal(error.code, error.read().decode(errors="replace"))) from None
        except (OSError, ValueError) as error:
            raise NoAnnotationsError(
                f"no Phoenix answers at {self.url} ({error}): start it, or name it by --url"
            ) from None

    def _refusal(self, status: int, text: str) -> str:
        if status in {401, 403}:
            return f"Phoenix at {self.url} requires a key: set PHOENIX_API_KEY"
        if status == 404:  # noqa: PLR2004
            return f"Phoenix at {self.url} has no project {self.project!r}: name it by --project"
        return f"Phoenix at {self.url} answered {status}: {text[:300]}"


def annotation(span: dict[str, Any]) -> dict[str, Any] | None:
    """Return an evaluation span as an annotation of its parent; None if it is not spanscore's, or has no value."""
    told = span["attributes"]
    value, label = told.get(semconv.EVALUATION_SCORE_VALUE), told.get(semconv.EVALUATION_SCORE_LABEL)
    if semconv.SCORE_ID not in told or not span["parent_id"] or (value is None and label is None):
        return None
    return {
        "span_id": span["parent_id"],
        "name": told[semconv.EVALUATION_NAME],
        "annotator_kind": told[f"{semconv.OPENINFERENCE_EVALUATION}annotator_kind"],
        "result": {"score": value, "label": label, "explanation": told.get(semconv.EVALUATION_EXPLANATION)},
        "identifier": told[f"{semconv.OPENINFERENCE_EVALUATION}identifier"],
    }


def annotate(phoenix: Phoenix, since: datetime | None) -> int:
    """Annotate every scored span of a project. Return the number of annotations that were sent.

    Raises:
        NoAnnotationsError: Phoenix cannot be read, or rejects annotations.
    """
    sent = 0
    for page in phoenix.evaluations(since):
        found = [one for one in map(annotation, page) if one is not None]
        latest = {(one["span_id"], one["name"], one["identifier"]): one for one in found}
        if latest:
            phoenix.annotate(list(latest.values()))
        sent += len(latest)
    return sent


def main() -> int:
    """Send the annotations and print the result. Return 0 on success, 1 on failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("PHOENIX_BASE_URL", "http://localhost:6006"))
    parser.add_argument("--project", default="default")
    parser.add_argument("--hours", type=float, help="only units that ended within this many hours; by default all")
    asked = parser.parse_args()
    since = None if asked.hours is None else datetime.now(UTC) - timedelta(hours=asked.hours)
    phoenix = Phoenix(asked.url.rstrip("/"), asked.project, os.environ.get("PHOENIX_API_KEY", ""))
    try:
        sent = annotate(phoenix, since)
    except NoAnnotationsError as reason:
        sys.stderr.write(f"{reason}\n")
        return 1
    sys.stdout.write(f"{sent} annotations sent to project {asked.project!r} of {asked.url}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
