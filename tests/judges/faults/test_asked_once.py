"""1,000 equal questions at once are one request, as the provider counts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_openai import ChatOpenAI
from tests.servers.faulty_openai import FaultyOpenAI

from spanscore import evaluate
from spanscore.core.sample import SingleTurnSample
from spanscore.judges import judge
from spanscore.metrics import AspectCritic
from spanscore.stored.evaluation_result import Result

SAMPLE = SingleTurnSample(user_input="Where is Rome?", response="In Italy.")
NUMBER = 1_000


async def scored(server: FaultyOpenAI, cache: str | Path | None) -> Result:
    model = ChatOpenAI(base_url=server.url, api_key="none", model="m", temperature=0)  # type: ignore[arg-type]  # a plain key
    asked = judge(model, cache=cache, prices={"m": (1_000_000, 1_000_000)})
    critic = AspectCritic(asked, name="harmless", definition="Is the response harmless?")
    return await evaluate([SAMPLE] * NUMBER, [critic], concurrency=NUMBER)


@pytest.mark.parametrize("cache", [None, "memory", "answers.sqlite"])
async def test_a_thousand_equal_questions_at_once_are_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with FaultyOpenAI(latency_s=0.1) as server:
        result = await scored(server, cache)

        requests = len(server.asked)

    paid = [row for row in result.rows if not row.cached_calls]
    assert (result.summary("harmless").scored, requests) == (NUMBER, 1)
    assert sum(row.cached_calls for row in result.rows) == NUMBER - 1
    assert [row.cost_usd for row in paid] == [row.input_tokens + row.output_tokens for row in paid]
    assert sum(row.cost_usd or 0.0 for row in result.rows) == paid[0].cost_usd
    assert sum(row.input_tokens for row in result.rows) == paid[0].input_tokens > 0


async def test_what_a_file_holds_no_other_run_asks(tmp_path: Path) -> None:
    with FaultyOpenAI() as server:
        first = await scored(server, tmp_path / "answers.sqlite")
        again = await scored(server, tmp_path / "answers.sqlite")

        requests = len(server.asked)

    assert (requests, sum(row.cached_calls for row in again.rows)) == (1, NUMBER)
    assert {row.value for row in again.rows} == {row.value for row in first.rows}
    assert {row.cost_usd for row in again.rows} == {0.0}
