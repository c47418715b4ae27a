"""The contract suites need no test runner of their own choice."""

from __future__ import annotations

import re
import subprocess
import sys

SUITES = """
import sys, unittest
sys.modules["pytest"] = None  # not to be had
from spanscore.testing import MemorySink, QueueContract, SinkContract
from spanscore.pipeline.queues import MemoryQueue

class TestSink(SinkContract, unittest.TestCase):
    quotes = True
    def make(self): return MemorySink()

class TestQueue(QueueContract, unittest.TestCase):
    def make(self): return [].append

unittest.main(argv=["suites"], verbosity=2)
"""


def test_unittest_runs_them_where_there_is_no_pytest() -> None:
    ran = subprocess.run([sys.executable, "-c", SUITES], check=False, capture_output=True, text=True)

    matches = dict(re.findall(r"^(test_\w+) .*\n.* \.\.\. (\w+)$", ran.stderr, flags=re.MULTILINE))
    assert matches["test_shutdown_twice_is_as_good_as_once"] == "ok"
    assert matches["test_it_is_a_queue"] == "FAIL"
