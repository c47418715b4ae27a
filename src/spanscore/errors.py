"""Every error spanscore raises, grouped by who must act.

SpanscoreError
├── ConfigurationError (ValueError)   the operator: a setting, a parameter, a name
│   └── NotReadyError                 … right, but this environment lacks a key or a library
│       └── MissingExtraError         … an optional library is not installed
├── SampleError (ValueError)          the sender: a sample or conversation that cannot be
└── JudgeError                        the judge: carries a low-cardinality ``error_type``
    ├── JudgeUnavailable              … could not be reached or refused; asking again may pass
    ├── JudgeTimeout                  … did not answer before its deadline
    └── JudgeUnparseable              … answered, but not in the asked shape, also after the one repair
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "JudgeError",
    "JudgeTimeout",
    "JudgeUnavailable",
    "JudgeUnparseable",
    "MissingExtraError",
    "NotReadyError",
    "SampleError",
    "SpanscoreError",
]


class SpanscoreError(Exception):
    """The root of all errors raised by spanscore."""


class ConfigurationError(SpanscoreError, ValueError):
    """A setting is wrong: the message names the key, the value and what is allowed."""


class NotReadyError(ConfigurationError):
    """Nothing is wrong with the setting: this environment lacks what it needs, and the message says what to add."""


class MissingExtraError(NotReadyError):
    """An optional library is missing: the message holds the ``pip install`` line that adds it."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed. Install it with: pip install 'spanscore[{extra}]'")


class SampleError(SpanscoreError, ValueError):
    """A sample cannot be: the message says which message or field, and why."""


class JudgeError(SpanscoreError):
    """The judge gave no usable answer. Never turned into a score.

    Args:
        message: what happened, without quoting the prompt or the answer.
        error_type: low-cardinality name for ``error.type``; the class's own when None.
        retry_after_s: seconds the judge asked us to wait, when it said so.
    """

    error_type = "judge_error"

    def __init__(self, message: str, *, error_type: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.error_type = error_type or type(self).error_type
        self.retry_after_s = retry_after_s


class JudgeUnavailable(JudgeError):
    """The judge could not be reached, refused for load, or failed on its side; asking again may pass."""

    error_type = "unavailable"


class JudgeTimeout(JudgeError):
    """The judge did not answer before its deadline."""

    error_type = "timeout"


class JudgeUnparseable(JudgeError):
    """The judge answered, but not in the asked shape, also after the one repair."""

    error_type = "unparseable"
