"""The offset of a stream in a checkpoint."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.topics import TopicPartition
from ottla.spark.stream_offset import StreamOffset, stream_offset

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "_d"]), st.integers(0, 20))
positions = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=8)
acquired = st.dictionaries(
    partitions, st.lists(st.tuples(st.integers(0, 9), st.integers(9, 20)), min_size=1, max_size=3), max_size=3
)
offsets = st.builds(
    StreamOffset,
    positions,
    st.dictionaries(st.sampled_from(["a", "b.c"]), st.binary(min_size=16, max_size=16), max_size=2),
    st.booleans(),
    st.none() | positions,
    st.none() | acquired,
    st.integers(0, 5),
    st.none() | st.text(min_size=1),
)


@given(offsets)
def test_offsets_survive_json(offset: StreamOffset) -> None:
    assert stream_offset(json.loads(json.dumps(offset.json()))) == offset


def test_the_shape_is_that_of_spark_s_own_source() -> None:
    theirs = {"t": {"0": 42, "1": 7}}
    read = stream_offset(theirs)
    assert read == StreamOffset({TopicPartition("t", 0): 42, TopicPartition("t", 1): 7}, {})
    assert read.json() == theirs
