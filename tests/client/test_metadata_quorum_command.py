"""`ottla metadata-quorum` and `Admin.describe_metadata_quorum`, on both brokers."""

import json

from ottla import Admin

from .commands import Commands


def test_the_quorum_has_a_leader_among_its_voters(admin: Admin) -> None:
    quorum = admin.describe_metadata_quorum()
    (leader,) = [voter for voter in quorum.voters if voter.replica_id == quorum.leader_id]
    assert quorum.leader_epoch > 0
    assert leader.log_end_offset >= quorum.high_watermark > 0
    assert leader.last_caught_up_timestamp is not None
    assert leader.last_caught_up_timestamp > 1_700_000_000_000
    assert quorum.observers == ()
    ((listener, _, port),) = quorum.endpoints[quorum.leader_id]
    assert listener
    assert port


def test_status(commands: Commands, admin: Admin) -> None:
    output = commands.output("metadata-quorum", "describe", "--status")
    titles = [line.split(":")[0] for line in output.splitlines()]
    assert titles == [
        *("ClusterId", "LeaderId", "LeaderEpoch", "HighWatermark", "MaxFollowerLag", "MaxFollowerLagTimeMs"),
        *("CurrentVoters", "CurrentObservers"),
    ]
    quorum = admin.describe_metadata_quorum()
    assert f"\nLeaderId: {quorum.leader_id}\n" in output
    ((listener, host, port),) = quorum.endpoints[quorum.leader_id]
    voters = json.loads(
        next(line for line in output.splitlines() if line.startswith("CurrentVoters")).partition(":")[2]
    )
    assert voters == [{"id": quorum.leader_id, "endpoints": [f"{listener}://{host}:{port}"]}]
    assert commands.json("metadata-quorum", "describe", "--status")["CurrentVoters"] == voters


def test_replication(commands: Commands) -> None:
    titles, leader = commands.output("metadata-quorum", "describe", "--replication").splitlines()
    assert titles.split() == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
    ]
    assert leader.split()[3] == "0"
    assert leader.split()[-1] == "Leader"
    assert " ms ago" in commands.output("metadata-quorum", "describe", "--replication", "--human-readable")
    (row,) = commands.json("metadata-quorum", "describe", "--replication")
    assert (row["Lag"], row["Status"]) == (0, "Leader")


def test_options_that_contradict_each_other(commands: Commands) -> None:
    assert "exactly one of" in commands.misused("metadata-quorum", "describe")
    assert "exactly one of" in commands.misused("metadata-quorum", "describe", "--status", "--replication")
    assert "requires --replication" in commands.misused("metadata-quorum", "describe", "--status", "--human-readable")
