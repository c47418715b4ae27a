"""Limits from a provider's headers and from a user; by a clock that is moved by hand."""

from __future__ import annotations

import pytest

from spanscore.judges.effects.rate_limits import Buckets, TokenBucket

UTC_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
OPENAI = {"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "2", "x-ratelimit-reset-requests": "8s"}
ANTHROPIC = {
    "anthropic-ratelimit-tokens-limit": "1000",
    "anthropic-ratelimit-tokens-remaining": "200",
    "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:08Z",
}


def buckets() -> Buckets:
    return Buckets(lambda: UTC_S)


def buckets_after(headers: dict[str, str], *, sent_s: float = 0.0, now_s: float = 0.0) -> Buckets:
    """Return buckets that know this of one question."""
    made = buckets()
    made.update(headers, made.count_request(0.0, sent_s), sent_s, now_s)
    return made


def left_at_once(made: Buckets, now_s: float, *, tokens: float = 1.0) -> int:
    """Send all that may leave now."""
    sent = 0
    while sent < 1000 and made.wait_s(tokens, now_s) == 0:
        made.count_request(tokens, now_s)
        sent += 1
    return sent


def test_a_token_bucket_lets_through_what_it_holds_and_what_runs_in() -> None:
    bucket = TokenBucket(2.0, 4.0, 0.0)
    bucket.take(4.0, 0.0)

    assert (bucket.level(1.0), bucket.level(9.0), bucket.wait_s(1.0, 0.0)) == (2.0, 4.0, 0.5)


def test_more_than_a_bucket_holds_leaves_when_it_is_full() -> None:
    bucket = TokenBucket(2.0, 4.0, 0.0)
    bucket.take(4.0, 0.0)

    assert (bucket.wait_s(100.0, 0.0), bucket.wait_s(100.0, 2.0)) == (2.0, 0.0)


def test_nothing_is_held_back_where_nobody_tells() -> None:
    made = buckets_after({"content-type": "text/html", "x-ratelimit-remaining-requests": "many"})

    assert (left_at_once(made, 0.0), made.count_tokens) == (1000, False)


def test_no_more_leave_than_openai_says_are_left_and_then_as_they_come_back() -> None:
    made = buckets_after(OPENAI)

    assert left_at_once(made, 0.0) == 2
    assert made.wait_s(1.0, 0.0) == pytest.approx(1.0)
    assert left_at_once(made, 1.0) == 1


def test_no_more_tokens_leave_than_anthropic_says_are_left() -> None:
    made = buckets_after(ANTHROPIC)

    assert made.count_tokens
    assert left_at_once(made, 0.0, tokens=100.0) == 2
    assert made.wait_s(100.0, 0.0) == pytest.approx(1.0)


def test_what_was_sent_since_is_taken_off_what_an_answer_tells() -> None:
    made = buckets()
    first = made.count_request(1.0, 0.0)
    made.update(OPENAI, first, 0.0, 0.0)
    second = made.count_request(1.0, 0.0)
    made.count_request(1.0, 0.0)

    made.update({**OPENAI, "x-ratelimit-remaining-requests": "1"}, second, 0.0, 0.5)

    assert made.wait_s(1.0, 0.5) > 0


def test_an_older_answer_tells_nothing_new() -> None:
    made = buckets()
    first, second = made.count_request(1.0, 0.0), made.count_request(1.0, 0.0)
    made.update({**OPENAI, "x-ratelimit-remaining-requests": "0"}, second, 0.0, 0.1)

    made.update({**OPENAI, "x-ratelimit-remaining-requests": "9"}, first, 0.0, 0.2)

    assert made.wait_s(1.0, 0.2) > 0


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        *[("1s", 1.0), ("120ms", 0.12), ("6m0s", 360.0), ("1m30.5s", 90.5), ("1h0m1s", 3601.0), ("2", 2.0)],
        *[(f"{UTC_S + 30:.0f}", 30.0), (f"{1000 * (UTC_S + 30):.0f}", 30.0)],
        *[("1e9", 60.0), (f"{UTC_S - 5:.0f}", 60.0)],  # neither a time to wait nor a date to come: per minute, then
    ],
)
def test_every_form_of_a_reset_is_read(reset: str, seconds: float) -> None:
    headers = {**OPENAI, "x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0"}

    made = buckets_after({**headers, "x-ratelimit-reset-requests": reset})

    assert made.wait_s(1.0, 0.0) == pytest.approx(seconds)


def test_a_limit_without_a_reset_is_per_minute() -> None:
    made = buckets_after({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"})

    assert made.wait_s(1.0, 0.0) == pytest.approx(1.0)


def test_what_a_user_allows_holds_without_headers() -> None:
    made = buckets()
    made.allow("requests", 600.0)
    made.allow("tokens", 60_000.0)

    assert left_at_once(made, 0.0, tokens=10.0) == 10
    assert left_at_once(made, 1.0, tokens=500.0) == 2


def test_the_strictest_word_of_several_users_holds() -> None:
    made = buckets()
    for per_minute in (600.0, 60.0, 300.0):
        made.allow("requests", per_minute)

    assert left_at_once(made, 0.0) == 1


def test_retry_after_stops_everything_until_then() -> None:
    made = buckets()
    made.stop(20.0, 0.0)
    made.stop(5.0, 1.0)

    assert [made.wait_s(1.0, now_s) for now_s in (0.0, 6.0, 20.0)] == [20.0, 14.0, 0.0]
