"""Names as segments of a path, and which names there are, against the plain reading of the
rules.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsarish.model.errors import InvalidTopicName
from pulsarish.model.topic_name import check_name, decode_segment, encode_segment

# Where the rules change, and letters of every kind beside them.
NAMES = st.text(
    st.one_of(st.sampled_from(" /%.~-_+\x00\x1f\x7f\x80\ufffd\ufffc\ue000a0"), st.characters()),
    min_size=1,
    max_size=20,
)


@given(NAMES)
@example("..")
@example("plain-1_2.~")
def test_a_segment_is_the_percent_encoded_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    segment = encode_segment(name)
    assert segment == (name.replace(".", "%2E") if name in (".", "..") else quote(name, safe=""))
    assert decode_segment(segment) == name


@given(st.one_of(NAMES, st.text(st.sampled_from("a\ud7ff\ud800\udfff\ue000"), max_size=3)))
@example("\x00")
@example("\udc80")
def test_a_name_holds_no_control_and_no_broken_characters(name: str) -> None:
    numbers = [ord(character) for character in name]
    bad = any(
        number < 32 or number == 127 or number == 0xFFFD or 0xD800 <= number < 0xE000
        for number in numbers
    )
    if bad or not name.strip():
        with pytest.raises(InvalidTopicName):
            check_name("topic", name)
    else:
        assert check_name("topic", name) == name
