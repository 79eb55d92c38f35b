"""Contents of control batches: a key with the type of the record, and a value for each type (KIP-98, KIP-595, KIP-853)."""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Message, String, Struct, Uint16, Uuid, field, message


@message(versions="0")
class ControlRecordTypeSchema(Message):
    type: int = field(Int16)


@message(versions="0")
class EndTxnMarker(Message):
    coordinator_epoch: int = field(Int32)


class Voter(Struct):
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid, versions="1+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage(Message):
    version: int = field(Int16)
    leader_id: int = field(Int32)
    voters: list[Voter] = field(Array(Voter))
    granting_voters: list[Voter] = field(Array(Voter))


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord(Message):
    version: int = field(Int16)
    last_contained_log_timestamp: int = field(Int64)


@message(versions="0", flexible="0+")
class SnapshotFooterRecord(Message):
    version: int = field(Int16)


@message(versions="0", flexible="0+")
class KRaftVersionRecord(Message):
    version: int = field(Int16)
    kraft_version: int = field(Int16)


class Endpoint(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


class VotersRecordVoter(Struct):
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    endpoints: list[Endpoint] = field(Array(Endpoint))
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


@message(versions="0", flexible="0+")
class VotersRecord(Message):
    version: int = field(Int16)
    voters: list[VotersRecordVoter] = field(Array(VotersRecordVoter))
