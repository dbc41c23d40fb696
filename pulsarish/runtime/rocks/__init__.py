"""The key-value index on RocksDB, and the evidence that it is complete."""
