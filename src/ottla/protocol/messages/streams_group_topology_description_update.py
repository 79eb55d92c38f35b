"""StreamsGroupTopologyDescriptionUpdate: API 93, versions 0 (flexible from 0).

Versions by release: 0 in 4.4.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class TopologyDescriptionNode(Struct):
    name: str = field(String)
    node_type: int = field(Int8)
    source_topics: list[str] = field(Array(String))
    sink_topic: str | None = field(String, nullable="0+", default=None)
    stores: list[str] = field(Array(String))
    successors: list[str] = field(Array(String))


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(String)
    nodes: list[TopologyDescriptionNode] = field(Array(TopologyDescriptionNode))


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(Array(TopologyDescriptionSubtopology))
    global_stores: list[TopologyDescriptionGlobalStore] = field(Array(TopologyDescriptionGlobalStore))


@message(api=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest(Request["StreamsGroupTopologyDescriptionUpdateResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    group_id: str = field(String)
    member_id: str = field(String)
    topology_epoch: int = field(Int32)
    topology_description: TopologyDescription = field(TopologyDescription)


@message(api=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
