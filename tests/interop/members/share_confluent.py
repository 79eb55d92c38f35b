"""A share consumer with confluent-kafka (librdkafka): `BOOTSTRAP GROUP TOPIC`. It prints the number of each record once it has
processed it, and accepts what it has printed. It runs until its standard input ends.
"""

import sys
import threading

from confluent_kafka import KafkaException, ShareConsumer


def main() -> None:
    bootstrap, group, topic = sys.argv[1:4]
    stopped = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "reconnect.backoff.max.ms": 500})
    consumer.subscribe([topic])
    while not stopped.is_set():
        try:
            messages = consumer.poll(0.2)
        except KafkaException as failure:
            sys.stderr.write(f"{failure}\n")  # the broker is gone for a while
            continue
        for message in messages or ():
            value = message.value()
            if message.error() is None and value is not None:
                sys.stdout.write(value.decode() + "\n")
        sys.stdout.flush()
    consumer.close()


if __name__ == "__main__":
    main()
