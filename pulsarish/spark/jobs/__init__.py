"""Offline jobs over ledgers: what an operator runs now and then on Spark, beside the cluster and not in it.

They take the metadata by its URL and not through the brokers' administration: orphan ledgers, records of cursors and the bookies that are
missing are in metadata alone, and a job must also work while no broker does. Everything here only reads, but for ``removal``.
"""
