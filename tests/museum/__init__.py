"""Known defects of Apache Pulsar and Apache BookKeeper, each put before our own program: see
docs/museum.md.
"""
