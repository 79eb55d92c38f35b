"""Keys of the metadata store, and the encoding of their values.

/cluster/id                     the cluster's id, as text
/cluster/secret                 32 random bytes, as hex, which no client learns: what brokers make up depends on it
/cluster/adopted                origin of the metadata, if adopted from Apache Kafka: JSON of `Adopted`
/topics/<name>                  id, configs and assignment of a topic: JSON of a TopicImage
/partitions/<topic id>/<index>  state of a partition: JSON of a PartitionImage. Without the key the first replica leads, all
                                replicas are in sync and the epochs are 0. Deleted with its topic only
/brokers/<node id>              registration of a broker: JSON of a BrokerImage, written once for each incarnation
/live/<node id>                 sign of life of a broker: JSON of a Liveness, under the broker's lease
/controller                     JSON of a ControllerImage, under the same lease
/configs/<resource type>/<name> JSON of name -> text; the empty name is for all brokers
/features/<name>                a finalized level, if it differs from the release's own
/features/ottla.metadata.version  format of the keys and values: 1; a store without it was written for a single broker
/quotas/<entity>                JSON of quota -> value; the entity is JSON too: [["client-id",null],["user","u1"]]
/scram/<mechanism>/<user>       JSON of a ScramCredential (KIP-554)
/tokens/<id>                    a delegation token without its secret: JSON of a DelegationToken (KIP-48)
/acls/<acl>                     an ACL, named by its own fields: [2,3,"t","User:alice","*",3,3]; JSON of an Acl (KIP-11)
/producer_ids/next              the first producer id that is not assigned
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.security.acls import Acl
from ottla.security.quotas import Entity

CLUSTER_ID: Final = "/cluster/id"
SECRET: Final = "/cluster/secret"
ADOPTED: Final = "/cluster/adopted"
TOPICS: Final = "/topics/"
PARTITIONS: Final = "/partitions/"
BROKERS: Final = "/brokers/"
LIVE: Final = "/live/"
CONTROLLER: Final = "/controller"
CONFIGS: Final = "/configs/"
BROKER_DEFAULTS: Final = "/configs/4/"
"""Key of the configs for all brokers."""
MIN_ISR: Final = "min.insync.replicas"
FEATURES: Final = "/features/"
METADATA_VERSION: Final = "/features/ottla.metadata.version"
NEWEST_METADATA_VERSION: Final = 1
QUOTAS: Final = "/quotas/"
SCRAM: Final = "/scram/"
TOKENS: Final = "/tokens/"
ACLS: Final = "/acls/"
PRODUCER_IDS: Final = "/producer_ids/next"


def feature_levels(levels: Mapping[str, int]) -> dict[str, bytes]:
    """Return the keys and values of finalized feature levels."""
    return {FEATURES + name: str(level).encode() for name, level in levels.items()}


class Adopted(NamedTuple):
    """Position up to which Apache Kafka's metadata log was read at adoption; `offset` is exclusive."""

    offset: int

    def encoded(self) -> bytes:
        """Encode the position as the value of its key."""
        return compact({"offset": self.offset})

    @classmethod
    def decoded(cls, value: bytes) -> "Adopted":
        """Decode a position from the value of its key."""
        return cls(json.loads(value)["offset"])


def partitions_key(topic_id: bytes) -> str:
    """Return the prefix of the keys of a topic's partitions."""
    return f"{PARTITIONS}{topic_id.hex()}/"


def partition_key(topic_id: bytes, index: int) -> str:
    """Return the key of a partition's state."""
    return f"{PARTITIONS}{topic_id.hex()}/{index}"


def partition_of(key: str) -> tuple[bytes, int]:
    """Return the topic id and index in a key of `partition_key`."""
    topic_id, _, index = key[len(PARTITIONS) :].partition("/")
    return bytes.fromhex(topic_id), int(index)


def broker_key(node_id: int) -> str:
    """Return the key of a broker's registration."""
    return f"{BROKERS}{node_id}"


def live_key(node_id: int) -> str:
    """Return the key of a broker's sign of life."""
    return f"{LIVE}{node_id}"


def compact(value: object) -> bytes:
    """Encode a value as JSON without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def config_key(kind: int, name: str) -> str:
    """Return the key of a resource's configs."""
    return f"{CONFIGS}{kind}/{name}"


def config_of(key: str) -> tuple[int, str]:
    """Return the resource type and name in a key of `config_key`."""
    kind, _, name = key[len(CONFIGS) :].partition("/")
    return int(kind), name


def quota_key(entity: Entity) -> str:
    """Return the key of an entity's quotas."""
    return QUOTAS + compact([list(part) for part in entity]).decode()


def quota_of(key: str) -> Entity:
    """Return the entity in a key of `quota_key`."""
    return tuple((kind, name) for kind, name in json.loads(key[len(QUOTAS) :]))


def acl_key(acl: Acl) -> str:
    """Return the key of an ACL; equal ACLs have one key."""
    return ACLS + compact(list(acl)).decode()


def scram_key(user: str, mechanism: int) -> str:
    """Return the key of a user's credential."""
    return f"{SCRAM}{mechanism}/{user}"


def scram_of(key: str) -> tuple[str, int]:
    """Return the user and mechanism in a key of `scram_key`."""
    mechanism, _, user = key[len(SCRAM) :].partition("/")
    return user, int(mechanism)


def quota_values(value: bytes) -> Mapping[str, float]:
    """Decode the quotas of an entity from the value of its key."""
    return {name: float(number) for name, number in json.loads(value).items()}
