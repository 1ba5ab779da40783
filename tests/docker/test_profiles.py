"""The profiles of docker-compose.yml beside the cluster: the page, Prometheus and Grafana."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
import yaml

from tests.docker.conftest import PROJECT, ROOT, container, docker
from tests.docker.life import get

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
PROFILES = sorted({profile for service in SERVICES.values() for profile in service.get("profiles", ())})
#: Asks all that answer to each name for their pages of metrics, from within the network.
SCRAPE = """
import socket, sys, urllib.request
for target in sys.argv[1:]:
    name, _, port = target.partition(":")
    for address in socket.gethostbyname_ex(name)[2]:
        with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=20) as page:
            text = page.read().decode()
        print(f"{address}:{port}", sum(line.startswith("kafka_") for line in text.splitlines()))
"""


@pytest.mark.parametrize("profile", ["*", *PROFILES])
def test_a_profile_is_valid(profile: str) -> None:
    ran = docker("compose", "--project-name", PROJECT, "--profile", profile, "config", "--quiet")
    assert ran.returncode == 0, ran.stderr


def test_the_page_shows_the_cluster(cluster: Any) -> None:
    cluster.compose("--profile", "ui", "up", "--detach", "--wait", "ui")
    try:
        assert "<title>kwob" in get("http://localhost:8090/")

        def all_there() -> bool:
            with urllib.request.urlopen("http://localhost:8090/api/stream", timeout=20) as stream:
                return any(container("broker", 3).encode() in stream.readline() for _ in range(40))

        cluster.eventually("the page knows broker 3 by its address", all_there)
    finally:
        cluster.compose("rm", "--stop", "--force", "ui")


def test_every_target_of_prometheus_serves_a_page(cluster: Any) -> None:
    text = (ROOT / "docs" / "monitoring" / "compose" / "prometheus.yml").read_text(encoding="utf-8")
    (job,) = yaml.safe_load(text)["scrape_configs"]
    controllers = [target for group in job["static_configs"] for target in group["targets"]]
    (names,) = job["dns_sd_configs"]
    assert (names["names"], names["port"]) == (["broker"], 9400)
    said = cluster.compose("run", "--rm", "--entrypoint", "python", "tools", "-c", SCRAPE, *controllers, "broker:9400")
    counts = dict(line.split() for line in said.splitlines() if ":9400 " in line)
    assert len(counts) == 5 and all(int(count) > 20 for count in counts.values()), counts


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_monitoring_mounts_files_that_are_there(service: str) -> None:
    mounted = [volume.split(":")[0] for volume in SERVICES[service]["volumes"] if volume.startswith("./")]
    assert mounted and [path for path in mounted if not (ROOT / path).is_file()] == []


def test_prometheus_and_grafana_have_the_cluster(cluster: Any) -> None:
    for name in ("prometheus", "grafana"):
        image = SERVICES[name]["image"]
        if docker("image", "inspect", image).returncode != 0 and docker("pull", "--quiet", image).returncode != 0:
            pytest.skip(f"the image {image} is not here and cannot be pulled")
    cluster.compose("--profile", "monitoring", "up", "--detach", "prometheus", "grafana")
    try:

        def targets_up() -> int:
            answer = json.loads(get("http://localhost:9090/api/v1/query?query=sum(up)"))
            return int(answer["data"]["result"][0]["value"][1]) if answer["data"]["result"] else 0

        cluster.eventually("all five nodes are up", lambda: targets_up() == 5)
        rules = json.loads(get("http://localhost:9090/api/v1/rules"))["data"]["groups"]
        assert [rule["health"] for group in rules for rule in group["rules"] if rule["health"] == "err"] == []
        found = json.loads(get("http://localhost:3000/api/search?type=dash-db"))
        assert [each["uid"] for each in found] == ["kwob"]
    finally:
        cluster.compose("rm", "--stop", "--force", "grafana", "prometheus")
