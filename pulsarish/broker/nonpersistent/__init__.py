"""Non-persistent topics: messages go to the consumers that are connected now, and are not
stored.
"""
