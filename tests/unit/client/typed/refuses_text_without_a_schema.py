import pulsarish

client = pulsarish.Client("pulsarish://localhost")
client.create_producer("words").send("one")  # E: expected "bytes | None"
