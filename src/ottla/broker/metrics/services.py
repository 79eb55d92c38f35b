"""Families of a broker's services: network, waiting requests, fetch sessions, log directories, flushes, quotas, ACLs, the
loop.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics.loop_load import LoopLoad
from ottla.broker.metrics.requests import quantiles
from ottla.environment.system import process_io
from ottla.observability.distribution import Recent
from ottla.observability.families import COUNTER, GAUGE, Family, single
from ottla.protocol.api import DELETE_RECORDS, FETCH, PRODUCE, SHARE_FETCH
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.connections.socket_server import SocketServer
    from ottla.broker.upkeep.flushing import Flusher

_OPERATIONS: Final = (
    (PRODUCE, "Produce"),
    (FETCH, "Fetch"),
    (DELETE_RECORDS, "DeleteRecords"),
    (SHARE_FETCH, "ShareFetch"),
)
_NETWORK: Final = "kafka_server_socket_server_metrics_"
_NS_A_MS: Final = 1e6
_RUNNING, _STOPPING = 3, 6
"""Kafka's numbers for the state of a broker: RUNNING and PENDING_CONTROLLED_SHUTDOWN."""


def network_families(sockets: "SocketServer", load: LoopLoad) -> Iterator[Family]:
    """Iterate over the families of connections; the event loop is network processor 0."""
    names = sorted({*sockets.opened, *(name for name in sockets.listener_names)})
    counts = Counter(connection.session.listener for connection in sockets.connections)
    for name in names:
        prefix = f"{_NETWORK}listener_{name.lower()}_networkprocessor_0_"
        rows = (
            ("connection_count", GAUGE, "Open connections.", counts[name]),
            ("connection_creation_total", COUNTER, "Connections that were accepted.", sockets.opened[name]),
            ("connection_close_total", COUNTER, "Connections that were closed.", sockets.closed[name]),
            ("successful_authentication_total", COUNTER, "Successful logins.", sockets.authenticated[name]),
            ("failed_authentication_total", COUNTER, "Failed logins and handshakes.", sockets.refused[name]),
        )
        yield from (single(prefix + suffix, kind, text, value) for suffix, kind, text, value in rows)
    software = Family(
        f"{_NETWORK}connections",
        GAUGE,
        "Open connections by the client's software.",
        ("clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor"),
    )
    peers = Counter(
        (connection.session.peer.software_name, connection.session.peer.software_version, connection.session.listener)
        for connection in sockets.connections
    )
    for labels, count in sorted(peers.items()):
        software.add(count, *labels, "0")
    yield software
    idle = load.idle_fraction()
    idle_text = "Share of the last minute in which the thread of the event loop used no CPU."
    processor = Family("kafka_network_processor_idlepercent", GAUGE, idle_text, ("networkProcessor",))
    processor.add(idle, "0")
    yield processor
    yield single("kafka_network_socketserver_networkprocessoravgidlepercent", GAUGE, idle_text, idle)
    yield single("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE, idle_text, idle)
    text = "Connections that were closed for idling."
    yield single("kafka_network_socketserver_expiredconnectionskilledcount", GAUGE, text, sockets.expired)
    queued = sum(connection.queued for connection in sockets.connections)
    text = "Received requests that wait for earlier ones of their connection."
    yield single("kafka_network_requestchannel_requestqueuesize", GAUGE, text, queued)


def waiting_families(broker: "Broker", sockets: "SocketServer") -> Iterator[Family]:
    """Iterate over the families of requests whose answer waits for data, replicas or other brokers."""
    waiting = Counter(connection.delayed_api for connection in sockets.connections)
    labels = ("delayedOperation",)
    prefix, text = "kafka_server_delayedoperationpurgatory_", "Requests that wait."
    for suffix in ("numdelayedoperations", "purgatorysize"):
        family = Family(prefix + suffix, GAUGE, text, labels)
        for api, name in _OPERATIONS:
            family.add(waiting[api], name)
        yield family
    expirations = broker.expirations
    fetches = Family(
        "kafka_server_delayedfetchmetrics_expires_total",
        COUNTER,
        "Fetch requests that waited until their timeout.",
        ("fetcherType",),
    )
    fetches.add(expirations.fetches, "consumer")
    fetches.add(expirations.follower_fetches, "follower")
    yield fetches
    text = "Batches that were not committed in time."
    yield single("kafka_server_delayedproducemetrics_expires_total", COUNTER, text, expirations.produces)
    text = "ShareFetch requests that waited until their timeout."
    yield single("kafka_server_delayedsharefetchmetrics_expires_total", COUNTER, text, expirations.share_fetches)
    sessions, cache = broker.sessions, "kafka_server_fetchsessioncache_"
    yield single(f"{cache}numincrementalfetchsessions", GAUGE, "Number of fetch sessions.", len(sessions))
    text = "Number of partitions in fetch sessions."
    yield single(f"{cache}numincrementalfetchpartitionscached", GAUGE, text, sessions.partitions)
    text = "Fetch sessions that were ended in favour of others."
    yield single(f"{cache}incrementalfetchsessionevictions_total", COUNTER, text, sessions.evictions)


def storage_families(broker: "Broker", flusher: "Flusher", flushes: Recent, now_ms: int) -> Iterator[Family]:
    """Iterate over the families of log directories and flushes."""
    directories, missing = broker.replicas.directories, broker.replicas.missing
    offline = Family(
        "kafka_log_logmanager_logdirectoryoffline", GAUGE, "1 if a log directory is offline.", ("logDirectory",)
    )
    for directory in directories:
        offline.add(int(directory.offline is not None), str(directory.path))
    for path in missing:
        offline.add(1, str(path))
    yield offline
    cordoned = Family(
        "kafka_log_logmanager_logdirectorycordoned", GAUGE, "1 if a log directory is cordoned.", ("logDirectory",)
    )
    for directory in directories:
        cordoned.add(int(directory.is_cordoned), str(directory.path))
    yield cordoned
    count = sum(directory.is_cordoned for directory in directories)
    yield single("kafka_log_logmanager_cordonedlogdirectorycount", GAUGE, "Log directories that are cordoned.", count)
    count = sum(directory.offline is not None for directory in directories) + len(missing)
    yield single("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, "Log directories that are offline.", count)
    name, text = "kafka_log_logflushstats_logflushrateandtimems", "Time of flushes of logs to disk"
    times = Family(name, GAUGE, f"{text}, in ms.", ("quantile",))
    quantiles(times, flushes.counts(now_ms), _NS_A_MS)
    yield times
    yield single(f"{name}_count_total", COUNTER, "Number of flushes.", flusher.times.count)


def quota_families(broker: "Broker") -> Iterator[Family]:
    """Iterate over the families of clients with quotas, under the names that the rules file intends."""
    labels = ("resource", "user", "clientId")
    rates = Family("kafka_server_quota_byte_rate", GAUGE, "Rate of a client with a quota, in bytes/s.", labels)
    times = Family("kafka_server_quota_request_time", GAUGE, "Percent of a thread that a client uses.", labels)
    throttling = broker.throttling
    if throttling is not None:
        for resource, user, client_id, rate in throttling.rates():
            (times if resource == "Request" else rates).add(rate, resource, user, client_id)
    yield from (rates, times)


def authorization_families(broker: "Broker") -> Iterator[Family]:
    """Iterate over the families of the authorizer; Kafka has them in JMX, where its rules file passes them over."""
    authorization = broker.authorization
    if authorization is None:
        return
    decisions = Family("ottla_authorizations_total", COUNTER, "Decisions of the authorizer.", ("decision",))
    decisions.add(authorization.requests - authorization.denied, "Allowed")
    decisions.add(authorization.denied, "Denied")
    yield decisions
    yield single("ottla_acls", GAUGE, "Number of ACLs.", len(authorization.acls))


def broker_families(broker: "Broker", load: LoopLoad) -> Iterator[Family]:
    """Iterate over the families of the broker itself and its event loop."""
    build = Family("ottla_build_info", GAUGE, "1, labelled with the version.", ("version",))
    build.add(1, VERSION)
    yield build
    state = _RUNNING if broker.image.is_active(broker.node_id) else _STOPPING
    text = "State of the broker: 3 running, 6 in a controlled shutdown."
    yield single("kafka_server_kafkaserver_brokerstate", GAUGE, text, state)
    for name, value in process_io().items():
        yield single(f"kafka_server_kafkaserver_linux_disk_{name}", GAUGE, "Counter of /proc/self/io.", value)
    instances = len(broker.telemetry.received)
    text = "Client instances that have pushed metrics."
    yield single("kafka_server_client_metrics_instance_count", GAUGE, text, instances)
    text = "Longest time for which the event loop was held in the last one to two minutes."
    yield single("ottla_event_loop_longest_hold_seconds", GAUGE, text, load.longest_hold_seconds)
    text = "Sum of the delays of a timer of 20 ms."
    yield single("ottla_event_loop_held_seconds_total", COUNTER, text, load.held_seconds)
