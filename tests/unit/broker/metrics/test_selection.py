"""Topics whose metrics are exported one by one."""

from ottla.broker.metrics import selection
from ottla.broker.metrics.selection import TopicSelection


def test_all_topics_are_selected_up_to_a_number_of_partitions() -> None:
    partitions = {f"t{number:03}": 100 for number in range(selection.MOST_PARTITIONS // 100 + 5)}
    selected = TopicSelection().of(partitions)
    assert sum(partitions[name] for name in selected) == selection.MOST_PARTITIONS
    assert "t000" in selected
    assert max(partitions) not in selected


def test_names_and_patterns_select_topics() -> None:
    partitions = dict.fromkeys(("orders", "orders-2", "payments-eu", "payments-us", "other"), 1)
    assert TopicSelection("orders, payments-*").of(partitions) == {"orders", "payments-eu", "payments-us"}


def test_dots_of_names_are_no_patterns() -> None:
    assert TopicSelection("a.b").of({"a.b": 1, "axb": 1}) == {"a.b"}
