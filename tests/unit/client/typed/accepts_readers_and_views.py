from typing import assert_type

import pulsarish

client = pulsarish.Client("pulsarish://localhost")
reader = client.create_reader(
    "words", pulsarish.MessageId.earliest, schema=pulsarish.StringSchema()
)
assert_type(reader, pulsarish.Reader[str])
assert_type(reader.read_next().value(), str)
for message in reader:
    assert_type(message, pulsarish.Message[str])
plain = client.create_reader("words", pulsarish.MessageId.latest)
assert_type(plain, pulsarish.Reader[bytes])
view = client.create_table_view("words", schema=pulsarish.StringSchema())
assert_type(view, pulsarish.TableView[str])
assert_type(view["a"], str)
assert_type(view.get("a"), str | None)
assert_type(dict(view.items()), dict[str, str])
view.for_each(lambda key, value: print(key, value.upper()))
assert_type(client.create_table_view("words").get("a"), bytes | None)
