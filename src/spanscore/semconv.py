"""Every name that crosses a wire: attributes, span names, scopes, instruments, events, environment variables.

*Standard* names are defined by the OpenTelemetry GenAI semantic conventions (v1.42-dev, all in Development) or by OpenInference
(0.1.42). *Ours* are spanscore's own names, under ``spanscore.*``. *Read only* names are written by other libraries. No other
module spells one of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# --- scopes -------------------------------------------------------------------------------------------------------
SCOPE: Final = "spanscore"
"""Ours: scope of evaluation spans, which are never eligible, in this process or another."""
CAPTURE_SCOPE: Final = "spanscore.capture"
"""Ours: spans that our callback handler made from a live run."""
JUDGE_SCOPE: Final = "spanscore.judge"
"""Ours: spans of judge calls, in traces of their own; never eligible."""
EVALUATOR_SCOPES: Final = frozenset({SCOPE, JUDGE_SCOPE})
"""Scopes of spans about an evaluation, which are never scored."""
OWN_SCOPES: Final = EVALUATOR_SCOPES | {CAPTURE_SCOPE}
"""Scopes of all spans that spanscore creates."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""Schema of the GenAI conventions that define the names below; on every scope of spanscore."""

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
"""Older name of ``cache_write``, which Phoenix 20 and Langfuse read: both names are written."""
USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
PROMPT_VERSION: Final = "gen_ai.prompt.version"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
"""Class of the exception, on the event ``exception`` of a span; stable."""
EXCEPTION_MESSAGE: Final = "exception.message"
"""Message of the exception, on the event ``exception`` of a span; stable."""
SERVICE_NAME: Final = "service.name"
"""Name of the application's service, on the resource; stable."""

# Content: exported only if the configuration allows it.
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
"""Ours: the texts passed to ``spanscore.references(...)``, as JSON."""
CONTENT_CUT: Final = "spanscore.content.cut"
"""True on a translated span if an attribute limit cut JSON content of it; the cut content is left out."""
HISTORY: Final = "spanscore.history"
"""Ours: the messages that a message store added to the run, in the form of ``gen_ai.input.messages``."""

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
"""Attributes that quote prompts, answers or documents. On the wire each is a string (JSON if it is structured)."""
CONTENT_PREFIXES: Final = (OPENINFERENCE_DOCUMENTS,)
"""Prefixes of flat attributes that quote content; each attribute has one value, as plain text."""


def is_content(name: str) -> bool:
    """Return whether an attribute quotes prompts, answers or documents."""
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
VECTOR_DB: Final = "vector_db"
"""Ours: a request to a vector database. A search has documents and no question."""
RERANK: Final = "rerank"
"""Ours: OpenInference's kind RERANKER."""
NOT_READ_OPERATIONS: Final = frozenset(
    {EVALUATION, CREATE_AGENT, EMBEDDINGS, "create_memory", "update_memory", "upsert_memory", "delete_memory"}
)
"""Operations whose spans have no question and no answer. Such spans are not read, and alone make no unit."""
WORDLESS_REQUESTS: Final = frozenset(
    f"{prefix}{name}"
    for name in ("embed", "embedding", "rerank", "image_generation", "speech", "transcription", "moderation")
    for prefix in ("", "a")
)
"""Requests of LiteLLM, and Langtrace's ``embed``, without a prompt and answer in words; they are treated like `EMBEDDINGS`."""
MODEL_OPERATIONS: Final = frozenset({CHAT, TEXT_COMPLETION, GENERATE_CONTENT})
"""Operations in which a model answers a prompt."""
WHOLE_OPERATIONS: Final = frozenset({INVOKE_AGENT, INVOKE_WORKFLOW})
"""Operations of a whole application. Both are treated alike, because instrumentations differ in their use of "agent"."""

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
"""Attributes that quote no content. A translated span keeps only these, and its content."""

# --- evaluation (standard names, GenAI conventions) ---------------------------------------------------------------
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
EVALUATION_TARGET: Final = "gen_ai.evaluation.target"
"""The agent's name, or the workflow's if the agent has no name; Logfire groups by it."""

# OpenInference's span kinds, and its evaluator form (spec/annotations.md, 2026-07-31).
OPENINFERENCE_KIND: Final = "openinference.span.kind"
OPENINFERENCE_CHAIN: Final = "CHAIN"
"""Also the kind of spans without an operation: a step, or a submitted sample."""
OPENINFERENCE_KINDS: Final[Mapping[str, str]] = {
    CHAT: "LLM",
    TEXT_COMPLETION: "LLM",
    EMBEDDINGS: "EMBEDDING",
    RETRIEVAL: "RETRIEVER",
    EXECUTE_TOOL: "TOOL",
    INVOKE_AGENT: "AGENT",
    INVOKE_WORKFLOW: OPENINFERENCE_CHAIN,
}
"""Operation → kind. Phoenix itself has no kind for ``invoke_workflow``, and shows such a root as *unknown*."""
OPENINFERENCE_EVALUATOR: Final = "EVALUATOR"
OPENINFERENCE_EVALUATION: Final = "evaluations.0.evaluation."
"""Followed by name, score, label, explanation, annotator_kind (LLM, CODE or HUMAN) or identifier."""
ANNOTATOR_HUMAN: Final = "HUMAN"
"""The annotator kind of people; also the name of an annotator without a name."""

# --- read only: older GenAI conventions (1.36 and before), and instrumentations that still write them -------------------
SYSTEM: Final = "gen_ai.system"
USAGE: Final = "gen_ai.usage."
"""Followed by the name of a number of tokens."""
USAGE_PROMPT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
USAGE_COMPLETION_TOKENS: Final = "gen_ai.usage.completion_tokens"
USAGE_CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read_input_tokens"
REQUEST_TYPE: Final = "llm.request.type"
"""The name before operations existed: ``chat``, ``completion``, ``embedding`` or ``rerank``."""
MODEL_REQUEST_PARAMETERS: Final = "model_request_parameters"
"""Pydantic AI: the tools of a model's request among its parameters, as JSON."""
REQUEST_FUNCTIONS: Final = "llm.request.functions."
"""Older OpenLLMetry, flat: followed by a position and ``name``, ``description`` or ``parameters``."""
PROMPT: Final = "gen_ai.prompt"
PROMPT_VARIABLE: Final = "gen_ai.prompt.variable."
"""Followed by a name: a value that a prompt template was filled with (GenAI conventions, newest)."""
MEMORY_QUERY: Final = "gen_ai.memory.query.text"
MEMORY_RECORDS: Final = "gen_ai.memory.records"
"""Query and result of ``search_memory``, in the forms of ``gen_ai.retrieval.query.text`` and ``gen_ai.retrieval.documents``."""
COMPLETION: Final = "gen_ai.completion"
"""One JSON, or flat: followed by a position and ``role``, ``content``, ``tool_calls.`` and so on."""
EVENT_CONTENT: Final = "gen_ai.event.content"
"""Attribute of a span event: the message, as JSON."""
BODY_SIDES: Final = ("input", "output")
"""Keys of the body of a log record of AWS's distribution; each has ``messages``."""
PROMPT_EVENT: Final = "gen_ai.content.prompt"
COMPLETION_EVENT: Final = "gen_ai.content.completion"
CHOICE_EVENT: Final = "gen_ai.choice"
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"
"""Event with content under the attribute names of spans: a log event in the conventions, a span event in Strands."""
MESSAGE_EVENTS: Final[Mapping[str, str]] = {
    f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")
}
"""Span event → the role of its message."""
SESSION_ID: Final = "session.id"
LANGSMITH_KIND: Final = "langsmith.span.kind"
"""Run type in LangSmith's OTel export. LangSmith's operation of a retriever is ``embeddings``, so the kind is read instead."""
LANGSMITH_METADATA: Final = "langsmith.metadata."
"""Followed by a key."""
VERCEL_CONTEXT: Final = "ai.settings.context."
"""Followed by a key of the runtime context, which is the metadata of Vercel's AI SDK since version 7."""

# --- read only: OpenInference (0.1.42) -------------------------------------------------------------------------------
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
LLM_INPUT_MESSAGES: Final = "llm.input_messages."
LLM_OUTPUT_MESSAGES: Final = "llm.output_messages."
"""Flat: followed by a position and ``message.`` ``role``, ``content``, ``contents.``, ``tool_calls.`` and so on."""
LLM_PROMPTS: Final = "llm.prompts"
LLM_TOOLS: Final = "llm.tools."
"""Flat: followed by a position and ``tool.json_schema``, ``tool.name`` or ``tool.description``."""
LLM_MODEL_NAME: Final = "llm.model_name"
LLM_REQUEST_MODEL_NAME: Final = "llm.request.model_name"
LLM_RESPONSE_MODEL_NAME: Final = "llm.response.model_name"
LLM_PROVIDER: Final = "llm.provider"
LLM_SYSTEM: Final = "llm.system"
LLM_FINISH_REASON: Final = "llm.finish_reason"
LLM_TOKEN_COUNT: Final = "llm.token_count."
"""Followed by ``prompt``, ``completion`` and details of these two."""
RERANKER_DOCUMENTS: Final = "reranker.output_documents."
RERANKER_QUERY: Final = "reranker.query"
OPENINFERENCE_METADATA: Final = "metadata"
OPENINFERENCE_AGENT: Final = "agent.name"
OPENINFERENCE_TOOL: Final = "tool.name"
OPENINFERENCE_TOOL_CALL_IDS: Final = ("tool_call.id", "tool.id")
OPENINFERENCE_REDACTED: Final = "__REDACTED__"
"""Text that replaces hidden content."""

# --- read only: scores of other evaluators ---------------------------------------------------------------------------
EVENT_NAME: Final = "event.name"
"""Attribute with a log record's event name, before records had a field for the name (opentelemetry-proto 1.5)."""
OPENINFERENCE_RESULTS: Final[Mapping[str, str]] = {"evaluations.": ".evaluation.", "annotations.": ".annotation."}
"""Prefix → suffix around the position of a result. ``trace.`` or ``session.`` may precede the prefix, for their results."""
PHOENIX_EVALUATION: Final = "Evaluation: "
"""Prefix of the span name of an evaluator in a Phoenix experiment, whose ``score`` and ``label`` are flat."""

# --- read only: OpenLLMetry (0.62) -----------------------------------------------------------------------------------
TRACELOOP_KIND: Final = "traceloop.span.kind"
"""``workflow``, ``task``, ``agent`` or ``tool``."""
TRACELOOP_WORKFLOW: Final = "traceloop.workflow.name"
TRACELOOP_ENTITY: Final = "traceloop.entity.name"
TRACELOOP_INPUT: Final = "traceloop.entity.input"
TRACELOOP_OUTPUT: Final = "traceloop.entity.output"
TASK_INPUT: Final = "gen_ai.task.input"
TASK_OUTPUT: Final = "gen_ai.task.output"
"""``gen_ai.task.input`` and ``gen_ai.task.output`` have the same texts as ``traceloop.entity.input`` and ``….output``."""
TRACELOOP_PROPERTIES: Final = "traceloop.association.properties."
"""Followed by a key."""
VECTOR_DB_RETRIEVE: Final = "vector_db_retrieve"
EXECUTE_TASK: Final = "execute_task"
"""OpenLLMetry's own operations: a retriever (``vector_db_retrieve``), and any other step (``execute_task``)."""
LLAMA_INDEX_SCOPE: Final = "opentelemetry.instrumentation.llamaindex"
"""Scope of OpenLLMetry's spans of LlamaIndex: a ``workflow`` for each run, a ``task`` for each step below it."""

# --- ours: on the unit's span and on the evaluation span ------------------------------------------------------------
SCORE: Final = "spanscore.score."
LABEL: Final = "spanscore.label."
PROBABILITY: Final = "spanscore.probability."
VERDICT: Final = "spanscore.verdict"
STATUS: Final = "spanscore.status"
PENDING_REASON: Final = "spanscore.pending.reason"
"""Reason why a span was exported as ``pending``: ``deadline``, ``overflow`` (the hold was full) or ``shutdown``."""
FORWARDED_UNIT: Final = "spanscore.forwarded_unit"
SAMPLING_DECISION: Final = "spanscore.sampling.decision."
"""On a unit's copy for another process, followed by a metric that sampled it: the threshold (hex digits) and the rule."""
METRIC_OUTCOME: Final = "spanscore.outcome."
"""Followed by a metric that sampled the unit and gave no score: its outcome; after ``missing_field`` also the fields."""
LEFT_OUT: Final = "spanscore.left_out."
"""Followed by a metric whose judge got less than half of a question that was too long: the share left out, (.5, 1)."""
METADATA: Final = "spanscore.metadata."
"""On a unit's root, followed by a key of ``capture.metadata``: the run's metadata value. Rules read it wherever the span is
read again.
"""
RUN_END: Final = "spanscore.run.end"
RUN_CACHED: Final = "spanscore.run.cached"
"""True on the span of a model run that LangChain's cache answered: the model was not called, and no tokens were used."""
RUN_STEP_ERROR: Final = "spanscore.run.step_error"
"""True on a root if a step without a span of its own ended in an error, handled or not; rules read it with ``any_error``."""
INTERRUPTED: Final = "interrupted"
"""Status of a LangGraph run that waits for a person."""
SAMPLE_SOURCE: Final = "spanscore.sample.source"
"""How the question or the answer was found, whichever is less certain. From certain to uncertain: ``extract`` (the configured
place or function), ``messages``, ``keys``, ``only_text``, ``matched``, ``object``, ``model``.
"""
UNUSED_DOCUMENTS: Final = "spanscore.retrieval.unused_documents"
"""Number of retrieved documents that are no contexts of the sample: graded as irrelevant, or in no prompt of the answer."""
IMAGES_LEFT_OUT: Final = "spanscore.sample.images_left_out"
"""Number of images of the sample that are left out: above ``limits.image_bytes``, by ``capture.images``, or not recorded."""

# --- ours: on the evaluation span only ----------------------------------------------------------------------------
SCORED_REQUEST_MODEL: Final = "spanscore.request.model"
"""The scored application's model; ``gen_ai.request.model`` of an evaluation span is the judge's model."""
METRIC_VERSION: Final = "spanscore.metric.version"
METRIC_KIND: Final = "spanscore.metric.kind"
METRIC_DIRECTION: Final = "spanscore.metric.direction"
METRIC_RANGE: Final = "spanscore.metric.range"
METRIC_CATEGORIES: Final = "spanscore.metric.categories"
"""All categories of a categorical metric; missing for other kinds. The score's category is its label."""
METRIC_PASS_AT: Final = "spanscore.metric.pass_at"
"""Lowest quality with the label ``pass``, [0, 1]; missing if the scale is open."""
QUALITY: Final = "spanscore.quality"
"""An attribute of the evaluation span, and the name of the histogram."""
SAMPLING_RULE: Final = "spanscore.sampling.rule"
"""On a score: the rule that sampled its unit. On a root that no metric sampled: the rules that matched."""
SAMPLING_THRESHOLD: Final = "spanscore.sampling.threshold"
SAMPLING_PROBABILITY: Final = "spanscore.sampling.probability"
EVALUATOR_ID: Final = "spanscore.evaluator.id"
"""The metric's name. Id, version and type are from a proposal for the GenAI conventions (semantic-conventions-genai 359)."""
EVALUATOR_VERSION: Final = "spanscore.evaluator.version"
"""Metric version, judge model and number of votes, separated by slashes. Scores of different versions cannot be compared."""
EVALUATOR_TYPE: Final = "spanscore.evaluator.type"
"""``llm_judge``, ``deterministic`` or ``human``."""
SCORE_ID: Final = "spanscore.score.id"
SCORE_REVISION: Final = "spanscore.score.revision"
SESSION_TURNS: Final = "spanscore.session.turns"
"""On a session's score: number of units in the conversation so far."""
SESSION_END: Final = "spanscore.session.end"
"""On a session's score: how the session ended, ``explicit``, ``idle``, ``max_turns``, ``evicted`` or ``shutdown``.

``open``: the session continues, and the score is provisional: on its evaluation span alone, in no sum.
"""
EVALUATION_SOURCE: Final = "spanscore.evaluation.source"
"""Source of a score that is not from sampled traffic: ``fallback``, ``judge_check``, ``feedback``, ``shadow``, ``external`` or
``inner``. Alerts and means leave such scores out.

It is also an attribute of sums, and of the unit's span if one of its scores is from a fallback, or if it is an inner unit.
"""
SOURCE_FALLBACK: Final = "fallback"
SOURCE_JUDGE_CHECK: Final = "judge_check"
"""Scores of labelled samples that a judge scores on a schedule; in no count of units."""
SOURCE_FEEDBACK: Final = "feedback"
"""Scores of units that were judged because of a human label; in no count of sampled traffic."""
SOURCE_SHADOW: Final = "shadow"
"""Scores of a second judge on the same units: counted separately from their outcomes, and never on the unit's span."""
SOURCE_EXTERNAL: Final = "external"
"""Scores that other evaluators sent over OTLP: without a declared scale, on instruments alone, in no count of units."""
SOURCE_INNER: Final = "inner"
"""Scores of inner units (``units.also``), which are counted separately from the units of their traces."""
UNIT_KIND: Final = "spanscore.unit.kind"
"""On spans, scores and sums of inner units: ``retriever``, ``tool``, ``agent`` or ``chat``. Other units have none."""
UNIT_NAME: Final = "spanscore.unit.name"
"""On spans, scores and sums of inner units: the name of their entry in ``units.also``; missing if the entry has no name."""
OUTCOME: Final = "spanscore.evaluation.outcome"
APPLICABLE: Final = "spanscore.evaluation.applicable"
"""Whether the condition of a metric with ``applies_when`` holds. Missing if the judge failed on the condition."""
COMPARED: Final = "spanscore.compare.value"
"""On sums, if ``compare`` is configured: the unit's value of the compared attribute; ``unknown`` if it has none."""
JUDGE_MODEL: Final = "spanscore.judge.model"
JUDGE_INPUT_TOKENS: Final = "spanscore.judge.input_tokens"
JUDGE_OUTPUT_TOKENS: Final = "spanscore.judge.output_tokens"
JUDGE_COST_USD: Final = "spanscore.judge.cost_usd"
JUDGE_CALLS_ATTRIBUTE: Final = "spanscore.judge.calls"
JUDGE_CACHED_CALLS: Final = "spanscore.judge.cached_calls"
"""Number of calls that were answered without a request. Cached answers do not show how much the judge's answers vary."""
JUDGE_INPUT_TRUNCATED_RATIO: Final = "spanscore.judge.input.truncated_ratio"
"""Largest share of a question's tokens, [0, 1), that was left out because the question was too long for the judge."""
JUDGE_IMAGES_NOT_SHOWN: Final = "spanscore.judge.images_not_shown"
"""Largest number of images of a question that its judge did not get, because it reads no images; missing if 0."""
JUDGE_SELF_CONTRADICTIONS_ATTRIBUTE: Final = "spanscore.judge.self_contradictions"
"""Number of verdicts of the score that contradict their own reason, by English patterns; missing if 0. They are kept."""
JURY_DISAGREEMENT: Final = "spanscore.jury.disagreement"
"""Highest quality among the jurors of a score minus the lowest, [0, 1]: an attribute of the evaluation span, and the name of a
histogram. Missing for fewer than two qualities.
"""
JURY_SIZE: Final = "spanscore.jury.size"
"""Number of jurors that gave a value; the other jurors are in ``spanscore.jury.left_out``."""
JURY_MODELS: Final = "spanscore.jury.models"
"""Models of the jurors that gave a value, as they are configured."""
JURY_VALUES: Final = "spanscore.jury.values"
"""Values of the jurors on the metric's scale, in the order of ``spanscore.jury.models``."""
JURY_LEFT_OUT: Final = "spanscore.jury.left_out"
"""Model and outcome of each juror without a value, with a space between; missing if every juror gave a value."""
JUDGE_TOKEN_TYPE: Final = "spanscore.judge.token.type"
"""Attribute of ``spanscore.judge.tokens``: ``input``, ``cached_input``, ``cache_write`` or ``output``; a token has one type."""
JUDGE_STEP: Final = "spanscore.judge.step"
"""On a judge call's span (scope ``spanscore.judge``): name of the metric's question."""
JUDGE_DURATION_ATTRIBUTE: Final = "spanscore.judge.duration"

# --- ours: human labels of a unit -----------------------------------------------------------------------------------
FEEDBACK_KEY: Final = "spanscore.feedback_key"
"""The application's own key of a unit, such as an order's number: on the unit's span, and on labels that were found by it."""
FEEDBACK_METADATA: Final = "feedback_key"
"""The application's own key of a unit, in the metadata of a run's call."""
ANNOTATOR: Final = "spanscore.annotator"
"""Name of the annotator, on a label's span and event; on no score. ``HUMAN`` if none was given."""

# --- ours: the demo -----------------------------------------------------------------------------------------------
DEMO_STRETCH: Final = "spanscore.demo.stretch"
"""On the root: ``before``, ``during`` or ``after`` the broken retrieval; an application would have its release there."""

# --- environment (standard) ---------------------------------------------------------------------------------------
CAPTURE_CONTENT_ENV: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""NO_CONTENT (default) | SPAN_ONLY | EVENT_ONLY | SPAN_AND_EVENT; ``true`` is read as SPAN_ONLY."""
OTLP_ENDPOINT_ENV_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
SETTINGS_ENV_PREFIX: Final = "SPANSCORE_"
DISABLED_ENV: Final = "SPANSCORE_DISABLED"

# --- environment (of other libraries) -----------------------------------------------------------------------------
RAGAS_DO_NOT_TRACK_ENV: Final = "RAGAS_DO_NOT_TRACK"
"""``true``: ragas sends no usage reports; otherwise one HTTP request per batch of scores. Read once, at the first report."""
KUBERNETES_ENV: Final = "KUBERNETES_SERVICE_HOST"
"""Set by Kubernetes in every container."""
DEEPEVAL_TELEMETRY_OPT_OUT_ENV: Final = "DEEPEVAL_TELEMETRY_OPT_OUT"
"""``YES`` (the value that all releases accept): DeepEval sends no usage reports. Read at each report."""


# --- ours: instruments, and the attributes that only they have ------------------------------------------------------
QUALITY_HISTOGRAM: Final = "spanscore.quality"
QUALITY_BUCKETS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Literals, because computed boundaries appeared as ``le="0.30000000000000004"``."""
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
"""Attribute of the three budget instruments above: ``usd``, ``tokens`` or ``calls``."""
BUDGET_WINDOW: Final = "spanscore.budget.window"
"""Attribute of the three budget instruments above: the window as configured, ``1h``."""
JUDGE_CHECK_AGREEMENT: Final = "spanscore.judge_check.agreement"
JUDGE_CHECK_FIRST_AGREEMENT: Final = "spanscore.judge_check.first_agreement"
JUDGE_CHECK_P: Final = "spanscore.judge_check.p"
DECLINED: Final = "spanscore.declined"
ANNOTATIONS: Final = "spanscore.annotations"
ANNOTATION_CHANGES: Final = "spanscore.annotation_changes"
FEEDBACK: Final = "spanscore.feedback"
RESULT: Final = "result"
"""Attribute of ``spanscore.feedback``: ``judged``, ``too_late`` or ``not_kept``; of ``spanscore.collect.cases``: ``written``,
``folded`` or ``lost``.
"""
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
"""Attribute of the worker's lag; standard."""

# --- of the application's models (standard) ------------------------------------------------------------------------
CLIENT_TOKEN_USAGE: Final = "gen_ai.client.token.usage"
CLIENT_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
CLIENT_TOKEN_BUCKETS: Final = tuple(4**power for power in range(14))
"""1 to 67,108,864, as the conventions advise."""
