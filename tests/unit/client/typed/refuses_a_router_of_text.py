import pulsarish

client = pulsarish.Client("pulsarish://localhost")
client.create_producer("a", message_router=lambda message, count: "a")  # E: int], str]"
client.subscribe("a", "b").acknowledge("c")  # E: Argument 1 to "acknowledge"
