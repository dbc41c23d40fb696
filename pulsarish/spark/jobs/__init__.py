"""Offline jobs over ledgers, which an operator runs on Spark now and then, outside the cluster.

They access metadata by its URL and not through the brokers' admin API. Orphan ledgers, records of
cursors and the bookies that are missing are in metadata only, and a job must also work while no
broker runs. All jobs only read, except ``removal``.
"""
