"""Read topics: the driver plans with the brokers' admin API, executors read."""
