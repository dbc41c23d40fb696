"""Fuzzers: hostile input to every port of real processes, and damage to their files.

See ``docs/verification.md``.

Run one with ``python -m tests.fuzz binary --seconds 60``, all of them with ``make fuzz``.
"""
