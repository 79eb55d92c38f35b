"""Projects written and read, and what is made of a run's events; no Spark is started."""
# ruff: noqa: E402 - an older PySpark lacks what is imported

import ast
from pathlib import Path

import pytest

from tests.spark import skip_module_before

skip_module_before("4.1")
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.cli.own import pipeline as command
from ottla.extras import install_command
from ottla.spark.pipelines import template
from ottla.spark.pipelines.project import InvalidProject, open_project, read_confs, resolve_confs, static_confs
from ottla.spark.pipelines.report import FlowReport, FlowTracker, RunReport, growth, reason, run_state
from ottla.spark.pipelines.template import FILES, SAMPLE, TABLE_FILES, write_project, write_table_project

# What PySpark 4.3 told of flows, shortened in the middle.
FAILURE = """\
Flow 'to_out' has FAILED.
Error: [STREAM_FAILED] Query [id = c8bd28b8, runId = 0ac01893] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed: \
Traceback (most recent call last):
  File "/x/ottla/spark/source.py", line 57, in streamWriter
    return OttlaStreamWriter(sink_options(self.options, stream=True), schema)
ottla.spark.offsets.InvalidOption: topik is not an option of the ottla sink
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""


def test_the_last_event_of_a_flow_is_its_state() -> None:
    tracker = FlowTracker(("spark_catalog.", "shop."))
    for at, message in enumerate(
        [
            "Flow spark_catalog.shop.bronze is QUEUED.",
            "Flow spark_catalog.shop.bronze is STARTING.",
            "Flow spark_catalog.shop.bronze is RUNNING.",
            "Flow spark_catalog.shop.bronze has COMPLETED.",
            "Flow to_out is STARTING.",
            "Flow to_out has COMPLETED.",
            FAILURE,
            "Flow 'spark_catalog.shop.gold' SKIPPED due to upstream failure(s).",
            "Run is COMPLETED.",
        ]
    ):
        tracker.on_event(message, at * 1.5)
    flows = tracker.flows({"bronze": (4, 1000, None, 0), "to_out": (0, 0, None, None)}, {"bronze": 998, "gold": 3})
    assert flows == (
        FlowReport("bronze", "COMPLETED", 1000, 998, 0, 4, 3.0),
        FlowReport(
            "to_out", "FAILED", 0, None, None, 0, 3.0, "InvalidOption: topik is not an option of the ottla sink"
        ),
        FlowReport("gold", "SKIPPED", None, 3),
    )
    report = RunReport(flows, 12.34567)
    assert report.failure == "flow to_out failed: InvalidOption: topik is not an option of the ottla sink"
    assert (report.document()["state"], report.document()["seconds"]) == ("FAILED", 12.346)


def test_a_flow_that_succeeds_after_a_failure_is_completed() -> None:
    tracker = FlowTracker()
    for at, message in enumerate(["Flow a is STARTING.", "Flow 'a' has FAILED.\nError: x", "Flow a has COMPLETED."]):
        tracker.on_event(message, float(at))
    assert tracker.flows({}, {}) == (FlowReport("a", "COMPLETED", seconds=2.0),)
    assert RunReport(tracker.flows({}, {}), 2.0).failure is None


def test_repeated_failures_of_a_flow_are_reported_once() -> None:
    tracker = FlowTracker()
    tracker.on_event(
        "Flow 'a' has FAILED more than 2 times and will not be restarted.\nError: [X] no SQLSTATE: 42000", 1.0
    )
    assert tracker.flows({}, {})[0].why == "[X] no"
    assert run_state("Run has FAILED.") == "FAILED"
    assert run_state("Flow a is RUNNING.") is None


def test_a_flow_whose_tables_are_not_there_has_failed() -> None:
    tracker = FlowTracker(("spark_catalog.", "shop."))
    message = "Failed to resolve flow: 'spark_catalog.shop.gold'.\nError: [TABLE_OR_VIEW_NOT_FOUND] No view `nope`."
    assert tracker.on_event(message + "\nSearch path: []", 1.0) == ("gold", "FAILED")
    assert tracker.flows({}, {})[0].seconds == 0
    failure = RunReport(tracker.flows({}, {}), 1.0).failure
    assert failure == "flow gold failed: [TABLE_OR_VIEW_NOT_FOUND] No view `nope`."


def test_reasons_are_one_line() -> None:
    assert reason("") == ""
    assert reason("[A] what\nis wrong") == "[A] what"
    assert reason("Traceback (most recent call last):\n  File x\nValueError: bad\n") == "ValueError: bad"
    assert reason("Traceback (most recent call last):\n  File x\n") == "Traceback (most recent call last):"


def test_growth_is_the_difference_of_row_counts() -> None:
    assert growth({"a": 5, "b": 2, "gone": 1}, {"a": 9, "b": 3, "new": 4}, ["b"]) == {"a": 4, "b": 3, "new": 4}


def test_a_project_is_written_and_found_from_below(tmp_path: Path) -> None:
    root = tmp_path / "web-shop"
    assert set(write_project(root, "broker:9092", "in", "out")) == set(FILES)
    project = open_project(root / "transformations", {"web_shop.source": "other"})
    assert (project.root, project.spec.name, project.spec.database) == (root.resolve(), "web-shop", "web_shop")
    assert project.configuration["web_shop.bootstrap.servers"] == "broker:9092"
    assert (project.configuration["web_shop.source"], project.configuration["web_shop.target"]) == ("other", "out")
    assert read_confs(root) == static_confs(root)
    assert read_confs(tmp_path) == {}
    for name in FILES:
        if name.endswith(".py"):
            ast.parse((root / name).read_text())
    # Settings that Spark must be started with make every flow fail when they stand in the spec.
    assert not set(static_confs(root)) & set(project.spec.configuration)


def test_a_project_can_be_moved(tmp_path: Path) -> None:
    """`pipeline init` wrote absolute paths: a project that was moved or cloned ran on the old folder's tables."""
    root = tmp_path / "shop"
    write_project(root, "broker:9092", "in", "out")
    for name in FILES:
        assert str(tmp_path) not in (root / name).read_text(encoding="utf-8"), name
    moved = root.rename(tmp_path / "moved")
    assert open_project(moved).storage == f"file://{moved.resolve()}/data/checkpoints"
    confs = read_confs(moved)
    assert confs == static_confs(moved)
    assert confs["spark.sql.warehouse.dir"] == f"file://{moved.resolve()}/data/warehouse"
    assert (
        f"databaseName={moved.resolve()}/data/catalog;create=true"
        in confs["spark.hadoop.javax.jdo.option.ConnectionURL"]
    )


@pytest.mark.parametrize("has_limit", [False, True])
def test_a_project_limits_its_batches_where_this_pyspark_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_limit: bool
) -> None:
    """A new project failed on PySpark 4.1, which refuses the limit."""
    monkeypatch.setattr(template, "HAS_ADMISSION_CONTROL", has_limit)
    write_project(tmp_path / "shop", "broker:9092", "in", "out")
    bronze = (tmp_path / "shop/transformations/bronze.py").read_text(encoding="utf-8")
    ast.parse(bronze)
    assert ("maxOffsetsPerTrigger" in bronze) == has_limit


def test_absolute_paths_of_settings_stay(tmp_path: Path) -> None:
    confs = {
        "spark.sql.warehouse.dir": "s3a://bucket/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=/srv/catalog;create=true",
        "spark.driver.extraJavaOptions": "-Xmx1g -Dderby.stream.error.file=logs/derby.log -Xss4m",
    }
    resolved = resolve_confs(confs, tmp_path)
    assert resolved == confs | {
        "spark.driver.extraJavaOptions": f"-Xmx1g -Dderby.stream.error.file={tmp_path}/logs/derby.log -Xss4m"
    }


def test_sample_data_breaks_each_kind_of_rule(tmp_path: Path) -> None:
    write_project(tmp_path / "shop", "b", "i", "o")
    lines = (tmp_path / "shop" / SAMPLE).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6
    assert sum('"amount": -' in line or not line.startswith("{") for line in lines) == 2


def test_invalid_projects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match=r"no spark-pipeline\.yml in"):
        open_project(tmp_path)
    for text in ("name: [", "name: x", "name: x\nstorage: y\nfoo: 1", "name: x\nstorage: y\nlibraries: [1]", "7"):
        (tmp_path / "spark-pipeline.yml").write_text(text)
        with pytest.raises(InvalidProject) as caught:
            open_project(tmp_path)
        assert "\n" not in str(caught.value)
    with pytest.raises(InvalidProject, match="already exists"):
        write_project(tmp_path, "b", "i", "o")
    with pytest.raises(InvalidProject, match="begins with a letter"):
        write_project(tmp_path / "7up", "b", "i", "o")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "nowhere"], "--metrics requires HOST:PORT"),
        (["--conf", "x"], "--conf requires NAME=VALUE"),
        (["--full-refresh-all", "--refresh", "a"], "cannot be combined with --refresh"),
        (["--dry-run", "--continuous"], "--dry-run runs nothing"),
        (["--remote", "sc://h", "--master", "local"], "--remote uses a running Spark"),
        (["--interval", "-1"], "--interval must not be negative"),
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    write_project(tmp_path / "shop", "b", "i", "o")
    result = CliRunner().invoke(main, ["pipeline", "run", str(tmp_path / "shop"), *arguments])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_a_folder_without_a_project_is_one_line_and_exit_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "run", str(tmp_path)])
    assert (result.exit_code, result.output) == (1, f"ottla: no spark-pipeline.yml in {tmp_path} or above it\n")
    result = CliRunner().invoke(main, ["pipeline", "init", str(tmp_path)])
    assert (result.exit_code, "already exists" in result.output or "a project name" in result.output) == (1, True)


@pytest.mark.parametrize("words", [["init", "shop", "--table", "delta"], ["status"], ["compact"]], ids=str)
def test_a_command_without_deltalake_names_the_extra(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "is_installed", lambda package: package != "deltalake")
    result = CliRunner().invoke(main, ["pipeline", *words])
    reason = f"ottla: Delta tables need deltalake: {install_command('delta')}\n"
    assert (result.exit_code, result.output) == (1, reason)


def test_a_project_of_tables_is_written(tmp_path: Path) -> None:
    assert write_table_project(tmp_path / "web-shop", "broker:9092", "in") == list(TABLE_FILES)
    project = open_project(tmp_path / "web-shop")
    assert project.servers == "broker:9092"
    assert project.configuration["web_shop.tables"] == "data/tables"
    for name in TABLE_FILES:
        text = (tmp_path / "web-shop" / name).read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        if name.endswith(".py"):
            ast.parse(text)


def test_a_table_takes_the_place_of_the_topic(tmp_path: Path) -> None:
    words = ["pipeline", "init", str(tmp_path / "shop"), "--table", "delta", "--to", "large"]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "cannot be combined with --to" in result.output) == (2, True)
