from pulsarish.schema import Array, Integer, Map, Record, String


class Order(Record):
    number = Integer()
    note = String(required=True)
    tags = Array(String())
    sizes = Map(Integer())


order = Order(number=1)
order.number = "no"  # E: expression has type "str"
order.note = 5  # E: expression has type "int"
order.tags = [5]  # E: List item 0
order.sizes = {5: 5}  # E: Dict entry 0
order.nmber = 5  # E: "Order" has no attribute "nmber"
text: str = order.number  # E: expression has type "int"
number: int = order.note  # E: expression has type "str"
print(order.tags[0] + 5)  # E: Unsupported operand types
Integer(default="no")  # E: expected "int | None"
