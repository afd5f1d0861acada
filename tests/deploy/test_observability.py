"""Alert rules and dashboards: of metrics that there are, and as Prometheus wants them."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from foldline.processors.worker_health import Health
from foldline.processors.worker_metrics import WorkerMetrics
from foldline.projections.fleet_states import COMPARISONS
from foldline.projections.metric_names import (
    CONSUMER,
    COUNTER,
    FAMILIES,
    FLEET,
    HISTOGRAM,
    is_open,
    known_word,
)
from foldline.projections.service_metrics import Metrics
from foldline.schemas.verdicts import VERDICT_KINDS
from tests.deploy import compose
from tests.deploy.compose import asked, prometheus_jobs
from tests.deploy.promtool import MISSING, find_promtool

FOLDER = compose.ROOT / "deploy" / "observability"
DASHBOARDS = sorted((FOLDER / "grafana" / "dashboards").glob("*.json"))
ALERTS = FOLDER / "alerts.yml"
GRID = 24

_METRIC = re.compile(r"\bfoldline_[a-z0-9_]+\b")
_SELECTOR = re.compile(r"\b(foldline_[a-z0-9_]+)\{([^}]*)\}")
_MATCHER = re.compile(r"([a-z_]+)(?:=~|!~|!=|=)\"([^\"]*)\"")
_SUFFIXES = {COUNTER: ("_total",), HISTOGRAM: ("_bucket", "_sum", "_count")}

every_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda p: p.stem)


def panels_of(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["panels"]


def expressions_of(path: Path) -> list[str]:
    return [t["expr"] for panel in panels_of(path) for t in panel.get("targets", ())]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def words_of(metric: str, label: str) -> Sequence[str] | None:
    """What a label's value may be, where its words are few; else None."""
    match metric, label:
        case "foldline_worker_partitions", "phase":
            families = WorkerMetrics(list).registry.collect()
            found = next(family for family in families if family.name == metric)
            return [sample.labels["phase"] for sample in found.samples]
        case "foldline_fleet_states_compared_total", "result":
            return COMPARISONS
        case "foldline_fleet_loop_verdicts_total", "verdict":
            return VERDICT_KINDS
        case _:
            return None


def is_word(metric: str, label: str, word: str) -> bool:
    family = FAMILIES.get(metric.removeprefix("foldline_").removesuffix("_total"))
    if family is not None and label in family.labels and not is_open(label):
        return known_word(family, label, word) == word
    words = words_of(metric, label)
    return words is None or word in words


def known_metrics() -> set[str]:
    """Every series that any part of foldline shows."""
    names = {
        family.shown + suffix
        for family in (FAMILIES | CONSUMER | FLEET).values()
        for suffix in _SUFFIXES.get(family.kind, ("",))
    }
    for registry in (WorkerMetrics(list).registry, Metrics().registry):
        names |= set(_series(generate_latest(registry).decode()))
    return names | set(_series(Health().text().decode()))


def _series(text: str) -> Iterator[str]:
    for family in text_string_to_metric_families(text):
        for suffix in _SUFFIXES.get(family.type, ("",)):
            yield family.name + suffix


def promtool(*words: str) -> None:
    program = find_promtool()
    if program is None:
        pytest.skip(MISSING)
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, check=False, cwd=FOLDER
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_at_no_other_time() -> None:
    promtool("check", "rules", ALERTS.name)
    promtool("test", "rules", "alerts.test.yml")


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tests = (FOLDER / "alerts.test.yml").read_text(encoding="utf-8")
    for alert in alerts():
        assert alert["alert"] in tests
        assert alert["annotations"]["action"]
        assert alert["labels"]["severity"] in ("critical", "warning", "info")


def test_the_docs_say_of_every_alert_what_it_means_what_to_do_and_what_it_guards() -> None:
    page = (compose.ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    levels = re.findall(r"^\| ([a-z]+) \| [^|]+ \|$", page, re.MULTILINE)
    rows = re.findall(
        r"^\| (Foldline\w+) \| (\w+) \| [^|]+ \| [^|]+ \| (\w+) \|$", page, re.MULTILINE
    )
    wanted = [(a["alert"], a["labels"]["severity"]) for a in alerts()]
    assert [(name, severity) for name, severity, _ in rows] == wanted
    assert {level for _, _, level in rows} == set(levels) - {"level"}


def test_prometheus_takes_its_configuration() -> None:
    promtool("check", "config", "--syntax-only", "prometheus.yml")


@every_dashboard
def test_every_expression_of_a_dashboard_is_one(path: Path, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{n}", "expr": text.replace("$__rate_interval", "5m")}
        for n, text in enumerate(expressions_of(path))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))


@pytest.mark.parametrize("path", [*DASHBOARDS, ALERTS], ids=lambda p: p.stem)
def test_every_metric_that_is_named_is_there(path: Path) -> None:
    if path == ALERTS:
        text = "\n".join(alert["expr"] for alert in alerts())
    else:
        text = "\n".join(expressions_of(path))
    named = set(_METRIC.findall(text))
    assert len(named) > 5
    assert named - known_metrics() == set()


@pytest.mark.parametrize(
    "path", [*DASHBOARDS, ALERTS, ALERTS.with_suffix(".test.yml")], ids=lambda p: p.name
)
def test_every_word_that_is_asked_for_is_one_that_a_label_has(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('\\"', '"')
    unknown = [
        (metric, label, word)
        for metric, matchers in _SELECTOR.findall(text)
        for label, words in _MATCHER.findall(matchers)
        for word in words.split("|")
        if not is_word(metric, label, word)
    ]
    assert unknown == []


@every_dashboard
def test_a_dashboard_can_be_laid_out(path: Path) -> None:
    panels = panels_of(path)
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= GRID
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboards_ask_a_source_that_is_provisioned() -> None:
    file = FOLDER / "grafana" / "provisioning" / "datasources" / "foldline.yml"
    sources = {s["uid"] for s in yaml.safe_load(file.read_text())["datasources"]}
    used = {
        panel["datasource"]["uid"]
        for path in DASHBOARDS
        for panel in panels_of(path)
        if "datasource" in panel
    }
    assert used
    assert used <= sources


def test_what_prometheus_asks_is_what_compose_starts() -> None:
    services = compose.services()
    for name, port in map(asked, prometheus_jobs().values()):
        service = services[name]
        told = {*service["command"], service["environment"].get("FOLDLINE_HEALTH_PORT")}
        assert {f"0.0.0.0:{port}", str(port)} & told, name


def test_everything_that_compose_starts_is_asked_by_prometheus() -> None:
    running = compose.ours(compose.services()).keys() - {"init"}
    assert {asked(job)[0] for job in prometheus_jobs().values()} == running


def test_what_is_asked_by_its_name_is_started_with_prometheus_or_the_log() -> None:
    """Its name would not be found where its profile is not started: down for ever."""
    by_name = [
        asked(job)[0] for job in prometheus_jobs().values() if "static_configs" in job
    ]
    services = compose.services()
    assert by_name
    assert all({"core", "obs"} & set(services[name]["profiles"]) for name in by_name)


def test_every_job_has_an_alert_that_it_is_down() -> None:
    down = {"FoldlineWorkerDown", "FoldlineConsumerDown"}
    expressions = [rule["expr"] for rule in alerts() if rule["alert"] in down]
    found = [m for e in expressions for m in re.findall(r'job=~?"([^"]+)"', e)]
    for job in prometheus_jobs():
        assert any(re.fullmatch(pattern, job) for pattern in found), job


def test_spans_go_where_they_are_waited_for() -> None:
    collector = yaml.safe_load((FOLDER / "otel-collector.yml").read_text())
    tempo = yaml.safe_load((FOLDER / "tempo.yml").read_text())
    (sent_to,) = [w for w in compose.services()["traces"]["command"] if "collector" in w]
    takes = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert sent_to == f"http://collector:{takes.rpartition(':')[2]}"
    assert set(collector["service"]["pipelines"]["traces"]["processors"]) == {
        "memory_limiter"
    }
    exporter = collector["exporters"]["otlp"]
    for name in ("sending_queue", "retry_on_failure"):  # its 200 is the backend's own
        assert exporter[name] == {"enabled": False}
    passed_on = collector["exporters"]["otlp"]["endpoint"]
    kept_at = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert passed_on == f"tempo:{kept_at.rpartition(':')[2]}"
