import pulsarish

client = pulsarish.Client("pulsarish://localhost")
client.create_producer("a", send_timeout_ms=5)  # E: Unexpected keyword argument
client.create_producer(5)  # E: expected "str"
client.create_producer("a", schema=5)  # E: expected "Schema[
client.subscribe("a", consumer_type=5, subscription_name="b")  # E: expected "ConsumerType"
