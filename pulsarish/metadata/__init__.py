"""The metadata store: a tree of versioned nodes with ZooKeeper's meaning, and the typed records that lie in it."""
