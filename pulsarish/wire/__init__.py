"""Bytes and values: how records, entries and messages are written on the wire and on disk.

No I/O.
"""
