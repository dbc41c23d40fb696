"""The repair of lost copies: an elected auditor finds under-replicated ledgers, replication workers
repair them.
"""
