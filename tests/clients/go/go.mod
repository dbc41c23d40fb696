module pulsarish/tests/clients

go 1.23

require github.com/apache/pulsar-client-go v0.15.1
