"""The framed transport: length-prefixed frames over TCP, beside gRPC."""
