"""Publishing to a topic: who may do it, and which sends are duplicates."""
