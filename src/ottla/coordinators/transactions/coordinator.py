"""The transaction coordinator: the runtime of __transaction_state."""

from collections.abc import Callable
from typing import Any, Final

from ottla.coordinators.runtime import Millis, Result, Runtime, Timer
from ottla.coordinators.transactions.ending import abort_timed_out, markers_of, remove_expired
from ottla.coordinators.transactions.state import Transactions, TransactionSettings, decode_record
from ottla.coordinators.transactions.transaction import PREPARED
from ottla.environment import Clock
from ottla.metadata.configs import BrokerValues
from ottla.metadata.image import TRANSACTION_STATE_TOPIC
from ottla.tasks.queue import CallbackQueue

TOPIC: Final = TRANSACTION_STATE_TOPIC

TransactionCoordinator = Runtime[Transactions]


def transaction_coordinator(
    values: BrokerValues,
    clock: Clock,
    tasks: CallbackQueue,
    version: Callable[[], int],
    new_producer_id: Callable[[], int],
    send: Callable[[int, Any], None],
    alarm: Callable[[Millis], None] = lambda deadline: None,  # noqa: ARG005
) -> TransactionCoordinator:
    """Return a transaction coordinator without partitions, which a broker's configs control; `alarm` is that of `Runtime`.

    version          returns the finalized level of transaction.version
    new_producer_id  returns a producer id that was never used
    send             called with (partition, Markers) when the end of a transaction is decided; after writing the markers the
                     receiver runs `complete_transaction`
    """
    settings = TransactionSettings.of(values)
    return Runtime(
        partitions=values.integer("transaction.state.log.num.partitions"),
        new_state=lambda partition: Transactions(settings, version, new_producer_id),  # noqa: ARG005
        decode=decode_record,
        loaded=on_loaded,
        clock=clock,
        tasks=tasks,
        alarm=alarm,
        send=send,
    )


def on_loaded(state: Transactions, now: Millis) -> Result:  # noqa: ARG001
    """Continue the work of the previous coordinator: markers of decided transactions, timeouts of open ones."""
    outgoing = [markers_of(transaction) for transaction in state.transactions.values() if transaction.state in PREPARED]
    timers = [
        Timer(abort_timed_out, (), state.settings.abort_interval_ms),
        Timer(remove_expired, (), state.settings.removal_interval_ms),
    ]
    return Result(timers=timers, outgoing=outgoing)
