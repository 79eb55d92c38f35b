"""An answer that refuses a request, for every API, with the error code where a broker would put it.

The rows of such an answer (topics, partitions, groups) are those of the request, under other names; PAIRS says under which. An
error that belongs to a topic or a partition (NOT_LEADER_OR_FOLLOWER) goes into the innermost rows that have a place for one,
every other error (GROUP_AUTHORIZATION_FAILED) to the outermost place, as Apache Kafka's own `getErrorResponse` does.
"""

from collections.abc import Iterator
from typing import Any, Final

from ottla.protocol import api, errors
from ottla.protocol.api import APIS
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsResult
from ottla.protocol.schema import Array, Field, Int32, Primitive, Request, Response, String, Struct, field

_PAIRS: Final = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "groups_names", "users", "resources", "feature_updates", "creations"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "transaction_states": ("transactional_ids",),
}
"""A list of the response -> where the request has it; under its own name otherwise."""

_IDENTITY: Final = {
    "entity": ("entity",),
    "feature": ("feature",),
    "group_id": ("group_id",),
    "group_instance_id": ("group_instance_id",),
    "index": ("index",),
    "member_id": ("member_id",),
    "name": ("name",),
    "partition": ("partition", "partition_index"),
    "partition_index": ("partition_index", "partition", "index"),
    "producer_id": ("producer_id",),
    "resource_name": ("resource_name",),
    "resource_type": ("resource_type",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "topic_name": ("topic_name", "name"),
    "transactional_id": ("transactional_id",),
    "user": ("name",),
}
"""Field that identifies a row of the response -> the fields that may have its value in the row of the request."""

_CODES: Final = ("error_code", "partition_error_code")

_UNKNOWN: Final[dict[int, dict[str, Any]]] = {
    api.PRODUCE: {"base_offset": -1},
    api.FETCH: {"high_watermark": -1},
    api.OFFSET_FETCH: {"committed_offset": -1},
    api.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    api.DELETE_RECORDS: {"low_watermark": -1},
    api.INIT_PRODUCER_ID: {"producer_epoch": -1},
    api.DESCRIBE_CLIENT_QUOTAS: {"entries": None},
}
"""Values that Kafka sets beside an error code, by API, for fields that do not get their default."""

_FIRST_WITHOUT_PROTOCOL: Final = 7
"""Of JoinGroup: what no member has agreed on is null."""
_FIRST_WITH_CODE_OF_LOG_DIRS: Final = 3

_OF_PARTS: Final = frozenset(
    {
        errors.CORRUPT_MESSAGE,
        errors.DUPLICATE_SEQUENCE_NUMBER,
        errors.ELECTION_NOT_NEEDED,
        errors.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        errors.FENCED_LEADER_EPOCH,
        errors.INCONSISTENT_TOPIC_ID,
        errors.INVALID_PARTITIONS,
        errors.INVALID_RECORD,
        errors.INVALID_RECORD_STATE,
        errors.INVALID_TOPIC_EXCEPTION,
        errors.KAFKA_STORAGE_ERROR,
        errors.LEADER_NOT_AVAILABLE,
        errors.MESSAGE_TOO_LARGE,
        errors.NO_REASSIGNMENT_IN_PROGRESS,
        errors.NOT_ENOUGH_REPLICAS,
        errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.OFFSET_NOT_AVAILABLE,
        errors.OFFSET_OUT_OF_RANGE,
        errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors.PREFERRED_LEADER_NOT_AVAILABLE,
        errors.RECORD_LIST_TOO_LARGE,
        errors.REPLICA_NOT_AVAILABLE,
        errors.TOPIC_AUTHORIZATION_FAILED,
        errors.UNKNOWN_LEADER_EPOCH,
        errors.UNKNOWN_TOPIC_ID,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UNSTABLE_OFFSET_COMMIT,
        errors.UNSUPPORTED_COMPRESSION_TYPE,
        errors.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Errors of a topic or a partition."""

_OF_MEMBERS: Final = frozenset({errors.UNKNOWN_MEMBER_ID, errors.FENCED_INSTANCE_ID})


def is_of_parts(code: int) -> bool:
    """Return whether an error is one of a topic or a partition."""
    return code in _OF_PARTS


def refusal(request: Request, version: int, code: int) -> Response:
    """The response that answers `request`, which was encoded in `version`, with the error `code`."""
    return _Refusal(version, code).of(request)


class _Refusal:
    """One answer in the making."""

    def __init__(self, version: int, code: int) -> None:
        self._version = version
        self._code = code
        self._unknown: dict[str, Any] = {}

    def of(self, request: Request) -> Response:
        response: Any = APIS[request.API].response_class()()
        inner = self._code in (_OF_MEMBERS if request.API == api.LEAVE_GROUP else _OF_PARTS)
        self._unknown = _UNKNOWN.get(request.API, {})
        if request.API == api.DESCRIBE_LOG_DIRS:
            self._fill_log_dirs(response)
        else:
            regrouped = request.API in (api.ALTER_REPLICA_LOG_DIRS, api.ALTER_USER_SCRAM_CREDENTIALS)
            self._fill(response, _regrouped(request) if regrouped else request, inner=inner)
        if request.API == api.FETCH:
            response.session_id = request.session_id  # type: ignore[attr-defined]
        elif request.API == api.JOIN_GROUP and self._version >= _FIRST_WITHOUT_PROTOCOL:
            response.protocol_name = None
        refused: Response = response
        return refused

    def _fill_log_dirs(self, response: Any) -> None:
        """The error of all; before version 3, which has no place for that, of a directory without a name."""
        if self._version >= _FIRST_WITH_CODE_OF_LOG_DIRS:
            response.error_code = self._code
        else:
            response.results = [DescribeLogDirsResult(error_code=self._code)]

    def _fill(self, row: Any, asked: Any, *, inner: bool) -> bool:
        """Put the code into `row` or, if that is its place, into the rows below; False where there is no place for it."""
        if inner and self._fill_lists(row, asked, inner=True):
            return True
        code = next((declared for declared in self._present(row) if declared.name in _CODES), None)
        if code is None:
            return not inner and self._fill_lists(row, asked, inner=False)
        setattr(row, code.name, self._code)
        for declared in self._present(row):
            if declared.name == "error_message":
                row.error_message = errors.error(self._code).message
            elif declared.name == "acknowledge_error_code" and getattr(asked, "acknowledgement_batches", None):
                row.acknowledge_error_code = self._code  # what came with the fetch is not carried out either
            elif declared.name in self._unknown:
                setattr(row, declared.name, self._unknown[declared.name])
        return True

    def _fill_lists(self, row: Any, asked: Any, *, inner: bool) -> bool:
        filled = False
        for declared in self._present(row):
            if isinstance(declared.type, Array) and not isinstance(declared.type.element, Primitive):
                rows = [
                    self._row(declared.type.element, element, inner=inner)
                    for element in self._asked(declared.name, asked)
                ]
                filled_rows = [element for element in rows if element is not None]
                if filled_rows:
                    setattr(row, declared.name, filled_rows)
                    filled = True
        return filled

    def _row(self, kind: type[Struct], asked: Any, *, inner: bool) -> Struct | None:
        row = kind()
        if isinstance(asked, Struct):
            for declared in kind.FIELDS:
                for name in _IDENTITY.get(declared.name, ()):
                    if any(member.name == name for member in asked.FIELDS):
                        setattr(row, declared.name, _same(declared, getattr(asked, name)))
                        break
        else:
            setattr(row, next(member.name for member in kind.FIELDS if _names(member, asked)), asked)
        return row if self._fill(row, asked, inner=inner) else None

    def _asked(self, name: str, asked: Any) -> Iterator[Any]:
        """Yield the entries of the request that correspond to the list `name` of the response."""
        if not isinstance(asked, Struct):
            return
        there = {declared.name for declared in self._present(asked)}
        for alias in _PAIRS.get(name, (name,)):
            rows = getattr(asked, alias) if alias in there else None
            if rows:
                yield from rows
                break

    def _present(self, message: Any) -> Iterator[Field]:
        return (declared for declared in message.FIELDS if self._version in declared.versions)


def _names(declared: Field, key: Any) -> bool:
    """Return whether a field can hold the key of a row: a string, or another primitive for a key that is no string."""
    if declared.name == "error_message" or declared.name in _CODES:
        return False
    return declared.type is String if isinstance(key, str) else isinstance(declared.type, Primitive)


def _same(declared: Field, value: Any) -> Any:
    """A value of the request as the response declares it: rows of rows are of another class there."""
    if not isinstance(declared.type, Array) or isinstance(declared.type.element, Primitive):
        return value
    kind = declared.type.element
    return [kind(**{member.name: getattr(row, member.name) for member in kind.FIELDS}) for row in value]


class _Named(Struct):
    """A user by name, or a topic of AlterReplicaLogDirs in no directory."""

    topic_name: str = field(String)
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class _Regrouped(Request):
    """A request whose rows are not those of its response."""

    topics: list[_Named] = field(Array(_Named))
    users: list[_Named] = field(Array(_Named))


def _regrouped(request: Any) -> Any:
    """AlterReplicaLogDirs names topics by directory and is answered by topic; AlterUserScramCredentials deletes and inserts and
    is answered by user.
    """
    if request.API == api.ALTER_REPLICA_LOG_DIRS:
        topics = [topic for directory in request.dirs for topic in directory.topics]
        return _Regrouped(topics=[_Named(topic_name=entry.name, partitions=entry.partitions) for entry in topics])
    names = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    return _Regrouped(users=[_Named(name=name) for name in names])
