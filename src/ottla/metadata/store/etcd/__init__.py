"""The metadata store of a cluster over many machines: etcd 3.4 or newer.

etcd is reached by its JSON gateway over HTTP/1.1, on the transport of the environment: no threads and no gRPC. Several brokers
share one etcd; a prefix of the keys separates clusters.

    url.py         etcd://user:password@host:2379,host2:2379/prefix
    gateway.py     requests and responses as JSON
    http.py        one connection
    endpoints.py   fail-over between endpoints, time limits, login
    watch.py       the stream of changes
    store.py       `EtcdMetadataStore`, the implementation of `MetadataStore`
"""
