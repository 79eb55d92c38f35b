"""Fetch: records from partitions, at once or when enough of them are available.

Authorization
    topic: READ               TOPIC_AUTHORIZATION_FAILED for its partitions; an unknown id is UNKNOWN_TOPIC_ID for every client
    cluster: CLUSTER_ACTION   for followers, instead

Behaviour
    fewer than min_bytes there       waits for appends, at most max_wait_ms; an error answers at once, but for partitions
                                     that do not exist: they end the wait of a consumer only when there are no others
    first batch larger than limits   is returned whole (KIP-74); other partitions' batches must fit
    offset out of range              OFFSET_OUT_OF_RANGE
    unknown topic or partition       UNKNOWN_TOPIC_OR_PARTITION; by id UNKNOWN_TOPIC_ID
    leader epoch                     older than ours FENCED_LEADER_EPOCH, newer UNKNOWN_LEADER_EPOCH (KIP-320)
    sessions                         fetch_session.py; a response in a session holds only changes; a session that
                                     has lost its last partition is over
    epoch of the last record         another one here: no records, but where both logs diverge (KIP-595)
    a follower of the cluster        reads up to the log end; its fetch offset is its acknowledgement of everything before; a
                                     moved high watermark does not end its wait
    a throttled follower             out of sync: gets no records while more than leader.replication.throttled.rate is
                                     sent to such followers (KIP-73)
    a consumer at a follower         is served up to the follower's high watermark, from version 11 on; a leader with
                                     replica.selector.class names a replica in the consumer's rack (KIP-392)
    read committed                   up to the last stable offset, with a list of aborted transactions
    log offline                      KAFKA_STORAGE_ERROR
    bytes that are no batch          CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR where another replica may take over
    more than fetch.max.bytes        is sent by the next fetch, to followers too
    more than the quota              an answer without records, and a throttle time

    zstd                             UNSUPPORTED_COMPRESSION_TYPE below version 10 where the topic is configured so (KIP-110),
                                     below 4 where a batch is so

Versions
    0  message sets of magic 0, converted down; max_bytes of a partition cuts even the first message
    2  message sets of magic 1
    3  max_bytes of the request; the first message is whole (KIP-74)
    4  RecordBatch v2; isolation level
    5  log start offset
    7  sessions
    9  current leader epoch
    12 flexible; epochs that diverge (for followers)
    13 topic ids
    15 the replica's state is tagged
    16 endpoints of leaders (KIP-951)
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.delayed import DelayedAnswer
from ottla.broker.requests.dispatch import PositionalRequest, handles
from ottla.broker.requests.fetch_attempt import open_fetch, requested_partitions
from ottla.broker.requests.large_fetch import fetch_in_parts
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.rows import ROWS_OF_PART
from ottla.tasks.deferred import Answer, after


@handles(FetchRequest, positions=True, rows="topics.partitions", is_whole=True)
def fetch(request: PositionalRequest, broker: Broker) -> Answer[FetchResponse]:
    topics = request.fields.topics
    if len(topics) > ROWS_OF_PART or sum([len(topic.partitions) for topic in topics]) > ROWS_OF_PART:
        return broker.tasks.start(fetch_in_parts(request, broker))
    opened = open_fetch(request, broker)
    if isinstance(opened, FetchResponse):
        return opened
    requested = requested_partitions(topics)
    opened.add(requested)
    are_recorded = opened.record_positions(requested)
    fields = request.fields
    is_last = opened.is_at_once(fields.max_wait_ms)
    # A follower's fetch may commit batches: their producers, and the fetches of other followers that have come, are served
    # before records for it are looked for. Not if a position was refused: this broker may lead the partition by then, and the
    # follower, which would get no error, would not name it again. Its position would stay unknown, and it outside the ISR.
    is_deferred = opened.reader.is_follower and not is_last and are_recorded
    response = None if is_deferred else opened.attempt(is_last)
    answer: Answer[FetchResponse]
    if response is not None:
        answer = response
    else:
        delayed = DelayedAnswer(
            opened.attempt, opened.watched(), broker.tasks, opened.expiry_counter(), is_deferred=is_deferred
        )
        answer = delayed.begin(broker.timeouts, fields.max_wait_ms)
    return answer if opened.has_batches else after(answer, opened.convert)
