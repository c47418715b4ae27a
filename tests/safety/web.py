"""Web applications for the safety suite: an ASGI one with a lifespan, and a WSGI one with a scorer created before the fork."""

import asyncio
import os
from contextlib import asynccontextmanager
from typing import Any

from tests.live import Grounded, rag

from spanscore import OnlineScorer

SCORED = os.environ.get("SCORED") == "1"


def asgi() -> Any:
    """FastAPI: the scorer begins and ends with the application."""
    from fastapi import FastAPI

    chain = rag()

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        app.state.config = {}
        if not SCORED:
            yield
            return
        with OnlineScorer([Grounded()], service_name="app") as scorer:
            app.state.config = {"callbacks": [scorer.handler]}
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/awaited/{question}")
    async def awaited(question: str) -> str:
        return await chain.ainvoke(question, config=app.state.config)

    @app.get("/threaded/{question}")
    def threaded(question: str) -> str:
        return chain.invoke(question, config=app.state.config)

    return app


def wsgi() -> Any:
    """Anything under gunicorn: made once, before the workers are forked, never shut down by hand."""
    chain = rag()
    if SCORED:
        OnlineScorer([Grounded()], service_name="app").install()

    def app(environ: Any, start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        answer = asyncio.run(chain.ainvoke(path)) if path.startswith("/awaited") else chain.invoke(path)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{os.getpid()} {answer}".encode()]

    return app
