"""Reading topics: planned on the driver by the brokers' administration, carried out in executors."""
