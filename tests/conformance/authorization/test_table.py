"""The table of rights has all APIs."""

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import api

from .probes import all_probes
from .probes_of_cluster import NO_RIGHT_NEEDED


def test_every_api_is_in_the_table_or_needs_no_right() -> None:
    served = {api.APIS[key].name for key in SERVED}
    rows = {row.api for row in all_probes()}
    assert rows | set(NO_RIGHT_NEEDED) == served
    assert rows & set(NO_RIGHT_NEEDED) == set()


def test_every_version_is_in_a_row() -> None:
    by_api: dict[str, set[int]] = {}
    for row in all_probes():
        by_api.setdefault(row.api, set()).update(row.versions)
    for name, versions in by_api.items():
        first, last = next(SERVED[key].versions for key in SERVED if api.APIS[key].name == name)
        expected = set(range(first, last + 1))
        if name == "CreateDelegationToken":
            expected = {3}  # older versions have no owner: everybody may create tokens of their own
        assert versions == expected, name


def test_names_of_rows_are_different() -> None:
    rows = [str(row) for row in all_probes()]
    assert len(rows) == len(set(rows))
