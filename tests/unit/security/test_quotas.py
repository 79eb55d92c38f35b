"""Rates, buckets and who shares them; that Apache Kafka reckons the same is in tests/conformance/test_throttling.py."""

import time

import pytest

from ottla.security.quotas import (
    CLIENT_ID,
    CONTROLLER_MUTATION_RATE,
    MOST_RATES,
    PRODUCER_BYTE_RATE,
    ConnectionQuota,
    Entity,
    MutationQuota,
    QuotaLimits,
    Quotas,
    Rate,
    RateQuota,
    TokenBucket,
    Window,
    entity_of,
)

WINDOW = Window(11, 1000)


def test_the_first_window_counts_as_ten() -> None:
    rate = Rate(WINDOW)
    rate.record(30_000, 0)
    assert (rate.per_second(0), rate.span(0)) == (3000, 10_000)
    assert rate.throttle_ms(2000, 0) == 5000
    assert rate.throttle_ms(3000, 0) == 0


def test_a_rate_falls_with_time_and_is_forgotten_after_all_windows() -> None:
    rate = Rate(WINDOW)
    rate.record(22_000, 500)
    assert rate.span(1000) == 10_500
    assert rate.per_second(10_499) == pytest.approx(22_000 / 10.999)
    assert rate.per_second(11_500) == 0
    assert rate.is_idle(11_500)


def test_windows_begin_with_the_first_recorded_value() -> None:
    rate = Rate(WINDOW)
    for now in (0, 900, 2500, 3499, 3500):
        rate.record(1000, now)
    assert rate.span(3500) == 10_500  # three windows of eleven are full, seven more are taken for granted
    assert rate.per_second(3500) == pytest.approx(5000 / 10.5)
    rate.record(-1000, 3600)
    assert rate.per_second(3600) == pytest.approx(4000 / 10.6)


def test_a_bucket_is_overdrawn_once_and_fills() -> None:
    bucket = TokenBucket(WINDOW, 2.0, 0)
    assert bucket.tokens(2.0, 0) == 22
    bucket.take(25, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 1500
    assert bucket.throttle_ms(2.0, 1500) == 0
    assert bucket.tokens(2.0, 100_000) == 22


def mutations(limit: float) -> MutationQuota:
    return MutationQuota(
        QuotaLimits(CONTROLLER_MUTATION_RATE, {(("client-id", "c"),): {CONTROLLER_MUTATION_RATE: limit}}), WINDOW
    )


def test_mutations_strictly() -> None:
    quota = mutations(1.0)
    assert quota.take("u", "c", 12, 0, strict=True) == (True, 0)
    assert quota.take("u", "c", 1, 0, strict=True) == (False, 1000)
    assert quota.take("u", "c", 1, 1000, strict=True) == (True, 0)
    assert quota.take("u", "other", 1_000_000, 0, strict=True) == (True, 0)


def test_mutations_of_old_clients() -> None:
    quota = mutations(1.0)
    assert quota.take("u", "c", 12, 0, strict=False) == (True, 1000)
    assert quota.take("u", "c", 1, 0, strict=False) == (True, 2000)


def test_clients_that_take_ever_new_ids_do_not_use_up_the_memory() -> None:
    limits = QuotaLimits(CONTROLLER_MUTATION_RATE, {entity(client_id=None): {CONTROLLER_MUTATION_RATE: 1.0}})
    quota = MutationQuota(limits, WINDOW)
    assert quota.take("u", "greedy", 100, 0, strict=True) == (True, 0)
    for number in range(5000):
        quota.take("u", f"c{number}", 1, number * 10, strict=True)
    assert len(quota._buckets) < 2500
    assert quota.take("u", "greedy", 1, 50_000, strict=True)[0] is False  # its bucket was not full


def entity(user: str | None = "", client_id: str | None = "") -> Entity:
    return entity_of((kind, name) for kind, name in (("user", user), ("client-id", client_id)) if name != "")


PRECEDENCE = [
    (entity("u", "c"), ("u", "c")),
    (entity("u", None), ("u", "c")),
    (entity("u"), ("u", "")),
    (entity(None, "c"), ("u", "c")),
    (entity(None, None), ("u", "c")),
    (entity(None), ("u", "")),
    (entity(client_id="c"), ("", "c")),
    (entity(client_id=None), ("", "c")),
]


@pytest.mark.parametrize("most", range(len(PRECEDENCE)))
def test_the_most_specific_limit_wins(most: int) -> None:
    quotas = {key: {PRODUCER_BYTE_RATE: float(number)} for number, (key, _) in enumerate(PRECEDENCE) if number >= most}
    quotas[entity("u", "c")] = quotas.get(entity("u", "c"), {}) | {"consumer_byte_rate": 1.0}
    limits = QuotaLimits(PRODUCER_BYTE_RATE, quotas)
    assert limits.of("u", "c") == (PRECEDENCE[most][1], float(most))


def test_the_limit_of_an_entity_does_not_apply_to_others() -> None:
    limits = QuotaLimits(PRODUCER_BYTE_RATE, {entity("u", "c"): {PRODUCER_BYTE_RATE: 1.0}})
    assert (limits.of("u", "d"), limits.of("v", "c"), limits.of("", "")) == (None, None, None)


def test_clients_of_one_user_share_what_the_user_has() -> None:
    quota = RateQuota(QuotaLimits(PRODUCER_BYTE_RATE, {entity(None): {PRODUCER_BYTE_RATE: 1000.0}}), WINDOW)
    assert quota.record("u", "a", 10_000, 0) == 0
    assert quota.record("v", "a", 10_000, 0) == 0
    assert quota.record("u", "b", 1_000, 0) == 1000
    quota.take_back("u", "b", 1_000, 0)
    assert quota.record("u", "b", 0, 0) == 0


def test_throttle_times_may_be_bounded() -> None:
    limits = QuotaLimits(PRODUCER_BYTE_RATE, {entity("u"): {PRODUCER_BYTE_RATE: 1.0}})
    assert RateQuota(limits, WINDOW, 1000).record("u", "", 1e9, 0) == 1000


def test_rates_of_idle_clients_are_forgotten() -> None:
    quota = RateQuota(QuotaLimits(PRODUCER_BYTE_RATE, {entity(client_id=None): {PRODUCER_BYTE_RATE: 1000.0}}), WINDOW)
    for number in range(1000):
        quota.record("u", f"c{number}", 1, 0)
    for number in range(1000):
        quota.record("u", f"late{number}", 1, 20_000)
    assert len(quota._rates) <= 1001
    assert all(client_id.startswith("late") for _, client_id in quota._rates)


def test_connections_of_one_address() -> None:
    quota = ConnectionQuota({"10.0.0.1": 1.0, None: 2.0}, WINDOW)
    assert [quota.record("10.0.0.1", 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert [quota.record("10.0.0.2", 0) for _ in range(21)] == [0] * 20 + [500]
    assert quota.record("10.0.0.1", 11_000) == 0
    assert ConnectionQuota({"10.0.0.1": 1.0}, WINDOW).record("10.0.0.3", 0) == 0


def test_clients_with_ever_new_ids_take_bounded_memory_and_time() -> None:
    """The rates of a window were gone through for each new client id."""
    window = Window(11, 1000)
    quotas: Quotas = {((CLIENT_ID, None),): {"producer_byte_rate": 1000.0, "controller_mutation_rate": 10.0}}
    rates = RateQuota(QuotaLimits("producer_byte_rate", quotas), window)
    mutations = MutationQuota(QuotaLimits("controller_mutation_rate", quotas), window)
    connections = ConnectionQuota({None: 10.0}, window)
    begin = time.process_time()
    for number in range(30_000):
        rates.record("", str(number), 100, number // 100)
        mutations.take("", str(number), 1, number // 100, strict=True)
        connections.record(str(number), number // 100)
        rates.record("", "busy", 100, number // 100)
    assert time.process_time() - begin < 5
    assert len(rates._rates) == len(mutations._buckets) == len(connections._rates) == MOST_RATES
    assert rates.record("", "busy", 0, 300) > 0, "the usage of a busy client was forgotten"
