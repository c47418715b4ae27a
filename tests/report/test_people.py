"""People's labels: the last label of each person, next to the scores of the same units, and in no metric."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tests.live import QUESTION, a_line, rag
from tests.report.builders import a_label, a_turn, evaluations, make_score

from spanscore import semconv
from spanscore.config import Capture
from spanscore.core.codecs.sdk import span_data
from spanscore.core.score import Outcome
from spanscore.core.span import SpanData
from spanscore.report import summary, write
from spanscore.report.excerpts import human_labels_of
from spanscore.report.spans import Spans


def labels_shown(spans: list[SpanData]) -> list[list[tuple[str, str]]]:
    return [[(label.value, label.annotator) for label in said] for said in human_labels_of(Spans.read(spans)).values()]


def test_of_one_persons_labels_the_last_stands() -> None:
    (unit, *_) = a_turn("a", make_score(0.9))
    up, down = a_label(unit, 1.0, "pass", minute=10), a_label(unit, 0.0, "fail", minute=20)

    assert labels_shown([down, up, unit]) == labels_shown([up, down, unit]) == [[("fail", "HUMAN")]]


def test_of_one_moment_the_higher_revision_stands() -> None:
    (unit, *_) = a_turn("a", make_score(0.9))
    first, second = a_label(unit, 1.0, "pass"), a_label(unit, 0.0, "fail", **{semconv.SCORE_REVISION: 1})

    assert labels_shown([second, first]) == labels_shown([first, second]) == [[("fail", "HUMAN")]]


def test_each_annotator_counts() -> None:
    (unit, *_) = a_turn("a", make_score(0.9))

    assert labels_shown(
        [a_label(unit, 1.0, annotator="anna", minute=2), a_label(unit, 0.25, annotator="ben", minute=1)]
    ) == [[("0.25", "ben"), ("1.00", "anna")]]


def test_the_page_lays_labels_beside_the_scores_of_the_same_units(tmp_path: Path) -> None:
    units = [a_turn(f"c{at}", make_score(value), minute=at) for at, value in enumerate((0.9, 0.7, 0.2))]
    said = [a_label(unit[0], float(at > 0), "good" if at else "bad") for at, unit in enumerate(units)]

    page = _page(tmp_path, [span for unit in units for span in unit] + said)

    assert "People rated 3 units" in page
    assert "<tr><td>user feedback</td><td>bad</td><td>1</td><td>0.90 (1)</td></tr>" in page
    assert "<tr><td>user feedback</td><td>good</td><td>2</td><td>0.45 (2)</td></tr>" in page


def test_a_unit_judged_after_feedback_is_shown_apart(tmp_path: Path) -> None:
    (unit,) = a_turn("a", others={"faithfulness": Outcome.NOT_SAMPLED})
    judged = evaluations(unit, make_score(0.25, source="feedback", probability=0.5, threshold=1 << 55))

    page = _page(tmp_path, [unit, *judged, a_label(unit, 0.0, "bad")])

    assert "mean faithfulness (feedback) (scored)" in page
    assert [metric.scores for metric in summary([unit, *judged]).metrics if metric.metric] == []


def test_a_label_is_shown_where_its_unit_is_not_in_the_file(tmp_path: Path) -> None:
    (unit, *_) = a_turn("a", make_score(0.9))

    page = _page(tmp_path, [a_label(unit, 0.0, "bad")])

    assert f"trace <code>{unit.trace_id:032x}</code>" in page


def test_the_page_shows_what_feedback_writes(tmp_path: Path) -> None:
    with a_line(capture=Capture(content=True), feedback_scales={"mood": ["bad", "good"]}) as (scorer, trace):
        run_id = uuid4()
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler], "run_id": run_id})
        ids = scorer.unit_id(run_id)
        for value, name in ((True, "user_feedback"), (False, "user_feedback"), ("good", "mood")):
            assert scorer.feedback(
                ids.trace_id, value, name=name, span_id=ids.span_id, annotator="anna", comment="So so."
            )
        assert scorer.flush(10)
        page = _page(tmp_path, [span_data(span) for span in trace.spans])

    assert "People rated 1 unit<" in page
    assert {
        chip for chip in ("user feedback: fail (anna)", "mood: good (anna)", "user feedback: pass") if chip in page
    } == {
        "user feedback: fail (anna)",
        "mood: good (anna)",
    }
    assert "anna: So so." in page


def test_nothing_is_said_of_labels_where_there_are_none(tmp_path: Path) -> None:
    assert "What people said" not in _page(tmp_path, a_turn("a", make_score(0.9)))


def _page(tmp_path: Path, spans: list[SpanData]) -> str:
    write(spans, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")
