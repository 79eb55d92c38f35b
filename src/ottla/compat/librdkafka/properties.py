"""Properties of librdkafka: one line for each, in the order of its CONFIGURATION.md.

Columns: name; C, P or * for consumers, producers or both; type; bounds or values; default; what it has here. That is a config
of Ottla's client, `own` for what this package does itself, `none` for no effect (a value other than the default is warned of
once), `refused` for what cannot be honoured, `api` for what librdkafka does not take as a text either.
tests/compat/test_configs.py compares the first five columns with the library.
"""

from typing import Final, NamedTuple


class Property(NamedTuple):
    """A property; see the columns above."""

    name: str
    role: str
    kind: str
    bounds: str
    default: str
    effect: str


_TABLE: Final = """
    builtin.features * flags - - none
    client.id * string - rdkafka client.id
    metadata.broker.list * string - - bootstrap.servers
    bootstrap.servers * string - - bootstrap.servers
    message.max.bytes * int 1000..1000000000 1000000 max.request.size
    message.copy.max.bytes * int 0..1000000000 65535 none
    receive.message.max.bytes * int 1000..2147483647 100000000 receive.message.max.bytes
    max.in.flight.requests.per.connection * int 1..1000000 1000000 max.in.flight.requests.per.connection
    max.in.flight * int 1..1000000 1000000 max.in.flight.requests.per.connection
    metadata.recovery.strategy * enum none,rebootstrap rebootstrap metadata.recovery.strategy
    metadata.recovery.rebootstrap.trigger.ms * int 0..2147483647 300000 metadata.recovery.rebootstrap.trigger.ms
    topic.metadata.refresh.interval.ms * int -1..3600000 300000 metadata.max.age.ms
    metadata.max.age.ms * int 1..86400000 900000 none
    topic.metadata.refresh.fast.interval.ms * int 1..60000 100 none
    topic.metadata.refresh.fast.cnt * int 0..1000 10 none
    topic.metadata.refresh.sparse * bool - true none
    topic.metadata.propagation.max.ms * int 0..3600000 30000 own
    topic.blacklist * string - - refused
    debug * flags generic,broker,topic,metadata,feature,queue,msg,protocol,cgrp,security,fetch,interceptor,plugin,consumer,admin,eos,mock,assignor,conf,telemetry,all - none
    socket.timeout.ms * int 10..300000 60000 default.api.timeout.ms
    socket.blocking.max.ms * int 1..60000 1000 none
    socket.send.buffer.bytes * int 0..100000000 0 send.buffer.bytes
    socket.receive.buffer.bytes * int 0..100000000 0 receive.buffer.bytes
    socket.keepalive.enable * bool - false none
    socket.nagle.disable * bool - true none
    socket.max.fails * int 0..1000000 1 none
    broker.address.ttl * int 0..86400000 1000 none
    broker.address.family * enum any,v4,v6 any refused
    socket.connection.setup.timeout.ms * int 1000..2147483647 30000 socket.connection.setup.timeout.ms
    connections.max.idle.ms * int 0..2147483647 0 connections.max.idle.ms
    reconnect.backoff.jitter.ms * int 0..3600000 0 none
    reconnect.backoff.ms * int 0..3600000 100 reconnect.backoff.ms
    reconnect.backoff.max.ms * int 0..3600000 10000 reconnect.backoff.max.ms
    statistics.interval.ms * int 0..86400000 0 own
    enabled_events * int 0..2147483647 0 none
    error_cb * api - - api
    throttle_cb * api - - api
    stats_cb * api - - api
    log_cb * api - - api
    log_level * int 0..7 6 none
    log.queue * bool - false none
    log.thread.name * bool - true none
    enable.random.seed * bool - true none
    log.connection.close * bool - true none
    background_event_cb * api - - api
    socket_cb * api - - api
    connect_cb * api - - api
    closesocket_cb * api - - api
    open_cb * api - - api
    resolve_cb * api - - api
    opaque * api - - api
    default_topic_conf * api - - api
    internal.termination.signal * int 0..128 0 none
    api.version.request * bool - true none
    api.version.request.timeout.ms * int 1..300000 10000 none
    api.version.fallback.ms * int 0..604800000 0 none
    broker.version.fallback * string - 0.10.0 none
    allow.auto.create.topics * bool - false allow.auto.create.topics
    security.protocol * enum plaintext,ssl,sasl_plaintext,sasl_ssl plaintext security.protocol
    ssl.cipher.suites * string - - ssl.cipher.suites
    ssl.curves.list * string - - refused
    ssl.sigalgs.list * string - - refused
    ssl.key.location * string - - own
    ssl.key.password * string - - ssl.key.password
    ssl.key.pem * string - - ssl.keystore.key
    ssl_key * api - - api
    ssl.certificate.location * string - - own
    ssl.certificate.pem * string - - ssl.keystore.certificate.chain
    ssl_certificate * api - - api
    ssl.ca.location * string - - ssl.truststore.location
    https.ca.location * string - - refused
    https.ca.pem * string - - refused
    ssl.ca.pem * string - - ssl.truststore.certificates
    ssl_ca * api - - api
    ssl.ca.certificate.stores * string - Root refused
    ssl.crl.location * string - - refused
    ssl.keystore.location * string - - ssl.keystore.location
    ssl.keystore.password * string - - ssl.keystore.password
    ssl.providers * string - - refused
    ssl.engine.location * string - - refused
    ssl.engine.id * string - dynamic none
    ssl_engine_callback_data * api - - api
    enable.ssl.certificate.verification * bool - true refused
    ssl.endpoint.identification.algorithm * enum none,https https ssl.endpoint.identification.algorithm
    ssl.certificate.verify_cb * api - - api
    sasl.mechanisms * string - GSSAPI sasl.mechanism
    sasl.mechanism * string - GSSAPI sasl.mechanism
    sasl.kerberos.service.name * string - kafka none
    sasl.kerberos.principal * string - kafkaclient none
    sasl.kerberos.kinit.cmd * string - - none
    sasl.kerberos.keytab * string - - refused
    sasl.kerberos.min.time.before.relogin * int 0..86400000 60000 none
    sasl.username * string - - sasl_username
    sasl.password * string - - sasl_password
    sasl.oauthbearer.config * string - - own
    enable.sasl.oauthbearer.unsecure.jwt * bool - false own
    oauthbearer_token_refresh_cb * api - - api
    sasl.oauthbearer.method * enum default,oidc default own
    sasl.oauthbearer.client.id * string - - sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.id * string - - sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret * string - - sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.secret * string - - sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.scope * string - - sasl.oauthbearer.scope
    sasl.oauthbearer.extensions * string - - own
    sasl.oauthbearer.token.endpoint.url * string - - sasl.oauthbearer.token.endpoint.url
    sasl.oauthbearer.sub.claim.name * string - sub none
    sasl.oauthbearer.grant.type * enum client_credentials,urn:ietf:params:oauth:grant-type:jwt-bearer client_credentials none
    sasl.oauthbearer.assertion.algorithm * enum RS256,ES256 RS256 sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.private.key.file * string - - sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase * string - - sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem * string - - refused
    sasl.oauthbearer.assertion.file * string - - sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.claim.aud * string - - sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds * int 1..2147483647 300 sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss * string - - sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include * bool - false sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds * int 0..2147483647 60 sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub * string - - sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.jwt.template.file * string - - sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.metadata.authentication.type * enum none,azure_imds,aws_iam none refused
    plugin.library.paths * string - - refused
    interceptors * api - - api
    group.id C string - - group.id
    group.instance.id C string - - group.instance.id
    partition.assignment.strategy C string - range,roundrobin partition.assignment.strategy
    session.timeout.ms C int 1..3600000 45000 session.timeout.ms
    heartbeat.interval.ms C int 1..3600000 3000 heartbeat.interval.ms
    group.protocol.type C string - consumer none
    group.protocol C enum classic,consumer classic group.protocol
    group.remote.assignor C string - - group.remote.assignor
    coordinator.query.interval.ms C int 1..3600000 600000 none
    max.poll.interval.ms C int 1..86400000 300000 max.poll.interval.ms
    enable.auto.commit C bool - true own
    auto.commit.interval.ms C int 0..86400000 5000 own
    enable.auto.offset.store C bool - true own
    queued.min.messages C int 1..10000000 100000 none
    queued.max.messages.kbytes C int 1..2097151 65536 none
    fetch.wait.max.ms C int 0..300000 500 fetch.max.wait.ms
    fetch.queue.backoff.ms C int 0..300000 1000 none
    fetch.message.max.bytes C int 1..1000000000 1048576 max.partition.fetch.bytes
    max.partition.fetch.bytes C int 1..1000000000 1048576 max.partition.fetch.bytes
    fetch.max.bytes C int 0..2147483135 52428800 fetch.max.bytes
    fetch.min.bytes C int 0..2147483647 1 fetch.min.bytes
    fetch.error.backoff.ms C int 0..300000 500 none
    offset.store.method C enum none,file,broker broker refused
    isolation.level C enum read_uncommitted,read_committed read_committed isolation.level
    consume_cb C api - - api
    rebalance_cb C api - - api
    offset_commit_cb C api - - api
    enable.partition.eof C bool - false own
    check.crcs C bool - false check.crcs
    client.rack * string - - client.rack
    max.poll.records C int 1..2147483647 500 max.poll.records
    share.acknowledgement.mode C string - implicit share.acknowledgement.mode
    transactional.id P string - - transactional.id
    transaction.timeout.ms P int 1000..2147483647 60000 transaction.timeout.ms
    enable.idempotence P bool - false enable.idempotence
    enable.gapless.guarantee P bool - false refused
    queue.buffering.max.messages P int 0..2147483647 100000 own
    queue.buffering.max.kbytes P int 1..2147483647 1048576 buffer.memory
    queue.buffering.max.ms P float 0..900000 5 linger.ms
    linger.ms P float 0..900000 5 linger.ms
    message.send.max.retries P int 0..2147483647 2147483647 retries
    retries P int 0..2147483647 2147483647 retries
    retry.backoff.ms * int 1..300000 100 retry.backoff.ms
    retry.backoff.max.ms * int 1..300000 1000 retry.backoff.max.ms
    queue.buffering.backpressure.threshold P int 1..1000000 1 none
    compression.codec P enum none,gzip,snappy,lz4,zstd none compression.type
    compression.type P enum none,gzip,snappy,lz4,zstd none compression.type
    batch.num.messages P int 1..1000000 10000 none
    batch.size P int 1..2147483647 1000000 batch.size
    delivery.report.only.error P bool - false own
    dr_cb P api - - api
    dr_msg_cb P api - - api
    sticky.partitioning.linger.ms P int 0..900000 10 none
    client.dns.lookup * enum use_all_dns_ips,resolve_canonical_bootstrap_servers_only use_all_dns_ips none
    enable.metrics.push * bool - true enable.metrics.push
    request.required.acks P int -1..1000 -1 acks
    acks P int -1..1000 -1 acks
    request.timeout.ms P int 1..900000 30000 request.timeout.ms
    message.timeout.ms P int 0..2147483647 300000 delivery.timeout.ms
    delivery.timeout.ms P int 0..2147483647 300000 delivery.timeout.ms
    queuing.strategy P enum fifo,lifo fifo none
    produce.offset.report P bool - false none
    partitioner P string - consistent_random partitioner
    partitioner_cb P api - - api
    msg_order_cmp P api - - api
    compression.level P int -1..12 -1 own
    auto.commit.enable C bool - true own
    auto.offset.reset C enum smallest,earliest,beginning,largest,latest,end,error largest auto.offset.reset
    offset.store.path C string - . none
    offset.store.sync.interval.ms C int -1..86400000 -1 none
    consume.callback.max.messages C int 0..1000000 0 none
"""  # noqa: E501

PROPERTIES: Final[dict[str, Property]] = {
    line.split()[0]: Property(*("" if cell == "-" else cell for cell in line.split()))
    for line in _TABLE.splitlines()
    if line
}
"""Name -> property."""
