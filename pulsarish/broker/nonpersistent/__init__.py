"""Non-persistent topics: what is published goes to the consumers that are connected now, and is kept nowhere."""
