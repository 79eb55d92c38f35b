"""UpdateRaftVoter: API 82, versions 0 (flexible from 0).

Versions by release: 0 in 3.9.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, Uint16, Uuid, field, message


class Listener(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(Int16)
    max_supported_version: int = field(Int16)


@message(api=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"]):
    cluster_id: str | None = field(String, nullable="0+")
    current_leader_epoch: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = field(Int32, default=-1)
    leader_epoch: int = field(Int32, default=-1)
    host: str = field(String)
    port: int = field(Int32)


@message(api=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    current_leader: CurrentLeader = field(CurrentLeader, tag=0)
