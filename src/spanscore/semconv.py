"""Every name that crosses a wire: attributes, span names, scopes, instruments, events, environment variables.

*Standard* names are those of the OpenTelemetry GenAI semantic conventions (v1.42-dev, all in Development) or of
OpenInference (0.1.42); the rest, under ``spanscore.*``, are ours. No other module spells one of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# --- attributes -----------------------------------------------------------------------------------------------------

# Attributes, span names, scopes, events and environment variables.

# --- scopes -------------------------------------------------------------------------------------------------------
SCOPE: Final = "spanscore"
"""Ours: marks evaluations. A span of this scope is never eligible, in this process or another."""
CAPTURE_SCOPE: Final = "spanscore.capture"
"""Ours: spans that our callback handler made of a live run."""
JUDGE_SCOPE: Final = "spanscore.judge"
"""Ours: what judges were asked, in traces of their own; never eligible, either."""
EVALUATOR_SCOPES: Final = frozenset({SCOPE, JUDGE_SCOPE})
"""Of spans that are about an evaluation: whoever looks for what can be scored leaves both out."""
OWN_SCOPES: Final = EVALUATOR_SCOPES | {CAPTURE_SCOPE}
"""Scopes of all spans that spanscore makes."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""Of the GenAI conventions that the names below are of; on every scope of ours."""

# --- GenAI conventions (standard) ---------------------------------------------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_CACHE_CREATION_INPUT_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The older name of ``cache_write``, and the one that Phoenix 20 and Langfuse read: both are written."""
USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
PROMPT_VERSION: Final = "gen_ai.prompt.version"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
"""Of a span's event; stable."""
EXCEPTION_MESSAGE: Final = "exception.message"
"""Of a span's event; stable."""
SERVICE_NAME: Final = "service.name"
"""Of the resource; stable."""

# Content: opt-in everywhere, never exported unless asked.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
INPUT_VALUE: Final = "input.value"
"""OpenInference: the input of a root that is not a conversation, as JSON."""
OUTPUT_VALUE: Final = "output.value"
OPENINFERENCE_DOCUMENTS: Final = "retrieval.documents."
"""OpenInference, flat: followed by a position and ``.document.`` ``id``, ``content``, ``score`` or ``metadata``."""
REFERENCES: Final = "spanscore.references"
"""Ours: what ``spanscore.references(...)`` gave, as JSON."""
CONTENT_CUT: Final = "spanscore.content.cut"
"""Ours: true on a translated span of which an attribute limit cut some content that was JSON: that content is left out."""
HISTORY: Final = "spanscore.history"
"""Ours: what a store of messages gave to the run; a form of ``gen_ai.input.messages``."""

CONTENT_ATTRIBUTES: Final = frozenset(
    {
        INPUT_MESSAGES,
        OUTPUT_MESSAGES,
        SYSTEM_INSTRUCTIONS,
        TOOL_DEFINITIONS,
        TOOL_CALL_ARGUMENTS,
        TOOL_CALL_RESULT,
        RETRIEVAL_QUERY,
        RETRIEVAL_DOCUMENTS,
        INPUT_VALUE,
        OUTPUT_VALUE,
        REFERENCES,
        HISTORY,
    }
)
"""Attributes that quote prompts, answers or documents. On the wire each is a string (JSON where it is structured)."""
CONTENT_PREFIXES: Final = (OPENINFERENCE_DOCUMENTS,)
"""Beginnings of flat attributes that do; each holds one value, text as it is."""


def is_content(name: str) -> bool:
    """Whether an attribute quotes prompts, answers or documents."""
    return name in CONTENT_ATTRIBUTES or name.startswith(CONTENT_PREFIXES)


# Operations (values of gen_ai.operation.name).
CHAT: Final = "chat"
TEXT_COMPLETION: Final = "text_completion"
GENERATE_CONTENT: Final = "generate_content"
RETRIEVAL: Final = "retrieval"
SEARCH_MEMORY: Final = "search_memory"
EMBEDDINGS: Final = "embeddings"
EXECUTE_TOOL: Final = "execute_tool"
CREATE_AGENT: Final = "create_agent"
INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EVALUATION: Final = "evaluation"
RERANK: Final = "rerank"
"""Ours: OpenInference's kind RERANKER."""
NOT_READ_OPERATIONS: Final = frozenset(
    {EVALUATION, CREATE_AGENT, EMBEDDINGS, "create_memory", "update_memory", "upsert_memory", "delete_memory"}
)
"""Spans of these operations hold no question and no answer: nothing is read of them, and alone they make no unit."""
WORDLESS_REQUESTS: Final = frozenset(
    f"{prefix}{name}"
    for name in ("embedding", "rerank", "image_generation", "speech", "transcription", "moderation")
    for prefix in ("", "a")
)
"""What LiteLLM calls requests that have no prompt and answer in words; they are read as `EMBEDDINGS` are."""
MODEL_OPERATIONS: Final = frozenset({CHAT, TEXT_COMPLETION, GENERATE_CONTENT})
"""A model is asked and answers."""
WHOLE_OPERATIONS: Final = frozenset({INVOKE_AGENT, INVOKE_WORKFLOW})
"""Operations of a whole application: writers differ in what they call an agent."""

PLAIN_ATTRIBUTES: Final = frozenset(
    {
        OPERATION_NAME,
        PROVIDER_NAME,
        CONVERSATION_ID,
        WORKFLOW_NAME,
        AGENT_NAME,
        REQUEST_MODEL,
        REQUEST_TEMPERATURE,
        REQUEST_MAX_TOKENS,
        RESPONSE_MODEL,
        RESPONSE_ID,
        RESPONSE_FINISH_REASONS,
        RESPONSE_TIME_TO_FIRST_CHUNK,
        USAGE_INPUT_TOKENS,
        USAGE_OUTPUT_TOKENS,
        USAGE_CACHE_READ_INPUT_TOKENS,
        USAGE_CACHE_WRITE_INPUT_TOKENS,
        USAGE_CACHE_CREATION_INPUT_TOKENS,
        USAGE_REASONING_OUTPUT_TOKENS,
        TOOL_NAME,
        TOOL_CALL_ID,
        PROMPT_VERSION,
        ERROR_TYPE,
        CONTENT_CUT,
    }
)
"""Attributes of the conventions that quote nothing: all that stays of an external span beside its content."""

# --- evaluation (standard names, GenAI conventions) ---------------------------------------------------------------
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
EVALUATION_TARGET: Final = "gen_ai.evaluation.target"
"""The agent's name, else the workflow's; Logfire groups by it."""

# OpenInference's span kinds, and its evaluator form (spec/annotations.md, 2026-07-31).
OPENINFERENCE_KIND: Final = "openinference.span.kind"
OPENINFERENCE_CHAIN: Final = "CHAIN"
"""Also what has no operation: a step, a sample made by hand."""
OPENINFERENCE_KINDS: Final[Mapping[str, str]] = {
    CHAT: "LLM",
    TEXT_COMPLETION: "LLM",
    EMBEDDINGS: "EMBEDDING",
    RETRIEVAL: "RETRIEVER",
    EXECUTE_TOOL: "TOOL",
    INVOKE_AGENT: "AGENT",
    INVOKE_WORKFLOW: OPENINFERENCE_CHAIN,
}
"""Operation → kind. Phoenix itself maps ``invoke_workflow`` to none, and shows such a root as *unknown*."""
OPENINFERENCE_EVALUATOR: Final = "EVALUATOR"
OPENINFERENCE_EVALUATION: Final = "evaluations.0.evaluation."
"""Followed by name, score, label, explanation, annotator_kind (LLM, CODE or HUMAN) or identifier."""
ANNOTATOR_HUMAN: Final = "HUMAN"
"""The kind of whoever labels; and the name of one of whom nobody said more."""

# --- read only: older GenAI conventions (1.27 to 1.36 and before), and those who still write them -----------------------
SYSTEM: Final = "gen_ai.system"
USAGE_PROMPT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
USAGE_COMPLETION_TOKENS: Final = "gen_ai.usage.completion_tokens"
USAGE_CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read_input_tokens"
REQUEST_TYPE: Final = "llm.request.type"
"""Before there were operations: ``chat``, ``completion``, ``embedding`` or ``rerank``."""
PROMPT: Final = "gen_ai.prompt"
PROMPT_VARIABLE: Final = "gen_ai.prompt.variable."
"""Followed by a name: a value that a prompt template was filled with (GenAI conventions, newest)."""
MEMORY_QUERY: Final = "gen_ai.memory.query.text"
MEMORY_RECORDS: Final = "gen_ai.memory.records"
"""Query and result of ``search_memory``, in the forms of ``gen_ai.retrieval.query.text`` and ``gen_ai.retrieval.documents``."""
COMPLETION: Final = "gen_ai.completion"
"""One JSON, or flat: followed by a position and ``role``, ``content``, ``tool_calls.`` and so on."""
EVENT_CONTENT: Final = "gen_ai.event.content"
"""Of a span event: the message, as JSON."""
BODY_SIDES: Final = ("input", "output")
"""Keys of the body of a log record of AWS's distribution; each holds ``messages``."""
PROMPT_EVENT: Final = "gen_ai.content.prompt"
COMPLETION_EVENT: Final = "gen_ai.content.completion"
CHOICE_EVENT: Final = "gen_ai.choice"
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
"""Its attributes have the names that content has on spans; a log event by the conventions, a span event of Strands."""
MESSAGE_EVENTS: Final[Mapping[str, str]] = {
    f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")
}
"""Span event → the role of the message it holds."""
SESSION_ID: Final = "session.id"
LANGSMITH_KIND: Final = "langsmith.span.kind"
"""Run type of LangSmith's OTel export; what it writes as the operation of a retriever is ``embeddings``."""
LANGSMITH_METADATA: Final = "langsmith.metadata."
"""Followed by a key."""

# --- read only: OpenInference (0.1.42) -------------------------------------------------------------------------------
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
LLM_INPUT_MESSAGES: Final = "llm.input_messages."
LLM_OUTPUT_MESSAGES: Final = "llm.output_messages."
"""Flat: followed by a position and ``message.`` ``role``, ``content``, ``contents.``, ``tool_calls.`` and so on."""
LLM_PROMPTS: Final = "llm.prompts"
LLM_MODEL_NAME: Final = "llm.model_name"
LLM_REQUEST_MODEL_NAME: Final = "llm.request.model_name"
LLM_RESPONSE_MODEL_NAME: Final = "llm.response.model_name"
LLM_PROVIDER: Final = "llm.provider"
LLM_SYSTEM: Final = "llm.system"
LLM_FINISH_REASON: Final = "llm.finish_reason"
LLM_TOKEN_COUNT: Final = "llm.token_count."
"""Followed by ``prompt``, ``completion`` and details of both."""
RERANKER_DOCUMENTS: Final = "reranker.output_documents."
RERANKER_QUERY: Final = "reranker.query"
OPENINFERENCE_METADATA: Final = "metadata"
OPENINFERENCE_AGENT: Final = "agent.name"
OPENINFERENCE_TOOL: Final = "tool.name"
OPENINFERENCE_TOOL_CALL_IDS: Final = ("tool_call.id", "tool.id")
OPENINFERENCE_REDACTED: Final = "__REDACTED__"
"""What stands where content is hidden."""

# --- read only: scores that others made ------------------------------------------------------------------------------
EVENT_NAME: Final = "event.name"
"""Of a log record: its event, before records had a field for it (opentelemetry-proto 1.5)."""
OPENINFERENCE_TOLD: Final[Mapping[str, str]] = {"evaluations.": ".evaluation.", "annotations.": ".annotation."}
"""What stands before and behind the position of a result; further in front ``trace.`` or ``session.``, whose it may be."""
PHOENIX_EVALUATION: Final = "Evaluation: "
"""How the span of an evaluator begins that Phoenix runs in an experiment, before its name; ``score`` and ``label`` are flat."""

# --- read only: OpenLLMetry (0.62) -----------------------------------------------------------------------------------
TRACELOOP_KIND: Final = "traceloop.span.kind"
"""``workflow``, ``task``, ``agent`` or ``tool``."""
TRACELOOP_WORKFLOW: Final = "traceloop.workflow.name"
TRACELOOP_ENTITY: Final = "traceloop.entity.name"
TRACELOOP_INPUT: Final = "traceloop.entity.input"
TRACELOOP_OUTPUT: Final = "traceloop.entity.output"
TASK_INPUT: Final = "gen_ai.task.input"
TASK_OUTPUT: Final = "gen_ai.task.output"
"""The same text as those of the entity."""
TRACELOOP_PROPERTIES: Final = "traceloop.association.properties."
"""Followed by a key."""
VECTOR_DB_RETRIEVE: Final = "vector_db_retrieve"
EXECUTE_TASK: Final = "execute_task"
"""OpenLLMetry's own operations: a retriever, and any other step."""

# --- ours: on the unit's span and on the evaluation span ------------------------------------------------------------
SCORE: Final = "spanscore.score."
LABEL: Final = "spanscore.label."
PROBABILITY: Final = "spanscore.probability."
VERDICT: Final = "spanscore.verdict"
STATUS: Final = "spanscore.status"
PENDING_REASON: Final = "spanscore.pending.reason"
"""Why a span left as ``pending``: ``deadline``, ``overflow`` (too much waited) or ``shutdown``."""
FORWARDED_UNIT: Final = "spanscore.forwarded_unit"
SAMPLING_DECISION: Final = "spanscore.sampling.decision."
"""Of a copy for who scores: true on its resource, its unit's id on its spans; and followed by a metric that took it."""
METRIC_OUTCOME: Final = "spanscore.outcome."
"""Followed by a metric that was chosen and gave no score: its outcome, after ``missing_field`` the fields."""
LEFT_OUT: Final = "spanscore.left_out."
"""Followed by a metric whose judge was shown less than half of a question, as it was too long: the share that was left out."""
METADATA: Final = "spanscore.metadata."
"""Of a unit's root, followed by a key that ``capture.metadata`` lists: what the run was called with. Rules read it wherever
the span is read again."""
RUN_END: Final = "spanscore.run.end"
RUN_CACHED: Final = "spanscore.run.cached"
"""True on the span of a model run that LangChain's cache answered: the model was not called, and no tokens were used."""
RUN_STEP_ERROR: Final = "spanscore.run.step_error"
"""True on a root where a step that has no span of its own ended in error, handled or not: rules read it with ``any_error``."""
INTERRUPTED: Final = "interrupted"
"""How the run of a LangGraph ends that waits for a person."""
SAMPLE_SOURCE: Final = "spanscore.sample.source"
"""How question and answer were found, the less sure of both: ``messages``, ``keys``, ``only_text``, ``matched``, ``object``,
``model`` or ``extract``."""
UNUSED_DOCUMENTS: Final = "spanscore.retrieval.unused_documents"
"""Documents that were retrieved and are no contexts of the sample: graded away, or in no prompt of the answer."""

# --- ours: on the evaluation span only ----------------------------------------------------------------------------
SCORED_REQUEST_MODEL: Final = "spanscore.request.model"
"""The scored application's model; ``gen_ai.request.model`` of an evaluation span is its judge's."""
METRIC_VERSION: Final = "spanscore.metric.version"
METRIC_KIND: Final = "spanscore.metric.kind"
METRIC_DIRECTION: Final = "spanscore.metric.direction"
METRIC_RANGE: Final = "spanscore.metric.range"
METRIC_PASS_AT: Final = "spanscore.metric.pass_at"
"""Lowest quality that is labelled ``pass``, [0, 1]; not there where the scale is open."""
QUALITY: Final = "spanscore.quality"
"""An attribute of the evaluation span, and the name of the histogram."""
SAMPLING_RULE: Final = "spanscore.sampling.rule"
"""Of a score, the rule that chose its unit; on a unit's root, those that matched where the dice took it for no metric."""
SAMPLING_THRESHOLD: Final = "spanscore.sampling.threshold"
SAMPLING_PROBABILITY: Final = "spanscore.sampling.probability"
EVALUATOR_ID: Final = "spanscore.evaluator.id"
"""The metric's name. Id, version and type are those of the GenAI conventions' proposal (semantic-conventions-genai 359)."""
EVALUATOR_VERSION: Final = "spanscore.evaluator.version"
"""The metric's version, the judge's model and the number of votes, with slashes between: scores of two cannot be compared."""
EVALUATOR_TYPE: Final = "spanscore.evaluator.type"
"""``llm_judge``, ``deterministic`` or ``human``."""
SCORE_ID: Final = "spanscore.score.id"
SCORE_REVISION: Final = "spanscore.score.revision"
SESSION_TURNS: Final = "spanscore.session.turns"
"""Of a session's score: units that its conversation consists of, so far where it goes on."""
SESSION_END: Final = "spanscore.session.end"
"""Likewise, how it ended: ``explicit``, ``idle``, ``max_turns``, ``evicted`` or ``shutdown``. ``open`` = it goes on, and the
score is provisional: on its evaluation span alone, in no sum."""
EVALUATION_SOURCE: Final = "spanscore.evaluation.source"
"""Where a score comes from, if not from sampled traffic, which alone alerts and means read: one of those below.
Also an attribute of sums; and on the unit's span, where one of its scores is a fallback's."""
SOURCE_FALLBACK: Final = "fallback"
SOURCE_JUDGE_CHECK: Final = "judge_check"
"""Of labelled samples that a judge is asked about on a schedule; in no count of units."""
SOURCE_FEEDBACK: Final = "feedback"
"""Of units that were judged because somebody said something of them; in no count of the population."""
SOURCE_SHADOW: Final = "shadow"
"""A second judge's, asked about the same units: it is counted beside their outcomes, and never on the unit's span."""
SOURCE_EXTERNAL: Final = "external"
"""Of scores that others made and that came over the wire: of no declared scale, on instruments alone, in no count of units."""
OUTCOME: Final = "spanscore.evaluation.outcome"
APPLICABLE: Final = "spanscore.evaluation.applicable"
"""Of a metric with a condition (``applies_when``): whether it holds. Not there where nobody could say, as the judge failed."""
COMPARED: Final = "spanscore.compare.value"
"""Of sums, where ``compare`` is configured: the unit's value of what tells releases apart; ``unknown`` where it has none."""
JUDGE_MODEL: Final = "spanscore.judge.model"
JUDGE_INPUT_TOKENS: Final = "spanscore.judge.input_tokens"
JUDGE_OUTPUT_TOKENS: Final = "spanscore.judge.output_tokens"
JUDGE_COST_USD: Final = "spanscore.judge.cost_usd"
JUDGE_CALLS_ATTRIBUTE: Final = "spanscore.judge.calls"
JUDGE_CACHED_CALLS: Final = "spanscore.judge.cached_calls"
"""Of the calls, those that were answered without a request: the same answer twice is one draw, and tells no noise."""
JUDGE_INPUT_TRUNCATED_RATIO: Final = "spanscore.judge.input.truncated_ratio"
"""Largest share of a question's tokens, [0, 1), that was left out of it, as it was too long for the judge."""
JUDGE_SELF_CONTRADICTIONS_ATTRIBUTE: Final = "spanscore.judge.self_contradictions"
"""Verdicts behind the score that their own reason speaks against, in plain English forms; only where there are any. The verdict
stands."""
JUDGE_TOKEN_TYPE: Final = "spanscore.judge.token.type"
"""Of ``spanscore.judge.tokens``: ``input``, ``cached_input``, ``cache_write`` or ``output``; each token is of one type."""
JUDGE_STEP: Final = "spanscore.judge.step"
"""Of what a judge was asked (scope ``spanscore.judge``): which of the metric's questions it was."""
JUDGE_DURATION_ATTRIBUTE: Final = "spanscore.judge.duration"

# --- ours: what people say of a unit --------------------------------------------------------------------------------
FEEDBACK_KEY: Final = "spanscore.feedback_key"
"""The application's own key of a unit, such as an order's number: on the unit's span, and on labels that came by it."""
FEEDBACK_METADATA: Final = "feedback_key"
"""The same, in the metadata that a run is called with."""
ANNOTATOR: Final = "spanscore.annotator"
"""Who labelled, on a label's span and event; no score has it. ``HUMAN`` where nobody said more."""

# --- ours: the demo -----------------------------------------------------------------------------------------------
DEMO_STRETCH: Final = "spanscore.demo.stretch"
"""On the root: ``before``, ``during`` or ``after`` the broken retrieval; an application has its release there."""

# --- environment (standard) ---------------------------------------------------------------------------------------
CAPTURE_CONTENT_ENV: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""NO_CONTENT (default) | SPAN_ONLY | EVENT_ONLY | SPAN_AND_EVENT; ``true`` is read as SPAN_ONLY."""
OTLP_ENDPOINT_ENV_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
SETTINGS_ENV_PREFIX: Final = "SPANSCORE_"
DISABLED_ENV: Final = "SPANSCORE_DISABLED"

# --- environment (others') ----------------------------------------------------------------------------------------
RAGAS_DO_NOT_TRACK_ENV: Final = "RAGAS_DO_NOT_TRACK"
"""``true``: ragas reports no use of itself; else one HTTP request per batch of scores. Read once, when it first reports."""
KUBERNETES_ENV: Final = "KUBERNETES_SERVICE_HOST"
"""Set by Kubernetes in every container."""
DEEPEVAL_TELEMETRY_OPT_OUT_ENV: Final = "DEEPEVAL_TELEMETRY_OPT_OUT"
"""``YES`` (what all releases understand): DeepEval reports no use of itself. Read at each report."""


# --- instruments ----------------------------------------------------------------------------------------------------

# Instruments, and the attributes that only they have.

# --- ours ---------------------------------------------------------------------------------------------------------
QUALITY_HISTOGRAM: Final = "spanscore.quality"
QUALITY_BUCKETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Literals: computed boundaries came out as ``le="0.30000000000000004"``."""
SCORED: Final = "spanscore.scored"
WEIGHT: Final = "spanscore.weight"
WEIGHT_QUALITY: Final = "spanscore.weight.quality"
WEIGHT_QUALITY2: Final = "spanscore.weight.quality2"
WEIGHT2: Final = "spanscore.weight2"
WEIGHT2_QUALITY: Final = "spanscore.weight2.quality"
WEIGHT2_QUALITY2: Final = "spanscore.weight2.quality2"
MISSING_WEIGHT: Final = "spanscore.missing.weight"
MISSING_WEIGHT2: Final = "spanscore.missing.weight2"
APPLICABLE_WEIGHT: Final = "spanscore.applicable.weight"
APPLICABLE_WEIGHT2: Final = "spanscore.applicable.weight2"
COMPARED_MISSING_WEIGHT: Final = "spanscore.compare.missing.weight"
COMPARED_MISSING_WEIGHT2: Final = "spanscore.compare.missing.weight2"
ELIGIBLE: Final = "spanscore.eligible"
EVALUATIONS: Final = "spanscore.evaluations"
PENDING: Final = "spanscore.evaluation.pending"
JUDGE_CALLS: Final = "spanscore.judge.calls"
JUDGE_TOKENS: Final = "spanscore.judge.tokens"
JUDGE_COST: Final = "spanscore.judge.cost"
JUDGE_DURATION: Final = "spanscore.judge.duration"
JUDGE_ERRORS: Final = "spanscore.judge.errors"
JUDGE_CALLS_WITHOUT_USAGE: Final = "spanscore.judge.calls_without_usage"
JUDGE_SELF_CONTRADICTIONS: Final = "spanscore.judge.self_contradictions"
JUDGE_QUEUE_DURATION: Final = "spanscore.judge.queue.duration"
JUDGE_CONCURRENCY_LIMIT: Final = "spanscore.judge.concurrency.limit"
JUDGE_ACTIVE_CALLS: Final = "spanscore.judge.active_calls"
JUDGE_QUEUE_SIZE: Final = "spanscore.judge.queue.size"
JUDGE_CIRCUIT_BREAKER_STATE: Final = "spanscore.judge.circuit_breaker.state"
JUDGE_THROTTLED: Final = "spanscore.judge.throttled"
JUDGE_RETRIES: Final = "spanscore.judge.retries"
JUDGE_CACHE_HITS: Final = "spanscore.judge.cache.hits"
BUDGET_SPENT: Final = "spanscore.judge.budget.spent"
BUDGET_LIMIT: Final = "spanscore.judge.budget.limit"
BUDGET_FACTOR: Final = "spanscore.judge.budget.factor"
BUDGET_UNIT: Final = "spanscore.budget.unit"
"""An attribute of the three above: ``usd``, ``tokens`` or ``calls``."""
BUDGET_WINDOW: Final = "spanscore.budget.window"
"""Likewise: the window as it is configured, ``1h``."""
JUDGE_CHECK_AGREEMENT: Final = "spanscore.judge_check.agreement"
JUDGE_CHECK_FIRST_AGREEMENT: Final = "spanscore.judge_check.first_agreement"
JUDGE_CHECK_P: Final = "spanscore.judge_check.p"
DECLINED: Final = "spanscore.declined"
ANNOTATIONS: Final = "spanscore.annotations"
ANNOTATION_CHANGES: Final = "spanscore.annotation_changes"
FEEDBACK: Final = "spanscore.feedback"
RESULT: Final = "result"
"""An attribute of it: ``judged``, ``too_late`` or ``not_kept``; and of what is collected: ``written``, ``folded``, ``lost``."""
COLLECTED_CASES: Final = "spanscore.collect.cases"
QUEUE_SIZE: Final = "spanscore.queue.size"
QUEUE_CAPACITY: Final = "spanscore.queue.capacity"
HOLD_UNITS: Final = "spanscore.hold.units"
HOLD_RELEASED: Final = "spanscore.hold.released"
HOLD_LOST: Final = "spanscore.hold.lost"
HEAD_SAMPLING: Final = "spanscore.head_sampling"
CAPTURE_UNITS: Final = "spanscore.capture.units"
CAPTURE_REFUSED: Final = "spanscore.capture.refused"
CAPTURE_ABANDONED: Final = "spanscore.capture.abandoned"
RECEIVE_REQUESTS: Final = "spanscore.receive.requests"
RECEIVE_SPANS: Final = "spanscore.receive.spans"
RECEIVE_BYTES: Final = "spanscore.receive.bytes"
RECEIVE_REFUSED: Final = "spanscore.receive.refused"
RECEIVE_REJECTED: Final = "spanscore.receive.rejected"
RECEIVE_UNREAD: Final = "spanscore.receive.unread"
UNITS_OPEN: Final = "spanscore.units.open"
UNITS_ORPHANS: Final = "spanscore.units.orphans"
UNITS_LATE: Final = "spanscore.units.late"
SPOOL_DEPTH: Final = "spanscore.spool.depth"
SPOOL_BYTES: Final = "spanscore.spool.bytes"
SPOOL_OLDEST: Final = "spanscore.spool.oldest"
SPOOL_DEAD_LETTERS: Final = "spanscore.spool.dead_letters"
REDELIVERED: Final = "spanscore.redelivered"
WORKER_LAG: Final = "spanscore.worker.lag"
WORKER_TIME_LAG: Final = "spanscore.worker.time_lag"
WORKER_DROPPED: Final = "spanscore.worker.dropped_on_revoke"
WORKER_SKIPPED: Final = "spanscore.worker.skipped"
PARTITION: Final = "messaging.destination.partition.id"
"""An attribute of the lag; standard."""

# --- of the application's models (standard) ------------------------------------------------------------------------
CLIENT_TOKEN_USAGE: Final = "gen_ai.client.token.usage"
CLIENT_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
CLIENT_TOKEN_BUCKETS: Final = tuple(4**power for power in range(14))
"""1 to 67,108,864, as the conventions advise."""
