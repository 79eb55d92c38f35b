"""Numbers of NumPy and pandas, which applications get from their tables, as partitions and offsets of a consumer."""

import pytest

from ottla import Consumer, OffsetAndMetadata, Producer, TopicPartition

numpy = pytest.importorskip("numpy", reason="NumPy comes with the extra arrow")


@pytest.fixture
def consumer(bootstrap_servers: str, topic: str) -> Consumer:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(5):
            producer.produce(topic, str(number), partition=0)
    return Consumer(bootstrap_servers=bootstrap_servers, group_id=f"group-of-{topic}")


def test_a_consumer_accepts_numpy_integers(consumer: Consumer, topic: str) -> None:
    with consumer:
        partition = TopicPartition(topic, numpy.int64(0))
        consumer.assign([partition])
        consumer.seek(partition, numpy.int64(3))
        record = consumer.poll(20)
        assert record is not None
        assert record.value == b"3"
        assert consumer.position(partition, 20) == 4
        consumer.seek(partition, OffsetAndMetadata(numpy.int32(1)))
        assert [record.value for record in consumer.consume(numpy.int64(2), 20)] == [b"1", b"2"]
        consumer.pause([partition])
        assert consumer.paused() == [TopicPartition(topic, 0)]
        consumer.resume([partition])
        assert consumer.lag(partition) == 2
        assert consumer.offsets_for_times({partition: numpy.int64(0)})[TopicPartition(topic, 0)].offset == 0
        assert consumer.beginning_offsets([partition]) == {TopicPartition(topic, 0): 0}
        assert consumer.commit({partition: numpy.int64(2)})[TopicPartition(topic, 0)].offset == 2
        assert consumer.committed([partition])[TopicPartition(topic, 0)].offset == 2
        consumer.seek_to_beginning([partition])
        record = consumer.poll(20)
        assert record is not None
        assert record.value == b"0"


@pytest.mark.parametrize("offset", [1.0, "1", None])
def test_an_offset_that_is_no_whole_number_is_an_error(consumer: Consumer, topic: str, offset: object) -> None:
    with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(
            TypeError, match=r"seek\(\): offset must be int \| OffsetAndMetadata, not (float|str|NoneType)$"
        ):
            consumer.seek(TopicPartition(topic, 0), offset)  # type: ignore[arg-type]
