"""Compaction: the newest message of each key, kept in a separate ledger next to the log, and what
readers get of it.
"""
