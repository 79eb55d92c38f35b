"""Permissions of members of streams groups: topics of the topology, and internal topics that they may not create."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.conformance.authorization.codes import CREATE, DESCRIBE, GROUP, READ, TOPIC
from tests.conformance.authorization.conftest import Acls, Authorized, acls, authorized, root
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.members import wait_for

from .play import Play, info, subtopology

__all__ = ["acls", "authorized", "root"]


@pytest.fixture
def play(authorized: Authorized, root: Wire, acls: Acls) -> Iterator[Play]:
    """A group of alice, who may read it; its topology has a source and a changelog topic."""
    play = Play(root, TopicFactory(root))
    play.topology = [subtopology(sources=[play.topic("lines", 1)], changelogs=[info(play.name("store"))])]
    play.wire = authorized.user_wire("alice")
    acls.allow("alice", READ, GROUP, play.group_id)
    yield play
    play.wire.close()


def topics_of(play: Play) -> list[str]:
    (row,) = play.topology
    return [*row.source_topics, *(topic.name for topic in row.state_changelog_topics)]


def test_every_topic_of_the_topology_must_be_visible(play: Play, acls: Acls) -> None:
    source, changelog = topics_of(play)
    acls.allow("alice", DESCRIBE, TOPIC, source)
    assert play.text_of(play.wire.send(play.entering("A"), 1)) == "TOPIC_AUTHORIZATION_FAILED None"
    acls.allow("alice", DESCRIBE, TOPIC, changelog)  # it does not exist
    wait_for(lambda: play.wire.send(play.entering("A"), 1).error_code == 0)


def test_internal_topics_that_may_not_be_created(play: Play, acls: Acls, root: Wire) -> None:
    _, changelog = topics_of(play)
    acls.allow("alice", DESCRIBE, TOPIC, *topics_of(play))
    wait_for(lambda: play.wire.send(play.entering("A"), 1).error_code == 0)
    answer = play.wire.send(play.entering("A"), 1)
    (status,) = answer.status
    begin = f"Internal topics are missing: {changelog}; Unauthorized to CREATE on topics {changelog}."
    assert status.status_code == 3
    assert status.status_detail.startswith(begin)
    owner = Play(root, TopicFactory(root))
    assert owner.partitions(changelog) == 0
    acls.allow("alice", CREATE, TOPIC, changelog)
    wait_for(lambda: not play.wire.send(play.entering("A"), 1).status)
    assert owner.partitions(changelog) == 1


def test_a_description_needs_all_topics(play: Play, acls: Acls, root: Wire) -> None:
    source, changelog = topics_of(play)
    root.send(play.entering("A"), 1)
    acls.allow("alice", DESCRIBE, TOPIC, source)
    request = StreamsGroupDescribeRequest(group_ids=[play.group_id])
    described = play.wire.send(request, 1).groups[0]
    assert name_of(described.error_code) == "TOPIC_AUTHORIZATION_FAILED"
    assert described.error_message == "The described group uses topics that the client is not authorized to describe."
    assert described.members == []
    acls.allow("alice", DESCRIBE, TOPIC, changelog)
    wait_for(lambda: play.wire.send(request, 1).groups[0].error_code == 0)
    request.include_authorized_operations = True
    described = play.wire.send(request, 1).groups[0]
    assert described.authorized_operations == (1 << READ) | (1 << DESCRIBE)
    assert [member.member_id for member in described.members] == ["A"]
