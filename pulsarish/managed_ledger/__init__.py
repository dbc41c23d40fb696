"""A topic's log: a chain of ledgers, the cursors that read it, the cache of its tail, and its
trimming.
"""
