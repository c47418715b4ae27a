"""Redaction: a planted secret reaches no judge, no exporter, no log line and no error text, also when the redactor raises."""

import io
import logging
import re
from contextlib import ExitStack

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from tests.live import model
from tests.servers.openai_api import OpenAIServer
from tests.servers.otlp import OtlpReceiver

import spanscore
from spanscore import OnlineScorer
from spanscore.config import Capture, Limits
from spanscore.core.prompt import Reply
from spanscore.core.sample import AIMessage as SpokenMessage
from spanscore.core.sample import HumanMessage, Samples, ToolCall
from spanscore.metrics import AspectCritic, BaseMetric, Faithfulness
from spanscore.pipeline.jobs import Hooks

pytestmark = pytest.mark.flaky(reruns=2)  # scenes with deadlines, on a machine that others may use too

SECRET = "sk-4242-swordfish"
PATTERN = re.compile(r"sk-\d+-swordfish")


class Recording:
    """Keeps every prompt, and answers in every metric's form; or raises an exception that quotes the prompt."""

    model = "recording"

    def __init__(self, fail=False):
        self.asked, self.fail = [], fail

    async def ask(self, prompt):
        self.asked.append(repr(prompt))
        if self.fail:
            raise RuntimeError(f"cannot answer {prompt}")
        return Reply(text='{"statements": ["It is so."], "verdict": 1, "reason": "fine"}', model=self.model)


class Quoting(BaseMetric):
    """Raises with the whole sample in its words."""

    name = "quoting"
    requires = {"single_turn": ()}  # noqa: RUF012

    async def measure(self, sample):
        raise ValueError(f"cannot read {sample}")


class Vault(BaseRetriever):
    def _get_relevant_documents(self, query, **_):
        return [Document(page_content=f"The key is {SECRET}.", id="1", metadata={"key": SECRET})]


@tool
def look_up(key: str) -> str:
    """Look a key up."""
    return f"{key} is {SECRET}"


def chain(fail=False):
    """Put the secret everywhere a chain can hold it."""

    def answer(given):
        found = Vault().invoke(given["question"])
        look_up.invoke({"key": SECRET})
        said = model(f"It is {SECRET}.").invoke([("system", f"Never say {SECRET}."), ("user", given["question"])])
        if fail:
            raise ValueError(f"no {SECRET}")
        return {"context": found, "messages": [AIMessage(said.content)], SECRET: {"deep": [SECRET]}}

    return RunnableLambda(answer)


def raising(text):
    raise RuntimeError(f"cannot redact {text}")


def leaving(text):
    raise SystemExit(text)


REDACTORS = {"redacts": lambda text: PATTERN.sub("[key]", text), "raises": raising, "exits": leaving}


class Host:
    """All outputs: spans, events, points, log lines, stdout, stderr, status, and the judge's prompts."""

    def __init__(self, stack: ExitStack, monkeypatch):
        self.collector = stack.enter_context(OtlpReceiver())
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", self.collector.endpoint)
        self.logs = io.StringIO()
        handler = logging.StreamHandler(self.logs)
        logging.getLogger().addHandler(handler)
        level = logging.getLogger("spanscore").level
        logging.getLogger("spanscore").setLevel(logging.DEBUG)
        stack.callback(logging.getLogger("spanscore").setLevel, level)
        stack.callback(logging.getLogger().removeHandler, handler)

    def left(self):
        return f"{self.collector.spans} {self.collector.events} {self.collector.points} {self.logs.getvalue()}"


@pytest.fixture
def host(monkeypatch):
    with ExitStack() as stack:
        yield Host(stack, monkeypatch)


def scored(host, metrics, *, fail=False, expected=None, **options):
    scorer = OnlineScorer(metrics, service_name="app", limits=Limits(timeout=2), **options)
    try:
        with spanscore.references(reference=expected or "x"):
            chain(fail).invoke({"question": f"Where is {SECRET}?"}, config={"callbacks": [scorer.handler]})
    except ValueError:
        pass
    finally:
        scorer.flush(5)
        scorer.shutdown(2)
    return scorer.status()


@pytest.mark.parametrize("judge_fails", [False, True])
@pytest.mark.parametrize("redactor", REDACTORS)
def test_a_secret_stays_home(redactor, judge_fails, host, capfd):
    judge = Recording(judge_fails)
    metrics = [AspectCritic(judge, name="harmless", definition="Is it harmless?"), Faithfulness(judge), Quoting()]

    status = scored(
        host, metrics, capture=Capture(content=True), redactor=REDACTORS[redactor], expected=f"It is {SECRET}"
    )

    assert host.collector.spans
    assert SECRET not in host.left() + str(status) + "".join(judge.asked) + "".join(capfd.readouterr())
    assert bool(judge.asked) == (redactor == "redacts")
    if redactor != "redacts":
        assert {o for per in status.outcomes.values() for o in per} == {"redaction_error"}


@pytest.mark.parametrize("redactor", REDACTORS)
def test_a_secret_in_an_error_stays_home(redactor, host, capfd):
    status = scored(host, [Quoting()], fail=True, capture=Capture(content=True), redactor=REDACTORS[redactor])

    assert host.collector.spans
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


@pytest.mark.parametrize("fail", [False, True])
def test_without_content_capture_and_redactor_only_the_judge_sees_it(fail, host, capfd):
    judge = Recording(fail=True)

    status = scored(host, [AspectCritic(judge, name="harmless", definition="Is it harmless?"), Quoting()], fail=fail)

    assert host.collector.spans
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


def test_the_key_of_the_judge_and_of_the_collector_stay_home(host, monkeypatch, capfd):
    from langchain_openai import ChatOpenAI

    with OpenAIServer(lambda _: (401, {})) as server:
        judge = ChatOpenAI(base_url=server.url, api_key=SECRET, model="m", max_retries=0)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET}")
        status = scored(host, [AspectCritic(judge, name="harmless", definition="?")], redactor=REDACTORS["redacts"])

    assert status.outcomes["harmless"] == {"judge_error": 1}
    assert SECRET not in host.left() + str(status) + "".join(capfd.readouterr())


CORNERS = {
    "args": {"key": SECRET},
    "id of args": {"id": SECRET},
    "key of args": {SECRET: 1},
    "a tuple": {"key": (SECRET,)},
    "a set": {"key": {SECRET}},
    "bytes": {"key": SECRET.encode()},
    "an error": {"key": [ValueError(SECRET)]},
    "a document": {"key": Document(page_content=SECRET)},
}


@pytest.mark.parametrize("where", [*CORNERS, "metadata", "rubrics"])
def test_a_secret_in_a_corner_of_a_conversation_is_redacted(where):
    args = CORNERS.get(where, {})
    sample = spanscore.MultiTurnSample(
        user_input=[
            HumanMessage(content="?", metadata={"type": SECRET} if where == "metadata" else None),
            SpokenMessage(tool_calls=[ToolCall(name="look_up", args=args)]),
        ],
        rubrics={SECRET: SECRET} if where == "rubrics" else None,
    )

    (redacted,) = [Hooks(REDACTORS["redacts"]).apply(Samples(multi_turn=sample)).multi_turn]

    assert SECRET in str(sample)
    assert SECRET not in str(redacted)


@pytest.mark.parametrize("redactor", REDACTORS)
def test_a_conversation_named_by_a_secret_is_not(redactor, host):
    with OnlineScorer([Quoting()], service_name="app", redactor=REDACTORS[redactor]) as scorer:
        config = {"callbacks": [scorer.handler], "metadata": {"session_id": SECRET, "user": SECRET}, "tags": [SECRET]}
        model("Good morning.").invoke("Hello?", config=config)

    (root,) = [span for span in host.collector.spans if span.parent_id == 0]
    assert root.attributes.get("gen_ai.conversation.id") == ("[key]" if redactor == "redacts" else None)
    assert SECRET not in host.left()


def test_a_secret_that_is_streamed_in_pieces_is_redacted(host):
    judge = Recording()
    pieces = model(f"It is {SECRET} , I think.")
    with OnlineScorer(
        [AspectCritic(judge, name="harmless", definition="?")],
        service_name="app",
        capture=Capture(content=True, score_abandoned=True),
        redactor=REDACTORS["redacts"],
    ) as scorer:
        config = {"callbacks": [scorer.handler]}
        assert SECRET in "".join(chunk.content for chunk in pieces.stream("?", config=config))
        left = pieces.stream("?", config=config)
        while SECRET not in next(left).content:
            pass
        left.close()
        assert scorer.flush(5)

    assert len(judge.asked) == 2
    assert SECRET not in host.left() + "".join(judge.asked)


def test_a_secret_in_what_is_expected_of_a_lone_model_is_redacted(host):
    expected = {"reference_tool_calls": [{"name": "look_up", "args": {"keys": (SECRET,)}}], "rubrics": {SECRET: SECRET}}
    with (
        OnlineScorer(
            [Quoting()], service_name="app", capture=Capture(content=True), redactor=REDACTORS["redacts"]
        ) as scorer,
        spanscore.references(**expected),
    ):
        model("Good morning.").invoke("Hello?", config={"callbacks": [scorer.handler]})

    (root,) = [span for span in host.collector.spans if span.parent_id == 0]
    assert "[key]" in str(root.attributes)
    assert SECRET not in host.left()


def test_a_submitted_sample_is_redacted_too(host):
    judge = Recording()
    with OnlineScorer(
        [AspectCritic(judge, name="harmless", definition="?")], service_name="app", redactor=REDACTORS["redacts"]
    ) as scorer:
        scorer.submit(spanscore.SingleTurnSample(user_input=f"{SECRET}?", response=SECRET, retrieved_contexts=[SECRET]))
        assert scorer.flush(5)

    assert judge.asked
    assert SECRET not in host.left() + "".join(judge.asked)
