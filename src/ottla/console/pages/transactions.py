"""Transactions: transactional ids with their state and age, and the end of open ones."""

from typing import Final, NamedTuple

from starlette.responses import Response

from ottla.client.admin.transactions import TransactionDescription
from ottla.console.clusters import TIMEOUT_S
from ottla.console.visit import Visit, change, page

_MOST_DESCRIBED: Final = 200
_LONG_MS: Final = 60_000
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class TransactionRow(NamedTuple):
    """Transactional id in the list; `open_ms` is the age of its open transaction."""

    name: str
    node: int
    producer_id: int
    state: str
    open_ms: int | None
    is_long: bool


async def transactions(visit: Visit) -> Response:
    """List transactional ids: those with the oldest open transaction first."""
    query = visit.text("q")
    results = await visit.admin.list_transactions(timeout=TIMEOUT_S)
    listed = [
        (entry.transactional_id, node, entry.producer_id, entry.state)
        for node, entries in results.successes.items()
        for entry in entries
        if query.lower() in entry.transactional_id.lower()
    ]
    open_ids = [name for name, _, _, state in sorted(listed) if state in _OPEN]
    described = await visit.admin.describe_transactions(open_ids[:_MOST_DESCRIBED], timeout=TIMEOUT_S / 2)
    ages = {name: _age(visit, entry) for name, entry in described.successes.items()}
    rows = [
        TransactionRow(name, node, producer_id, state, ages.get(name), (ages.get(name) or 0) > _LONG_MS)
        for name, node, producer_id, state in listed
    ]
    rows.sort(key=lambda row: (-(row.open_ms or -1), row.name))
    return visit.render(
        "transactions.html",
        title="Transactions",
        rows=rows[:_MOST_DESCRIBED],
        count=len(rows),
        query=query,
        errors=[f"Broker {node}: {error}" for node, error in results.errors.items()],
    )


def _age(visit: Visit, transaction: TransactionDescription) -> int | None:
    start = transaction.start_time_ms
    return None if start is None or transaction.state not in _OPEN else max(0, visit.now_ms - start)


async def transaction(visit: Visit) -> Response:
    """Show a transactional id."""
    name = visit.text("id")
    described = (await visit.admin.describe_transactions([name], timeout=TIMEOUT_S))[name]
    return visit.render(
        "transaction.html",
        title=name,
        transaction=described,
        open_ms=_age(visit, described),
        partitions=sorted(described.partitions),
    )


async def show_abort(visit: Visit) -> Response:
    """Ask whether to abort an open transaction."""
    name = visit.text("id")
    described = (await visit.admin.describe_transactions([name], timeout=TIMEOUT_S))[name]
    return visit.confirm(
        f"Abort the transaction of {name}?",
        text=f"The open transaction of {name} is aborted, and its producer is fenced: it fails with its next request. "
        "Consumers of committed records get past the transaction.",
        action=visit.link("/transaction/abort", id=name),
        button="Abort the transaction",
        command=visit.command("transactions", "forceTerminateTransaction", "--transactionalId", name),
        cancel=visit.link("/transaction", id=name),
        titles=("Partition",),
        rows=[(str(partition),) for partition in sorted(described.partitions)],
    )


async def abort(visit: Visit) -> Response:
    """Abort an open transaction."""
    name = visit.text("id")
    visit.change = f"abort transaction of {name}"
    await visit.admin.force_terminate_transaction(name, timeout=TIMEOUT_S)
    return visit.redirect_with_notice(visit.link("/transaction", id=name), f"The transaction of {name} was aborted.")


ROUTES = [
    page("/transactions", transactions),
    page("/transaction", transaction),
    page("/transaction/abort", show_abort),
    change("/transaction/abort", abort),
]
