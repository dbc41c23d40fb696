"""Streams and calls on gRPC, with the C library and with grpclib."""
