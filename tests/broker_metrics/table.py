"""docs/metrics.md: every metric of a real broker, with the process of ours that has it, or why there is none.

python -m tests.broker_metrics.table > docs/metrics.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tests.broker_metrics.pages import Row, recorded, rows
from tests.broker_metrics.running import running_cluster

#: Patterns of names that no process of ours has, each with the reason.
LEFT_OUT: Final = {
    r"kafka_coordinator_transaction_.*": "there are no transactions",
    r"kafka_server_addpartitionstotxnmanager_.*": "there are no transactions",
    r"kafka_log_logcleaner(manager)?_.*|kafka_utils_throttler_cleaner_io.*": "of the threads of Kafka's cleaner",
    r"kafka_log_logflushstats_.*": "flushes are not timed",
    r"kafka_network_acceptor_.*|kafka_network_processor_.*|kafka_network_requestchannel_.*": "of threads that "
    "an event loop does not have",
    r"kafka_network_socketserver_(.*idlepercent|.*expiredconnectionskilledcount)": "of threads and logins that "
    "there are not",
    r"kafka_network_requestmetrics_(messageconversionstimems|temporarymemorybytes).*": "old formats are not served",
    r"kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_count": "a count of nanoseconds",
    r"kafka_server_brokertopicmetrics_(invalid.*|nokey.*)_total": "refused batches are not counted by cause; see "
    "failedproducerequests",
    r"kafka_server_delayedfetchmetrics_.*": "fetches that time out are not counted apart",
    r"kafka_server_fetcherstats_.*": "its label has the fetcher's id in its name, which no query can use",
    r"kafka_server_replica(fetchermanager|alterlogdirsmanager)_minfetchrate": "a rate of one minute",
    r"kafka_server_replicaalterlogdirsmanager_failedpartitionscount": "a copy fails with its directory",
    r"kafka_server_kafkaserver_(linux|yammer).*": "of the JVM; process_* has CPU, memory and open files",
    r"kafka_server_metadataloader_.*": "of KRaft",
    r"kafka_controller_controllerstats_updatefeatures.*": "features are not updated in ZooKeeper mode at 2.6",
}
#: Names that Kafka has not.
OURS: Final = (
    "kafka_controller_controllerchannelmanager_requestfailures_total",
    "kafka_controller_controllerchannelmanager_requests_total",
    "kafka_controller_controllereventmanager_faults_total",
    "kafka_server_sessionexpirelistener_sessionstate",
)
_HEAD: Final = """\
# Metrics

`kwob controller run --metrics-listener H:P` and `kwob broker run --metrics-listener H:P` serve a page for Prometheus at
`/metrics` (`kwob up --metrics-port P`: the brokers from P on, then the controllers). Names and labels are those that
jmx_exporter's usual rules for Kafka (kafka-2_0_0.yml) give, so that dashboards made for Kafka show a cluster of kwob.
A timer's quantiles are gauges there; its _count is so called by version 0.20 of the exporter, and version 1 adds
_total; ours has a _sum, too, and so a mean over any span. remotetimems is the time in which a handler waited for
replicas, records, other members or ZooKeeper, localtimems the time in which it worked.

[monitoring](monitoring.md) has a dashboard for Grafana, alert rules and a configuration of Prometheus; a test asks a
running cluster for each of their metrics.

The table is made from the code and from a recorded page of a real Kafka 3.9.1, and a test compares them: `make docs`.

| metric | labels | type | where |
| --- | --- | --- | --- |
"""


def reason(name: str) -> str | None:
    """Why no process of ours has that metric; None when one should."""
    return next((text for pattern, text in LEFT_OUT.items() if re.fullmatch(pattern, name)), None)


def table(brokers: set[Row], controllers: set[Row], kafka: Iterable[Row]) -> str:
    """The page."""
    lines = []
    for row in sorted(kafka):
        places = [word for word, has in (("broker", brokers), ("controller", controllers)) if row in has]
        where = ", ".join(places) or f"none: {reason(row.name)}"
        lines.append(f"| {row.name} | {', '.join(row.labels)} | {row.kind} | {where} |")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Prints it."""
    with running_cluster() as running:
        pages = {name: rows(running.page(name)) for name in running.cluster.metrics}
    brokers = {row for name, found in pages.items() if name.startswith("broker") for row in found}
    print(table(brokers, pages["controller-901"], recorded()), end="")


if __name__ == "__main__":
    main()
