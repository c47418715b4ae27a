"""What the protocols promise, as test classes to subclass: one suite for the built-in parts and for a user's own.

A suite needs no test runner: its checks are methods that take nothing and assert; pytest and unittest collect them.
"""
