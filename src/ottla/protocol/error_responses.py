"""Error responses to requests of all APIs, with the error code in the field that a broker uses.

The rows of an error response (topics, partitions, groups) are those of the request, in fields of other names: see _PAIRS. An
error of a topic or partition (NOT_LEADER_OR_FOLLOWER) is set in the innermost rows with an error code, any other error
(GROUP_AUTHORIZATION_FAILED) in the outermost one, as in Apache Kafka's `getErrorResponse`.
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
"""List of the response -> corresponding lists of the request; by default that of the same name."""

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
"""Identifying field of a row of the response -> possible fields of its value in the row of the request."""

_CODES: Final = ("error_code", "partition_error_code")

_UNKNOWN: Final[dict[int, dict[str, Any]]] = {
    api.PRODUCE: {"base_offset": -1},
    api.FETCH: {"high_watermark": -1},
    api.OFFSET_FETCH: {"committed_offset": -1},
    api.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    api.DELETE_RECORDS: {"low_watermark": -1},
    api.INIT_PRODUCER_ID: {"producer_epoch": -1},
    api.DESCRIBE_CLIENT_QUOTAS: {"entries": None},
    api.CREATE_DELEGATION_TOKEN: {
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ANONYMOUS",
        "issue_timestamp_ms": -1,
        "expiry_timestamp_ms": -1,
        "max_timestamp_ms": -1,
    },
}
"""Values that Kafka sets beside an error code, by API, for fields whose value is not the default."""

_FIRST_WITHOUT_PROTOCOL: Final = 7
"""First version of JoinGroup with a nullable protocol_name."""
_FIRST_WITH_CODE_OF_LOG_DIRS: Final = 3

_PARTITION_ERRORS: Final = frozenset(
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
"""Error codes of a topic or a partition."""

_MEMBER_ERRORS: Final = frozenset({errors.UNKNOWN_MEMBER_ID, errors.FENCED_INSTANCE_ID})


def is_partition_error(code: int) -> bool:
    """Return whether an error code is one of a topic or a partition."""
    return code in _PARTITION_ERRORS


def error_response(request: Request, version: int, code: int) -> Response:
    """Return the response with the error `code` to `request`, which was encoded in `version`."""
    return _ErrorResponse(version, code).of(request)


class _ErrorResponse:
    """Builder of one error response."""

    def __init__(self, version: int, code: int) -> None:
        self._version = version
        self._code = code
        self._unknown: dict[str, Any] = {}

    def of(self, request: Request) -> Response:
        response: Any = APIS[request.API].response_class()()
        inner = self._code in (_MEMBER_ERRORS if request.API == api.LEAVE_GROUP else _PARTITION_ERRORS)
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
        """Set the error code of the response; before version 3, which has none, that of a directory without a name."""
        if self._version >= _FIRST_WITH_CODE_OF_LOG_DIRS:
            response.error_code = self._code
        else:
            response.results = [DescribeLogDirsResult(error_code=self._code)]

    def _fill(self, row: Any, source: Any, *, inner: bool) -> bool:
        """Set the error code in `row`, or in the rows below it; False if there is no field for it."""
        if inner and self._fill_lists(row, source, inner=True):
            return True
        code = next((declared for declared in self._present(row) if declared.name in _CODES), None)
        if code is None:
            return not inner and self._fill_lists(row, source, inner=False)
        setattr(row, code.name, self._code)
        for declared in self._present(row):
            if declared.name == "error_message":
                row.error_message = errors.error(self._code).message
            elif declared.name == "acknowledge_error_code" and getattr(source, "acknowledgement_batches", None):
                row.acknowledge_error_code = self._code  # acknowledgements in the fetch are not executed either
            elif declared.name in self._unknown:
                setattr(row, declared.name, self._unknown[declared.name])
        return True

    def _fill_lists(self, row: Any, source: Any, *, inner: bool) -> bool:
        filled = False
        for declared in self._present(row):
            if isinstance(declared.type, Array) and not isinstance(declared.type.element, Primitive):
                rows = [
                    self._row(declared.type.element, element, inner=inner)
                    for element in self._source_rows(declared.name, source)
                ]
                filled_rows = [element for element in rows if element is not None]
                if filled_rows:
                    setattr(row, declared.name, filled_rows)
                    filled = True
        return filled

    def _row(self, kind: type[Struct], source: Any, *, inner: bool) -> Struct | None:
        row = kind()
        if isinstance(source, Struct):
            for declared in kind.FIELDS:
                for name in _IDENTITY.get(declared.name, ()):
                    if any(member.name == name for member in source.FIELDS):
                        setattr(row, declared.name, _same(declared, getattr(source, name)))
                        break
        else:
            setattr(row, next(member.name for member in kind.FIELDS if _names(member, source)), source)
        return row if self._fill(row, source, inner=inner) else None

    def _source_rows(self, name: str, source: Any) -> Iterator[Any]:
        """Yield the entries of the request that correspond to the list `name` of the response."""
        if not isinstance(source, Struct):
            return
        there = {declared.name for declared in self._present(source)}
        for alias in _PAIRS.get(name, (name,)):
            rows = getattr(source, alias) if alias in there else None
            if rows:
                yield from rows
                break

    def _present(self, message: Any) -> Iterator[Field]:
        return (declared for declared in message.FIELDS if self._version in declared.versions)


def _names(declared: Field, key: Any) -> bool:
    """Return whether a field can hold the key of a row: a string field for a string, otherwise any other primitive."""
    if declared.name == "error_message" or declared.name in _CODES:
        return False
    return declared.type is String if isinstance(key, str) else isinstance(declared.type, Primitive)


def _same(declared: Field, value: Any) -> Any:
    """Convert a value of the request to the type of the response, where nested rows are of another class."""
    if not isinstance(declared.type, Array) or isinstance(declared.type.element, Primitive):
        return value
    kind = declared.type.element
    return [kind(**{member.name: getattr(row, member.name) for member in kind.FIELDS}) for row in value]


class _NamedRow(Struct):
    """User by name, or topic of AlterReplicaLogDirs without its directory."""

    topic_name: str = field(String)
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class _Regrouped(Request):
    """Request rearranged into the rows of its response."""

    topics: list[_NamedRow] = field(Array(_NamedRow))
    users: list[_NamedRow] = field(Array(_NamedRow))


def _regrouped(request: Any) -> Any:
    """Rearrange a request into the rows of its response.

    AlterReplicaLogDirs has topics by directory and its response only topics; AlterUserScramCredentials has deletions and
    upsertions and its response users.
    """
    if request.API == api.ALTER_REPLICA_LOG_DIRS:
        topics = [topic for directory in request.dirs for topic in directory.topics]
        return _Regrouped(topics=[_NamedRow(topic_name=entry.name, partitions=entry.partitions) for entry in topics])
    names = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    return _Regrouped(users=[_NamedRow(name=name) for name in names])
