"""A FastAPI application with a scorer for its whole life. Requests never wait for a score. No key, no server.

    pip install -e . fastapi httpx && python examples/fastapi_app.py        # asks itself two questions and ends
    pip install uvicorn && uvicorn --app-dir examples fastapi_app:app  # serves on 127.0.0.1:8000

Spans go to OTEL_EXPORTER_OTLP_ENDPOINT (default localhost:4318); an unreachable endpoint does not affect the application.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

try:
    from fastapi import FastAPI

    from spanscore import OnlineScorer
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -e . fastapi httpx") from None
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from spanscore.metrics import Faithfulness

NOTES = "The tram museum opens from Wednesday to Sunday. Entry is free for children under twelve."


class Question(BaseModel):
    """The question of a client."""

    text: str


async def answer(question: str) -> dict[str, Any]:
    """Answer from the notes, with the contexts in the chain's output."""
    said = "Entry is free for children under twelve." if "free" in question else "The museum was founded by pirates."
    return {"question": question, "context": [NOTES], "answer": said}


chain = RunnableLambda(answer).with_config(run_name="museum")
scorer = OnlineScorer([Faithfulness("lexical", pass_at=0.7)], sample_rate=1.0, service_name="museum")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Attach for the app's life; at its end let running scores finish, off the event loop."""
    scorer.install()
    yield
    await run_in_threadpool(scorer.flush, 5)
    await run_in_threadpool(scorer.shutdown, 5)


app = FastAPI(lifespan=lifespan)


@app.post("/ask")
async def ask(question: Question) -> dict[str, Any]:
    """Answer one question, and return the id of its trace."""
    run_id = uuid4()
    result = await chain.ainvoke(question.text, config={"run_id": run_id})
    return {"answer": result["answer"], "trace_id": scorer.trace_id(run_id)}


def main() -> None:
    """Ask the app two questions, as a client would."""
    try:
        import httpx  # noqa: F401  (the test client needs it, serving does not)
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing.name} is not installed: pip install httpx") from None
    from fastapi.testclient import TestClient

    with TestClient(app) as client:
        for text in ("Who gets in free?", "Who founded the museum?"):
            said = client.post("/ask", json={"text": text}).json()
            print(f"{said['answer']} → trace {said['trace_id']}")
    print(scorer.status())
    print(
        "In Jaeger: service museum, tag spanscore.verdict=fail; in Tempo { span.spanscore.score.faithfulness < 0.5 }."
    )


if __name__ == "__main__":
    main()
