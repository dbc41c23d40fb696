"""The metadata store: a tree of versioned nodes that behaves as ZooKeeper's, and the typed records
in it.
"""
