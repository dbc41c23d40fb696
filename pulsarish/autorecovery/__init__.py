"""The repair of lost copies: an elected auditor finds what is lacking, replication workers repair it."""
