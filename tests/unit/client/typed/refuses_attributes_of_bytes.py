import pulsarish

client = pulsarish.Client("pulsarish://localhost")
message = client.subscribe("words", "all").receive()
print(message.value().number)  # E: "bytes" has no attribute "number"
