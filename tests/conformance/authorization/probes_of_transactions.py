"""Requests of transactional and idempotent producers."""

from typing import Any, Final

from .codes import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    NO_CLUSTER,
    NO_GROUP,
    NO_TOPIC,
    NO_TRANSACTIONAL_ID,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from .probes import HIDDEN, Check, Names, Probe, probe, topic_list

_PRODUCER: Final = {"producer_id": 1 << 40, "producer_epoch": 0}
_ERROR: Final = "error_code"


def _who(names: Names) -> dict[str, Any]:
    return {"transactional_id": names.transactional_id} | _PRODUCER


def _init(names: Names, version: int) -> dict[str, Any]:
    # The timeout is refused once the right is there: no producer is made.
    return {"transactional_id": names.transactional_id, "transaction_timeout_ms": -1}


def _init_idempotent(names: Names, version: int) -> dict[str, Any]:
    return {"transactional_id": None, "transaction_timeout_ms": 1000}


def _find(names: Names, version: int) -> dict[str, Any]:
    if version < 4:
        return {"key_type": 1, "key": names.transactional_id}
    return {"key_type": 1, "coordinator_keys": list(names.transactional_ids)}


def _add_partitions(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, partitions=[0])
    fields = _who(names) | {"topics": topics}
    return {f"v3_and_below_{name}": value for name, value in fields.items()}


def _add_partitions_by_broker(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, partitions=[0])
    return {"transactions": [_who(names) | {"verify_only": True, "topics": topics}]}


def _add_offsets(names: Names, version: int) -> dict[str, Any]:
    return _who(names) | {"group_id": names.group}


def _end(names: Names, version: int) -> dict[str, Any]:
    return _who(names) | {"committed": True}


def _markers(names: Names, version: int) -> dict[str, Any]:
    topics = topic_list(names, version, partition_indexes=[0])
    marker = _PRODUCER | {"transaction_result": False, "topics": topics, "coordinator_epoch": 0}
    return {"markers": [marker]}


def _commit_offsets(names: Names, version: int) -> dict[str, Any]:
    parts = [{"partition_index": 0, "committed_offset": 1}]
    return _who(names) | {"group_id": names.group, "topics": topic_list(names, version, 6, partitions=parts)}


def _describe(names: Names, version: int) -> dict[str, Any]:
    return {"transactional_ids": list(names.transactional_ids)}


def _list(names: Names, version: int) -> dict[str, Any]:
    return {}


_TRANSACTION: Final = Check(WRITE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, _ERROR)
_ADDED: Final = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"
_COMMITTED: Final = "topics[].partitions[].error_code"
_MARKED: Final = "markers[].topics[].partitions[].error_code"

PROBES: Final[tuple[Probe, ...]] = (
    probe("InitProducerId", _init, _TRANSACTION, about="of a transactional id"),
    probe(
        "InitProducerId",
        _init_idempotent,
        Check(IDEMPOTENT_WRITE, CLUSTER, NO_CLUSTER, _ERROR, ((WRITE, TOPIC),)),
        about="idempotent",
    ),
    probe(
        "FindCoordinator",
        _find,
        Check(DESCRIBE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, _ERROR),
        about="of one transactional id",
        first=1,
        last=3,
    ),
    probe(
        "FindCoordinator",
        _find,
        Check(DESCRIBE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, "coordinators[].error_code"),
        about="of transactional ids",
        first=4,
        many=TRANSACTIONAL_ID,
    ),
    probe(
        "AddPartitionsToTxn",
        _add_partitions,
        Check(WRITE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, _ADDED),
        Check(WRITE, TOPIC, NO_TOPIC, _ADDED),
        about="of a client",
        last=3,
        many=TOPIC,
    ),
    probe(
        "AddPartitionsToTxn",
        _add_partitions_by_broker,
        Check(CLUSTER_ACTION, CLUSTER, NO_CLUSTER, _ERROR),
        about="of a broker",
        first=4,
    ),
    probe("AddOffsetsToTxn", _add_offsets, _TRANSACTION, Check(READ, GROUP, NO_GROUP, _ERROR)),
    probe("EndTxn", _end, _TRANSACTION),
    probe("WriteTxnMarkers", _markers, Check(ALTER, CLUSTER, NO_CLUSTER, _MARKED, ((CLUSTER_ACTION, CLUSTER),))),
    probe(
        "TxnOffsetCommit",
        _commit_offsets,
        Check(WRITE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, _COMMITTED),
        Check(READ, GROUP, NO_GROUP, _COMMITTED),
        Check(READ, TOPIC, NO_TOPIC, _COMMITTED),
        many=TOPIC,
    ),
    # Topics inside the answer need DESCRIBE: test_hidden_names.py.
    probe(
        "DescribeTransactions",
        _describe,
        Check(DESCRIBE, TRANSACTIONAL_ID, NO_TRANSACTIONAL_ID, "transaction_states[].error_code"),
        many=TRANSACTIONAL_ID,
    ),
    probe(
        "ListTransactions",
        _list,
        Check(DESCRIBE, TRANSACTIONAL_ID, HIDDEN, "transaction_states[].transactional_id"),
        existing=("transactions",),
        many=TRANSACTIONAL_ID,
    ),
)
