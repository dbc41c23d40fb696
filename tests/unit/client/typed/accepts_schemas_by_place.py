from typing import assert_type

import pulsarish

client = pulsarish.Client("pulsarish://localhost")
text = pulsarish.StringSchema()
assert_type(client.create_producer("words", "me", text, 5), pulsarish.Producer[str])
shared = pulsarish.ConsumerType.Shared
assert_type(client.subscribe("words", "all", shared, text), pulsarish.Consumer[str])
first = pulsarish.MessageId.earliest
assert_type(client.create_reader("words", first, text), pulsarish.Reader[str])
assert_type(client.create_table_view("words", None, text), pulsarish.TableView[str])
