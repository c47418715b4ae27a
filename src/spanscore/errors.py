"""Every error that spanscore raises, grouped by the person or part that can fix it.

SpanscoreError
├── ConfigurationError (ValueError)   the operator: a wrong setting, parameter or name
│   └── NotReadyError                 … the setting is right, but this environment lacks a key, a library, a file or a folder
│       ├── MissingExtraError         … an optional library is not installed
│       └── SourceUnavailable         … a worker's broker, topic or file is missing
├── SampleError (ValueError)          the sender: an invalid sample or conversation
└── JudgeError                        the judge: carries a low-cardinality ``error_type``
    ├── JudgeUnavailable              … could not be reached, or failed on its side; another attempt may succeed
    │   └── JudgeOverloaded           … refused because of load, and asks for a pause
    ├── JudgeOutOfQuota               … refused, because the account has no credit left
    ├── JudgeTimeout                  … did not answer before its deadline
    ├── JudgeUnparseable              … answered in the wrong form, also when asked to repair the answer
    ├── JudgeRateLimited              was not asked: the question waited too long
    └── JudgeBudgetSpent              was not asked: the user's budget is spent
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

__all__ = [
    "ConfigurationError",
    "JudgeBudgetSpent",
    "JudgeError",
    "JudgeOutOfQuota",
    "JudgeOverloaded",
    "JudgeRateLimited",
    "JudgeTimeout",
    "JudgeUnavailable",
    "JudgeUnparseable",
    "MissingExtraError",
    "NotReadyError",
    "SampleError",
    "SourceUnavailable",
    "SpanscoreError",
    "writing",
]


class SpanscoreError(Exception):
    """The base class of all errors that spanscore raises."""


class ConfigurationError(SpanscoreError, ValueError):
    """A setting is wrong: the message names the key, the value and the allowed values.

    Remedy: correct the setting as described; ``spanscore check`` lists all errors of a file at once.
    """


class NotReadyError(ConfigurationError):
    """The setting is right, but this environment lacks a requirement: the message names it.

    Remedy: set the named variable, install the named library, or make the named file or folder; ``spanscore check --ready``
    fails if one is missing.
    """


class MissingExtraError(NotReadyError):
    """An optional library is missing: the message has the ``pip install`` line that adds it, quoted for every shell.

    Remedy: run that line; in a checkout, ``pip install '.[extra]'``.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f'{library} is not installed. Install it with: pip install "spanscore[{extra}]"')


class SourceUnavailable(NotReadyError):
    """A worker's source is unavailable: the message names the broker, the topic or the file, and the cause.

    Remedy: start it, or correct its address or its permissions. The worker has waited for it (``--startup-timeout``), and exits
    with 3.
    """


class SampleError(SpanscoreError, ValueError):
    """A sample or conversation is invalid: the message names the field, or the message in it, and the cause.

    Remedy: correct the row, or the code that makes the sample; nothing was scored.
    """


class JudgeError(SpanscoreError):
    """The judge gave no usable answer, so there is no score.

    spanscore's judges have these values of ``error_type``; a user's judge may have others.

    - Unusable answer: ``declined``, ``cut``, ``too_long``, ``too_big``, ``unparseable``, ``empty``.

    - Failed request: ``no_such_model``, ``not_allowed``, ``connection``, ``unavailable``, ``timeout``, ``http_<status>``.

    - Question that waited too long: ``rate_limit``, ``quota``, ``breaker_open``.

    - Batch: ``batch_expired``, ``batch_cancelled``, ``batch_failed``.

    - Spent budget: ``budget``. Lexical judge: ``unknown_step``. Fewer than two jurors that answered: ``jury_incomplete``.

    - Every other error: ``judge_error``.

    Remedy: look at ``error.type`` on the evaluation span, and at the account's row of ``scorer.status()``.

    Args:
        message: the error, without a quotation of the prompt or the answer.
        error_type: low-cardinality name for ``error.type``; the class's own when None.
        retry_after_s: pause in seconds that the judge requested; None if it requested no pause.
        headers: headers of the refusal with the account's limits, names in lower case; for the account limiter.
        input_tokens: tokens of the question that are billed although the answer was cut or filtered; 0 if the judge reports
            none.
        output_tokens: tokens of the answer that are billed although it was cut or filtered; 0 if the judge reports none.

    Attributes:
        request_sent: whether a request was sent; only a request may be billed.
        response_started: whether the answer broke off; the provider may bill an unknown amount for it.
    """

    error_type = "judge_error"
    request_sent = True
    response_started = False

    def __init__(
        self,
        message: str,
        *,
        error_type: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        super().__init__(message)
        self.error_type = error_type or type(self).error_type
        self.retry_after_s = retry_after_s
        self.headers = headers or {}
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens

    def without_request(self) -> Self:
        """Return a copy for callers that shared this request and sent none, because a raised error carries a traceback."""
        unsent = type(self).__new__(type(self), *self.args)
        unsent.__dict__.update(self.__dict__, request_sent=False)
        return unsent


class JudgeUnavailable(JudgeError):
    """The judge could not be reached, or failed on its side; another attempt may succeed.

    Remedy: none at first, because the question is repeated. If the breaker stays open, look at the provider, or configure a
    ``fallback``.
    """

    error_type = "unavailable"


class JudgeOverloaded(JudgeUnavailable):
    """The judge refused because of load (429, 529, 503 with ``Retry-After``). The question waits, and loses no attempt.

    Remedy: ask the provider for a higher limit, or lower the sampling rates.
    """

    error_type = "http_429"


class JudgeOutOfQuota(JudgeError):
    """The account has no credit left (``insufficient_quota`` and similar errors): a person must act.

    Remedy: pay, or configure another account; the questions wait until ``queue_timeout``.
    """

    error_type = "quota"


class JudgeTimeout(JudgeError):
    """The judge did not answer before its deadline.

    Remedy: a faster model, or a longer ``judge.timeout``.
    """

    error_type = "timeout"


class JudgeUnparseable(JudgeError):
    """The judge answered in the wrong form, even when it was asked to repair its answer.

    Remedy: another ``judge.structured``, or another model.
    """

    error_type = "unparseable"


class JudgeRateLimited(JudgeError):
    """The question waited for longer than ``judge.queue_timeout``, because of a rate limit or another cause.

    ``error_type`` names the cause. ``rate_limit``: the provider's limits were reached; ``breaker_open``: the judge is down;
    ``quota``: the account has no credit left.

    Remedy: for ``rate_limit`` lower the sampling rates, or ask the provider for higher limits; for ``breaker_open`` wait, or
    configure a ``judge.fallback``; for ``quota`` pay the provider.
    """

    error_type = "rate_limit"
    request_sent = False


class JudgeBudgetSpent(JudgeError):
    """The question was not sent: the budget of its window is spent.

    Remedy: none, if that is intended; otherwise raise ``judge.budget``, or use a cheaper model.
    """

    error_type = "budget"
    request_sent = False


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn an ``OSError`` while a file is written into a ``ConfigurationError`` that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error
