"""Apache Pulsar's binary protocol in front of sessions, so that its official clients can
connect.
"""
