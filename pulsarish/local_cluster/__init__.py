"""A cluster of processes on this machine, and a whole server in one process."""
