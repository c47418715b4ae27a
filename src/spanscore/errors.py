"""Every error spanscore raises, grouped by who must act.

SpanscoreError
├── ConfigurationError (ValueError)   the operator: a setting, a parameter, a name
│   └── NotReadyError                 … is right, but this environment lacks a key or a library
│       ├── MissingExtraError         … an optional library is not installed
│       └── SourceUnavailable         … what a worker is to read from is not there
├── SampleError (ValueError)          the sender: an invalid sample or conversation
└── JudgeError                        the judge: carries a low-cardinality ``error_type``
    ├── JudgeUnavailable              … could not be reached, or failed on its side; asking again may pass
    │   └── JudgeOverloaded           … refused for load: it asks us to wait
    ├── JudgeOutOfQuota               … refused, as its account has no money left
    ├── JudgeTimeout                  … did not answer before its deadline
    ├── JudgeUnparseable              … answered in the wrong form, and again when asked to repair it
    ├── JudgeRateLimited              was not asked: waiting for it took too long
    └── JudgeBudgetSpent              was not asked: what the user allowed is spent
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
    """The root of all errors raised by spanscore: what catches it catches all of them."""


class ConfigurationError(SpanscoreError, ValueError):
    """A setting is wrong: the message names the key, the value and what is allowed.

    What to do: write what the message says; ``spanscore check`` tells all that is wrong in a file at once.
    """


class NotReadyError(ConfigurationError):
    """The setting is right, but this environment lacks what it needs: the message says what to add.

    What to do: set the variable, or install the library, that is named; ``spanscore check --ready`` fails where one is missing.
    """


class MissingExtraError(NotReadyError):
    """An optional library is missing: the message holds the ``pip install`` line that adds it, quoted as every shell takes it.

    What to do: run that line; in a checkout, ``pip install '.[extra]'``.
    """

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f'{library} is not installed. Install it with: pip install "spanscore[{extra}]"')


class SourceUnavailable(NotReadyError):
    """What a worker is to read from is not there: the message names the broker, the topic or the file, and why.

    What to do: start it, or mend its address or its rights; the worker has waited for it (``--startup-timeout``), and exits
    with 3.
    """


class SampleError(SpanscoreError, ValueError):
    """A sample or conversation is invalid: the message names the field, or the message in it, and says why.

    What to do: mend the row, or what makes the sample; nothing was scored.
    """


class JudgeError(SpanscoreError):
    """The judge gave no usable answer. Never turned into a score.

    What to do: look at ``error.type`` on the evaluation span, and at the account's row of ``scorer.status()``.

    Its type is one of a closed list: ``declined``, ``cut``, ``too_long``, ``no_such_model``, ``not_allowed``, ``connection``,
    ``unavailable``, ``timeout``, ``too_big``, ``unparseable``, ``empty``, ``http_<status>``; ``rate_limit``, ``quota`` and
    ``breaker_open`` of what it waited for; ``batch_expired``, ``batch_cancelled`` and ``batch_failed`` of a batch; ``budget``;
    ``unknown_step`` of the lexical judge; ``judge_error`` for all that is none of these. A judge of your own may raise others.

    Args:
        message: what happened, without quoting the prompt or the answer.
        error_type: low-cardinality name for ``error.type``; the class's own when None.
        retry_after_s: seconds that the judge asked us to wait; None where it did not.
        headers: what the refusal said of the account's limits, names in lower case; for the gate.
        input_tokens: that are billed all the same, of an answer that was cut or filtered; 0 when the judge does not tell.
        output_tokens: likewise.

    Attributes:
        request_sent: whether a request was made; where none was, nothing can be billed.
        response_started: whether the answer broke off; it may be billed, and how much nobody says.
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
        """Return the error as those get it in whose name no request was made; a new one, as raised it has a traceback."""
        told = type(self).__new__(type(self), *self.args)
        told.__dict__.update(self.__dict__, request_sent=False)
        return told


class JudgeUnavailable(JudgeError):
    """The judge could not be reached, or failed on its side; asking again may pass.

    What to do: nothing at first, it is asked again; where its breaker stays open, look at the provider, or name a ``fallback``.
    """

    error_type = "unavailable"


class JudgeOverloaded(JudgeUnavailable):
    """The judge refused for load (429, 529, 503 with ``Retry-After``): the question waits, and has lost no attempt.

    What to do: ask the provider for more, or lower the sampling rates.
    """

    error_type = "http_429"


class JudgeOutOfQuota(JudgeError):
    """The account has no money left (``insufficient_quota`` and its like): a person must act.

    What to do: pay, or name another account; the questions wait until ``queue_timeout``.
    """

    error_type = "quota"


class JudgeTimeout(JudgeError):
    """The judge did not answer before its deadline.

    What to do: a faster model, or a longer ``judge.timeout``.
    """

    error_type = "timeout"


class JudgeUnparseable(JudgeError):
    """The judge answered in the wrong form, and again when it was asked to repair its answer.

    What to do: another ``judge.structured``, or another model.
    """

    error_type = "unparseable"


class JudgeRateLimited(JudgeError):
    """The question waited for longer than ``judge.queue_timeout``. ``error_type`` names the cause.

    ``rate_limit``: the provider's limits were reached; ``breaker_open``: the judge is down; ``quota``: its account has no
        money.

    What to do: for ``rate_limit`` lower the sampling rates, or ask the provider for more; for ``breaker_open`` wait, or have a
    ``judge.fallback``; for ``quota`` pay the provider.
    """

    error_type = "rate_limit"
    request_sent = False


class JudgeBudgetSpent(JudgeError):
    """The question was not sent: the budget of its window is spent.

    What to do: nothing, if that is what it is for; else raise ``judge.budget``, or ask a cheaper model.
    """

    error_type = "budget"
    request_sent = False


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Turn what the system says of a file that cannot be written into a ``ConfigurationError`` that names it."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error
