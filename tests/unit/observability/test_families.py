"""Families as text, read back by prometheus-client."""

from prometheus_client.parser import text_string_to_metric_families

from ottla.observability.families import COUNTER, GAUGE, HISTOGRAM, Buckets, Family, single, text_of


def parsed(*families: Family) -> list[tuple[str, dict[str, str], float]]:
    text = "".join(text_of(families))
    return [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def test_samples_keep_labels_and_values() -> None:
    family = Family("size", GAUGE, "Size.", ("topic", "partition"))
    family.add(7, "a", "0")
    family.add(2.5, "b", "1")
    total = single("requests_total", COUNTER, "Requests.", 3)
    assert parsed(family, total) == [
        ("size", {"topic": "a", "partition": "0"}, 7.0),
        ("size", {"topic": "b", "partition": "1"}, 2.5),
        ("requests_total", {}, 3.0),
    ]


def test_label_values_and_help_are_escaped() -> None:
    family = Family("x", GAUGE, 'a "b"\nc \\', ("client",))
    odd = 'one "two"\\three\nfour'
    family.add(1, odd)
    assert parsed(family) == [("x", {"client": odd}, 1.0)]


def test_buckets_are_cumulative() -> None:
    family = Family("seconds", HISTOGRAM, "Time.", ("request",))
    family.add(Buckets([0.5, 1.0], [2, 0, 1], 4.5), "Fetch")
    labels = {"request": "Fetch"}
    assert parsed(family) == [
        ("seconds_bucket", {**labels, "le": "0.5"}, 2.0),
        ("seconds_bucket", {**labels, "le": "1.0"}, 2.0),
        ("seconds_bucket", {**labels, "le": "+Inf"}, 3.0),
        ("seconds_sum", labels, 4.5),
        ("seconds_count", labels, 3.0),
    ]


def test_families_of_one_name_have_one_header() -> None:
    whole = single("bytes_total", COUNTER, "Bytes.", 5)
    by_topic = Family("bytes_total", COUNTER, "Bytes.", ("topic",))
    by_topic.add(5, "a")
    text = "".join(text_of([whole, by_topic]))
    assert text.count("# TYPE bytes_total counter") == 1
    assert parsed(whole, by_topic) == [("bytes_total", {}, 5.0), ("bytes_total", {"topic": "a"}, 5.0)]


def test_long_families_are_written_in_chunks() -> None:
    family = Family("x", GAUGE, "X.", ("n",))
    for number in range(5000):
        family.add(number, str(number))
    assert len(list(text_of([family]))) == 3
    assert len(parsed(family)) == 5000
