"""A relay for clients that can reach only one address.

It answers lookups and passes connections on to brokers.
"""
