from typing import assert_type

from google.protobuf.wrappers_pb2 import StringValue

import pulsarish
from pulsarish.schema import ProtobufNativeSchema

client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("names", schema=ProtobufNativeSchema(StringValue))
assert_type(producer, pulsarish.Producer[StringValue])
producer.send(StringValue(value="a"))
