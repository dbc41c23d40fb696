from pulsarish.schema import Array, Integer, Long, Map, Record, String


class Line(Record):
    article: String = String()


class Order(Record):
    number: Long = Long(required=True)
    note: String = String()
    first: Line = Line()
    lines: Array[Line] = Array(Line())
    sizes: Map[int] = Map(Integer())


class Express(Order):
    hours: Integer = Integer()


order = Order(number=1, note=None, first=Line(), lines=[Line(article="tea")], sizes={"a": 5})
print(Order().number + 5, order.lines[0].article.upper(), Express(number=1, hours=5).hours + 1)
Order(number="no")  # E: expected "int | None"
Order(nmber=1)  # E: Unexpected keyword argument "nmber"
Order(lines=[5])  # E: List item 0
Order(first="tea")  # E: expected "Line"
Express(number=1, hours="no")  # E: expected "int | None"
