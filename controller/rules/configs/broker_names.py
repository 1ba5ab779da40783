"""Every setting of a broker of Kafka 3.9: its type and its default. Facts only; `broker` has the rules.

Source: what DescribeConfigs of a broker of Kafka 3.9 tells of a broker in ZooKeeper mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.rules.configs.values import ConfigType

#: type -> `name=default`, or `name` alone for a setting without a default.
_LISTED: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: """
        auto.create.topics.enable=true auto.include.jmx.reporter=true auto.leader.rebalance.enable=true
        broker.id.generation.enable=true controlled.shutdown.enable=true delete.topic.enable=true
        eligible.leader.replicas.enable=false log.cleaner.enable=true log.message.downconversion.enable=true
        log.preallocate=false remote.log.storage.system.enable=false ssl.allow.dn.changes=false
        ssl.allow.san.changes=false transaction.partition.verification.enable=true
        unclean.leader.election.enable=false zookeeper.metadata.migration.enable=false zookeeper.set.acl=false
        zookeeper.ssl.client.enable=false zookeeper.ssl.crl.enable=false zookeeper.ssl.ocsp.enable=false
    """,
    ConfigType.STRING: """
        advertised.listeners authorizer.class.name= broker.rack compression.type=producer
        control.plane.listener.name controller.listener.names early.start.listeners inter.broker.listener.name
        inter.broker.protocol.version=3.9-IV0
        listener.security.protocol.map=SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
        listeners=PLAINTEXT://:9092 log.dir=/tmp/kafka-logs log.dirs log.message.format.version=3.0-IV1
        log.message.timestamp.type=CreateTime max.connections.per.ip.overrides= metadata.log.dir
        metrics.recording.level=INFO password.encoder.cipher.algorithm=AES/CBC/PKCS5Padding
        password.encoder.keyfactory.algorithm
        remote.log.metadata.manager.class.name=org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix=rlmm.config.
        remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix=rsm.config.
        replica.selector.class sasl.kerberos.kinit.cmd=/usr/bin/kinit sasl.kerberos.service.name
        sasl.mechanism.controller.protocol=GSSAPI sasl.mechanism.inter.broker.protocol=GSSAPI
        sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.scope.claim.name=scope sasl.oauthbearer.sub.claim.name=sub
        sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol=PLAINTEXT security.providers
        ssl.client.auth=none ssl.endpoint.identification.algorithm=https ssl.keymanager.algorithm=SunX509
        ssl.keystore.location ssl.keystore.type=JKS ssl.principal.mapping.rules=DEFAULT ssl.protocol=TLSv1.3
        ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm=PKIX ssl.truststore.location
        ssl.truststore.type=JKS zookeeper.clientCnxnSocket zookeeper.connect
        zookeeper.ssl.endpoint.identification.algorithm=HTTPS zookeeper.ssl.keystore.location
        zookeeper.ssl.keystore.type zookeeper.ssl.protocol=TLSv1.2 zookeeper.ssl.truststore.location
        zookeeper.ssl.truststore.type
    """,
    ConfigType.INT: """
        alter.log.dirs.replication.quota.window.num=11 alter.log.dirs.replication.quota.window.size.seconds=1
        background.threads=10 broker.heartbeat.interval.ms=2000 broker.id=-1 broker.session.timeout.ms=9000
        compression.gzip.level=-1 compression.lz4.level=9 compression.zstd.level=3
        connection.failed.authentication.delay.ms=100 controlled.shutdown.max.retries=3
        controller.quorum.append.linger.ms=25 controller.quorum.election.backoff.max.ms=1000
        controller.quorum.election.timeout.ms=1000 controller.quorum.fetch.timeout.ms=2000
        controller.quorum.request.timeout.ms=2000 controller.quorum.retry.backoff.ms=20
        controller.quota.window.num=11 controller.quota.window.size.seconds=1 controller.socket.timeout.ms=30000
        default.replication.factor=1 delete.records.purgatory.purge.interval.requests=1 fetch.max.bytes=57671680
        fetch.purgatory.purge.interval.requests=1000 group.consumer.heartbeat.interval.ms=5000
        group.consumer.max.heartbeat.interval.ms=15000 group.consumer.max.session.timeout.ms=60000
        group.consumer.max.size=2147483647 group.consumer.min.heartbeat.interval.ms=5000
        group.consumer.min.session.timeout.ms=45000 group.consumer.session.timeout.ms=45000
        group.coordinator.append.linger.ms=10 group.coordinator.threads=1 group.initial.rebalance.delay.ms=3000
        group.max.session.timeout.ms=1800000 group.max.size=2147483647 group.min.session.timeout.ms=6000
        group.share.delivery.count.limit=5 group.share.heartbeat.interval.ms=5000
        group.share.max.heartbeat.interval.ms=15000 group.share.max.record.lock.duration.ms=60000
        group.share.max.session.timeout.ms=60000 group.share.min.heartbeat.interval.ms=5000
        group.share.min.record.lock.duration.ms=15000 group.share.min.session.timeout.ms=45000
        group.share.partition.max.record.locks=200 group.share.record.lock.duration.ms=30000
        group.share.session.timeout.ms=45000 initial.broker.registration.timeout.ms=60000
        kafka.metrics.polling.interval.secs=10 leader.imbalance.per.broker.percentage=10
        log.cleaner.io.buffer.size=524288 log.cleaner.threads=1 log.flush.offset.checkpoint.interval.ms=60000
        log.flush.start.offset.checkpoint.interval.ms=60000 log.index.interval.bytes=4096
        log.index.size.max.bytes=10485760 log.retention.hours=168 log.retention.minutes log.roll.hours=168
        log.roll.jitter.hours=0 log.segment.bytes=1073741824 max.connection.creation.rate=2147483647
        max.connections=2147483647 max.connections.per.ip=2147483647
        max.incremental.fetch.session.cache.slots=1000 max.request.partition.size.limit=2000
        message.max.bytes=1048588 metadata.log.segment.bytes=1073741824 metadata.max.idle.interval.ms=500
        metrics.num.samples=2 min.insync.replicas=1 node.id=-1 num.io.threads=8 num.network.threads=3
        num.partitions=1 num.recovery.threads.per.data.dir=1 num.replica.alter.log.dirs.threads
        num.replica.fetchers=1 offset.metadata.max.bytes=4096 offsets.commit.timeout.ms=5000
        offsets.load.buffer.size=5242880 offsets.retention.minutes=10080 offsets.topic.compression.codec=0
        offsets.topic.num.partitions=50 offsets.topic.segment.bytes=104857600 password.encoder.iterations=4096
        password.encoder.key.length=128 producer.id.expiration.ms=86400000
        producer.purgatory.purge.interval.requests=1000 queued.max.requests=500 quota.window.num=11
        quota.window.size.seconds=1 remote.fetch.max.wait.ms=500 remote.log.manager.copier.thread.pool.size=-1
        remote.log.manager.copy.quota.window.num=11 remote.log.manager.copy.quota.window.size.seconds=1
        remote.log.manager.expiration.thread.pool.size=-1 remote.log.manager.fetch.quota.window.num=11
        remote.log.manager.fetch.quota.window.size.seconds=1 remote.log.manager.thread.pool.size=10
        remote.log.metadata.custom.metadata.max.bytes=128 remote.log.reader.max.pending.tasks=100
        remote.log.reader.threads=10 replica.fetch.backoff.ms=1000 replica.fetch.max.bytes=1048576
        replica.fetch.min.bytes=1 replica.fetch.response.max.bytes=10485760 replica.fetch.wait.max.ms=500
        replica.socket.receive.buffer.bytes=65536 replica.socket.timeout.ms=30000
        replication.quota.window.num=11 replication.quota.window.size.seconds=1 request.timeout.ms=30000
        reserved.broker.max.id=1000 sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.oauthbearer.clock.skew.seconds=30 sasl.server.max.receive.size=524288 socket.listen.backlog.size=50
        socket.receive.buffer.bytes=102400 socket.request.max.bytes=104857600 socket.send.buffer.bytes=102400
        telemetry.max.bytes=1048576 transaction.abort.timed.out.transaction.cleanup.interval.ms=10000
        transaction.max.timeout.ms=900000 transaction.remove.expired.transaction.cleanup.interval.ms=3600000
        transaction.state.log.load.buffer.size=5242880 transaction.state.log.min.isr=2
        transaction.state.log.num.partitions=50 transaction.state.log.segment.bytes=104857600
        transactional.id.expiration.ms=604800000 zookeeper.connection.timeout.ms
        zookeeper.max.in.flight.requests=10 zookeeper.session.timeout.ms=18000
    """,
    ConfigType.SHORT: """
        group.share.max.groups=10 group.share.max.size=200 offsets.commit.required.acks=-1
        offsets.topic.replication.factor=3 sasl.login.refresh.buffer.seconds=300
        sasl.login.refresh.min.period.seconds=60 transaction.state.log.replication.factor=3
    """,
    ConfigType.LONG: """
        connections.max.idle.ms=600000 connections.max.reauth.ms=0 controlled.shutdown.retry.backoff.ms=5000
        delegation.token.expiry.check.interval.ms=3600000 delegation.token.expiry.time.ms=86400000
        delegation.token.max.lifetime.ms=604800000 leader.imbalance.check.interval.seconds=300
        log.cleaner.backoff.ms=15000 log.cleaner.dedupe.buffer.size=134217728
        log.cleaner.delete.retention.ms=86400000 log.cleaner.max.compaction.lag.ms=9223372036854775807
        log.cleaner.min.compaction.lag.ms=0 log.dir.failure.timeout.ms=30000
        log.flush.interval.messages=9223372036854775807 log.flush.interval.ms
        log.flush.scheduler.interval.ms=9223372036854775807 log.local.retention.bytes=-2
        log.local.retention.ms=-2 log.message.timestamp.after.max.ms=9223372036854775807
        log.message.timestamp.before.max.ms=9223372036854775807
        log.message.timestamp.difference.max.ms=9223372036854775807 log.retention.bytes=-1
        log.retention.check.interval.ms=300000 log.retention.ms log.roll.jitter.ms log.roll.ms
        log.segment.delete.delay.ms=60000 metadata.log.max.record.bytes.between.snapshots=20971520
        metadata.log.max.snapshot.interval.ms=3600000 metadata.log.segment.ms=604800000
        metadata.max.retention.bytes=104857600 metadata.max.retention.ms=604800000
        metrics.sample.window.ms=30000 offsets.retention.check.interval.ms=600000 queued.max.request.bytes=-1
        remote.log.index.file.cache.total.size.bytes=1073741824
        remote.log.manager.copy.max.bytes.per.second=9223372036854775807
        remote.log.manager.fetch.max.bytes.per.second=9223372036854775807
        remote.log.manager.task.interval.ms=30000 replica.high.watermark.checkpoint.interval.ms=5000
        replica.lag.time.max.ms=30000 sasl.kerberos.min.time.before.relogin=60000
        sasl.login.retry.backoff.max.ms=10000 sasl.login.retry.backoff.ms=100
        sasl.oauthbearer.jwks.endpoint.refresh.ms=3600000
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=10000
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=100 socket.connection.setup.timeout.max.ms=30000
        socket.connection.setup.timeout.ms=10000
    """,
    ConfigType.DOUBLE: """
        log.cleaner.io.buffer.load.factor=0.9 log.cleaner.io.max.bytes.per.second=1.7976931348623157E308
        log.cleaner.min.cleanable.ratio=0.5 sasl.kerberos.ticket.renew.jitter=0.05
        sasl.kerberos.ticket.renew.window.factor=0.8 sasl.login.refresh.window.factor=0.8
        sasl.login.refresh.window.jitter=0.05
    """,
    ConfigType.LIST: """
        controller.quorum.bootstrap.servers= controller.quorum.voters=
        group.consumer.assignors=org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.apache.kafka.coordinator.group.assignor.RangeAssignor
        group.coordinator.rebalance.protocols=classic kafka.metrics.reporters= log.cleanup.policy=delete
        metric.reporters= process.roles= sasl.enabled.mechanisms=GSSAPI
        sasl.kerberos.principal.to.local.rules=DEFAULT sasl.oauthbearer.expected.audience ssl.cipher.suites=
        ssl.enabled.protocols=TLSv1.2,TLSv1.3 zookeeper.ssl.cipher.suites zookeeper.ssl.enabled.protocols
    """,
    ConfigType.CLASS: """
        alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
        principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.server.callback.handler.class ssl.engine.factory.class
    """,
    ConfigType.PASSWORD: """
        delegation.token.master.key delegation.token.secret.key password.encoder.old.secret
        password.encoder.secret sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain
        ssl.keystore.key ssl.keystore.password ssl.truststore.certificates ssl.truststore.password
        zookeeper.ssl.keystore.password zookeeper.ssl.truststore.password
    """,
}  # fmt: skip


def _parsed() -> tuple[dict[str, ConfigType], dict[str, str]]:
    types: dict[str, ConfigType] = {}
    defaults: dict[str, str] = {}
    for type_, listed in _LISTED.items():
        for entry in listed.split():
            name, has_default, default = entry.partition("=")
            types[name] = type_
            if has_default:
                defaults[name] = default
    return types, defaults


#: The type of each setting, and the default of those that have one.
BROKER_CONFIG_TYPES, BROKER_CONFIG_DEFAULTS = _parsed()
