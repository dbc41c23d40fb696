import pulsarish

client = pulsarish.Client("pulsarish://localhost")
view = client.create_table_view("words", schema=pulsarish.StringSchema())
size: int = view["a"]  # E: expression has type "str"
word: str = view.get("a")  # E: expression has type "str | None"
for key, value in view.items():
    print(key, value / 2)  # E: Unsupported operand types
