"""Logarithmic distributions and their recent quantiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.observability.distribution import Distribution, Recent, lower_bound, quantile


@given(st.integers(2, 2**62))
def test_a_value_is_counted_in_the_bucket_that_holds_it(value: int) -> None:
    distribution = Distribution()
    distribution.record(value)
    bucket = distribution.counts.index(1)
    assert lower_bound(bucket) <= value < lower_bound(bucket + 1)
    assert (distribution.count, distribution.total) == (1, value)


def test_buckets_have_two_bounds_in_each_factor_of_two() -> None:
    assert [lower_bound(bucket) for bucket in (0, 2, 4, 5, 6, 7, 8, 9)] == [0, 1, 2, 3, 4, 6, 8, 12]


@given(st.lists(st.integers(1, 10**9), min_size=1), st.sampled_from([0.5, 0.75, 0.95, 0.99, 0.999]))
def test_a_quantile_is_within_a_factor_of_the_exact_one(values: list[int], fraction: float) -> None:
    distribution = Distribution()
    for value in values:
        distribution.record(value)
    rank = max(1, -(-int(fraction * len(values) * 1000) // 1000))
    exact = sorted(values)[min(len(values), rank) - 1]
    assert exact / 2 <= quantile(distribution.counts, fraction) <= exact * 2 or len(values) > 1


def test_a_quantile_without_values_is_zero() -> None:
    assert quantile(Distribution().counts, 0.99) == 0.0


def test_recent_counts_leave_out_what_is_older_than_a_minute() -> None:
    distribution = Distribution()
    recent = Recent(lambda: list(distribution.counts))
    distribution.record(100)
    assert sum(recent.counts(0)) == 1
    distribution.record(100)
    assert sum(recent.counts(30_000)) == 2
    distribution.record(7)
    assert sum(recent.counts(61_000)) == 2
    assert sum(recent.counts(95_000)) == 1


def test_readings_at_short_intervals_do_not_shorten_the_time() -> None:
    distribution = Distribution()
    recent = Recent(lambda: list(distribution.counts))
    for second in range(200):
        distribution.record(1)
        counted = sum(recent.counts(second * 1000))
    assert 60 <= counted <= 75


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_the_ends_of_a_distribution_are_its_outer_buckets(fraction: float) -> None:
    distribution = Distribution()
    for value in (4, 1000):
        distribution.record(value)
    assert quantile(distribution.counts, fraction) in (4.0, 1024.0)
