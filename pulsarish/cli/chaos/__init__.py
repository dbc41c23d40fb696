"""``pulsarish chaos``: real processes are broken while numbered messages are published; what was acknowledged must be there, in order."""
