"""TLS beside Apache Kafka 4.4.0: produce and consume, handshakes a second, memory of idle connections.

    python bench/tls.py [--rounds 5] [--megabytes 300] [--only produce]

Both brokers run at the same time, with a PLAINTEXT and a TLS listener, and are measured in turn with confluent-kafka; each side
is warmed up first, and the median of the rounds counts. The certificate has a P-256 key, and TLS 1.3 chooses the cipher suite:
AES-256-GCM. `CPU s/GB` is the broker's. Handshakes are full ones, from one process that opens connections one after the other
on as many threads as there are cores; the limit of OpenSSL is `openssl speed`'s number of P-256 signatures on one core.
"""

import argparse
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import trustme

from broker_speed import consume_megabytes, new_topic, produce_megabytes
from brokers import REMOVE_SOON, Running, free_port, kafka, kafka_is_there, ottla, record

IDLE = 5000
HANDSHAKE_S = 4


def certificates(directory: Path) -> None:
    """Write an authority, and a key store of the broker in PKCS#8, as Apache Kafka reads it."""
    from cryptography.hazmat.primitives import serialization

    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    store = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "store.pem").write_bytes(store + b"".join(pem.bytes() for pem in issued.cert_chain_pems))


@contextmanager
def secured(
    start: Callable[..., AbstractContextManager[Running]], directory: Path, *, controller: bool
) -> Iterator[tuple[Running, Running]]:
    """One broker, by its PLAINTEXT and by its TLS listener."""
    tls_port = free_port()
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},TLS://127.0.0.1:{tls_port}"
    configs = [
        f"listeners={listeners}" + (f",CONTROLLER://127.0.0.1:{port + 1}" if controller else ""),
        f"advertised.listeners={listeners}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,TLS:SSL" + (",CONTROLLER:PLAINTEXT" if controller else ""),
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={directory / 'store.pem'}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={directory / 'ca.pem'}",
    ]
    with start(*configs, *REMOVE_SOON, port=port) as plain:
        tls = {"security.protocol": "SSL", "ssl.ca.location": str(directory / "ca.pem")}
        yield plain, plain._replace(bootstrap_servers=f"127.0.0.1:{tls_port}", security=tls)


def with_cpu(broker: Running, megabytes: int, measure: Callable[[], float]) -> tuple[float, float]:
    """MB/s, and CPU seconds of the broker for each GB."""
    before = broker.cpu_seconds()
    rate = measure()
    return rate, (broker.cpu_seconds() - before) / megabytes * 1000


def handshakes_per_second(broker: Running) -> tuple[float, float]:
    """Full handshakes a second, and milliseconds of the broker's CPU for each."""
    context = ssl.create_default_context(cafile=broker.security["ssl.ca.location"])
    host, _, port = broker.bootstrap_servers.partition(":")
    count = 0
    end = time.perf_counter() + HANDSHAKE_S
    lock = threading.Lock()

    def work() -> None:
        nonlocal count
        while time.perf_counter() < end:
            with (
                socket.create_connection((host, int(port))) as plain,
                context.wrap_socket(plain, server_hostname=host),
                lock,
            ):
                count += 1

    before = broker.cpu_seconds()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / HANDSHAKE_S, (broker.cpu_seconds() - before) / count * 1000


def idle_kilobytes(broker: Running) -> float:
    """Memory of the broker for each idle connection, in KB: after the handshake and one request."""
    context = ssl.create_default_context(cafile=broker.security["ssl.ca.location"])
    host, _, port = broker.bootstrap_servers.partition(":")
    request = bytes.fromhex("0000000a00120000000000010000")
    before = broker.resident_mb()
    held = []
    for _ in range(IDLE):
        tls = context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
        tls.sendall(request)
        tls.recv(4096)
        held.append(tls)
    grown = broker.resident_mb() - before
    for tls in held:
        tls.close()
    return grown * 1000 / IDLE


def signatures_per_second() -> float:
    """P-256 signatures a second of OpenSSL on one core."""
    output = subprocess.run(
        ["openssl", "speed", "-seconds", "2", "ecdsap256"], capture_output=True, text=True, check=True
    ).stdout
    matched = re.search(r"ecdsa \(nistp256\)\s+\S+s\s+\S+s\s+([\d.]+)", output)
    return float(matched[1]) if matched else 0.0


def main() -> None:
    """Measure both sides, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--only", choices=["produce", "consume", "handshakes", "idle"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-tls-") as name, ExitStack() as stack:
        directory = Path(name)
        certificates(directory)
        sides = {"ottla": stack.enter_context(secured(ottla, directory, controller=False))}
        missing = kafka_is_there()
        if missing is None:
            sides["kafka"] = stack.enter_context(secured(kafka, directory, controller=True))
        else:
            print(f"without Apache Kafka: {missing}", file=sys.stderr)
        runs: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
        rows = [options.only] if options.only else ["produce", "consume", "handshakes", "idle"]
        stored = {side: new_topic(pair[0]) for side, pair in sides.items()}
        for side, pair in sides.items():
            if "consume" in rows:
                produce_megabytes(pair[0], options.megabytes, stored[side])
        for number in range(options.rounds + 2):  # the first two warm up
            for side, (plain, tls) in sides.items():
                figures = measured(
                    rows, plain, tls, stored[side], options.megabytes, is_last=number == options.rounds + 1
                )
                if number >= 2:
                    for figure, value in figures.items():
                        runs[side].setdefault(figure, []).append(value)
        medians = {
            side: {figure: statistics.median(values) for figure, values in figures.items()}
            for side, figures in runs.items()
        }
        print(f"{'':28}" + "".join(f"{side:>12}" for side in medians))
        for figure in medians["ottla"]:
            print(f"{figure:28}" + "".join(f"{figures[figure]:12.2f}" for figures in medians.values()))
        record({"tls": medians, "openssl P-256 signatures/s": signatures_per_second()})


def measured(
    rows: list[str], plain: Running, tls: Running, stored: str, megabytes: int, *, is_last: bool
) -> dict[str, float]:
    """One round of the wanted figures; idle connections only in the last one."""
    figures: dict[str, float] = {}
    for kind, broker in (("plain", plain), ("TLS", tls)):
        if "produce" in rows:
            rate, cpu = with_cpu(broker, megabytes, lambda: produce_megabytes(broker, megabytes))  # noqa: B023
            figures |= {f"{kind} produce MB/s": rate, f"{kind} produce CPU s/GB": cpu}
        if "consume" in rows:
            rate, cpu = with_cpu(broker, megabytes, lambda: consume_megabytes(broker, stored, megabytes))  # noqa: B023
            figures |= {f"{kind} consume MB/s": rate, f"{kind} consume CPU s/GB": cpu}
    if "handshakes" in rows:
        rate, cpu = handshakes_per_second(tls)
        figures |= {"handshakes/s": rate, "handshake CPU ms": cpu}
    if "idle" in rows and is_last:
        figures["idle KB/connection"] = idle_kilobytes(tls)
    return figures


if __name__ == "__main__":
    main()
