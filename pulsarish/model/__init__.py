"""Values and rules of the log: ids, positions, names, ledger metadata, errors.

No I/O, no clock, no randomness.
"""
