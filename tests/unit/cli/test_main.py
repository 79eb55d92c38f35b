"""`ottla` with a misspelt command."""

import pytest
from click.testing import CliRunner

from ottla.cli.main import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tpics"], "no such command tpics; did you mean topics?"),
        (["cosumer", "--group", "g"], "no such command cosumer; did you mean consumer-groups?"),
        (["transactions", "lst"], "no such command lst; did you mean list?"),
        (["storage", "frmat"], "no such command frmat; did you mean format?"),
        (["pipeline", "rnu"], "no such command rnu; did you mean run?"),
        (["describe"], "no such command describe\n"),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert message in result.stderr
