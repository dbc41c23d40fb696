import pulsarish
from pulsarish.schema import ProtobufNativeSchema

pulsarish.JsonSchema(5)  # E: No overload variant of "JsonSchema"
pulsarish.AvroSchema()  # E: overload variants
ProtobufNativeSchema(int)  # E: cannot be "int"
