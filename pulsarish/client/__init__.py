"""The SDK: an asyncio core, and the blocking face over it with the names of Apache Pulsar's own
Python client.
"""
