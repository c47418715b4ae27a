"""Timebox: a hook has a deadline per call, the work around it has none, and a hanging hook is left behind."""

import asyncio
import threading
from contextlib import contextmanager, suppress

import pytest

from spanscore.core import loop
from spanscore.core.context import is_judging
from spanscore.core.score import Outcome
from spanscore.core.timebox import HookTimeout, Timebox

LONG_S = 60.0


@contextmanager
def a_hook_that_hangs(box):
    """Return a hook that hangs if its argument is True."""
    go_on = threading.Event()
    hook = box.hook(lambda hangs: go_on.wait(30) if hangs else "done", "the filter", Outcome.METRIC_ERROR)
    try:
        yield hook, go_on
    finally:
        go_on.set()


def awaited(box, call):
    return loop.run(box.run_async(call))


def directly(box, call):
    return box.run(call)


WAYS = pytest.mark.parametrize("run", [awaited, directly])


@WAYS
def test_work_gives_back_what_it_makes_or_raises(run):
    box = Timebox(LONG_S)

    assert run(box, lambda: (threading.current_thread().name[:14], is_judging())) == ("spanscore-hook", True)
    with pytest.raises(TimeoutError, match="its own"):
        run(box, lambda: (_ for _ in ()).throw(TimeoutError("its own")))


@WAYS
def test_a_hook_that_hangs_is_left_behind(run):
    box = Timebox(0.05)
    with a_hook_that_hangs(box) as (hook, _), pytest.raises(HookTimeout) as caught:
        run(box, lambda: hook(True))

    assert (caught.value.outcome, caught.value.reason) == (
        Outcome.METRIC_ERROR,
        "the filter did not return within 0.05 s",
    )


@WAYS
def test_work_between_hooks_is_not_against_the_clock(run):
    box = Timebox(0.02)
    hook, slow = box.hook(lambda given: given, "the filter", Outcome.METRIC_ERROR), threading.Event()

    assert run(box, lambda: [hook(1), slow.wait(0.1), hook(2)]) == [1, False, 2]


def test_a_caller_that_waits_does_so_once_for_a_call_that_hangs():
    box = Timebox(0.05)
    begun = []
    with a_hook_that_hangs(box) as (hook, go_on):
        with pytest.raises(HookTimeout):
            box.run(lambda: hook(True))
        with pytest.raises(HookTimeout):
            box.run(lambda: begun.append(hook(False)))
        assert begun == []

        go_on.set()
        while hook.hanging:
            go_on.wait(0.01)

        assert box.run(lambda: hook(False)) == "done"


def test_a_hook_of_which_many_calls_hang_is_not_called_until_one_returns():
    box = Timebox(0.05)
    with a_hook_that_hangs(box) as (hook, go_on):

        async def four():
            return await asyncio.gather(*[box.run_async(lambda: hook(True)) for _ in range(4)], return_exceptions=True)

        assert [type(one) for one in loop.run(four())] == [HookTimeout] * 4
        with pytest.raises(HookTimeout):
            awaited(box, lambda: hook(False))
        go_on.set()
        while hook.hanging:
            go_on.wait(0.01)

        assert awaited(box, lambda: hook(False)) == "done"


def test_what_was_left_behind_does_no_more_work():
    box, done, ended = Timebox(0.05), threading.Event(), threading.Event()
    with a_hook_that_hangs(box) as (hook, go_on):

        def work():
            with suppress(HookTimeout):
                hook(True)
                done.set()
            ended.set()

        with pytest.raises(HookTimeout):
            box.run(work)
        go_on.set()
        assert ended.wait(10)

    assert not done.is_set()


def test_outside_of_a_box_a_hook_is_the_function():
    assert Timebox().hook(str.upper, "the redactor", Outcome.REDACTION_ERROR)("a") == "A"
