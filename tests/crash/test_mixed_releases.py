"""Brokers of two releases in one cluster: a rolling upgrade under load, and back to the older release.

The older release is a commit of this repository, taken from its history.
"""

import io
import subprocess
import tarfile
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from ottla import Admin, FeatureUpdate, UpgradeType
from ottla import TopicPartition as Place
from ottla.metadata.plans.eligibility import FEATURE
from tests.etcd_server import running

from .brokers import wait_until
from .replicated_brokers import NODES
from .replicated_load import PARTITIONS, create
from .rolling_cluster import RollingCluster, restart_all
from .rolling_load import Load, OttlaDefaultNumbered, OttlaLedger, OttlaReader, ShareReader

OLDER: Final = "31e3b9f"
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Directory with the modules of the older release."""
    command = ["git", "-C", str(ROOT), "archive", OLDER, "src"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"commit {OLDER} is not there: this is no clone with its history, or git is missing")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        if hasattr(tarfile, "data_filter"):  # Debian's 3.11.2 has none
            files.extraction_filter = staticmethod(tarfile.data_filter)
        files.extractall(tmp_path / "older")
    return tmp_path / "older" / "src"


def check_features(servers: str) -> None:
    """Every level that is finalized is one that the brokers of both releases support."""
    with Admin(bootstrap_servers=servers) as admin:
        known = [admin.describe_features(node) for node in NODES]
    for features in known:
        assert features.finalized == known[0].finalized
        for name, level in features.finalized.items():
            assert all(level.max_version <= its.supported[name].max_version for its in known), name


def check_upgrade(servers: str, *, is_possible: bool) -> None:
    """A feature that the older release lacks can be turned on when no broker of that release is left."""
    with Admin(bootstrap_servers=servers) as admin:
        errors = admin.update_features({FEATURE: FeatureUpdate(1)}, validate_only=True).errors
        assert FEATURE not in admin.describe_features().finalized
    if is_possible:
        assert errors == {}
    else:
        assert errors[FEATURE].name == "INVALID_UPDATE_VERSION"


def upgrade_and_downgrade_feature(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        for level, kind in ((1, UpgradeType.UPGRADE), (0, UpgradeType.SAFE_DOWNGRADE)):
            admin.update_features({FEATURE: FeatureUpdate(level, kind)}).check()
            wait_until(partial(has_level, admin, level), 10)


def has_level(admin: Admin, level: int) -> bool:
    features = [admin.describe_features(node).finalized.get(FEATURE) for node in NODES]
    return all((finalized.max_version if finalized else 0) == level for finalized in features)


@pytest.mark.timeout(240)
def test_no_client_notices_an_upgrade_and_a_downgrade(tmp_path: Path, older: Path) -> None:
    with running(tmp_path / "etcd") as etcd:
        cluster = RollingCluster(tmp_path, etcd, older)
        try:
            servers = cluster.servers
            create(servers, "ottla", "jobs", "ledger")
            with Admin(bootstrap_servers=servers) as admin:
                offsets = {Place("jobs", number): 0 for number in range(PARTITIONS)}
                assert not admin.alter_share_group_offsets("workers", offsets).errors
            load = Load(servers)
            load.producers = {
                "ottla": OttlaDefaultNumbered(servers, "ottla", 200),
                "jobs": OttlaDefaultNumbered(servers, "jobs", 100),
            }
            load.ledgers = {"ledger": OttlaLedger(servers, "ledger")}
            load.readers = {"ottla": OttlaReader(servers, "ottla"), "jobs": ShareReader(servers, "jobs")}
            load.wait_until_working()
            for sources in (None, older):
                cluster.sources = dict.fromkeys(NODES, sources)
                check_upgrade(servers, is_possible=sources is older)

                def restarted(node_id: int, sources: Path | None = sources) -> None:
                    check_features(servers)
                    check_upgrade(servers, is_possible=sources is None and node_id == NODES[-1])

                restart_all(cluster, load.failures, 1, restarted)
                if sources is None:
                    upgrade_and_downgrade_feature(servers)
            load.check()
        finally:
            cluster.close()
