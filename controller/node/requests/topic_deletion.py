"""DeleteTopics (20), versions 0 to 4. Answered once the deletion has started everywhere brokers can see, not when the
znodes are gone: a topic created again at once may still be "marked for deletion".

Source: spec broker.md §16.4, controller.md §10.1, §16 (25); Kafka 3.9 `ZkAdminManager.deleteTopics`.
"""

from __future__ import annotations

from typing import Final

from controller.node.requests.context import Body, Node, check_written
from controller.wire import znodes
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.zk_operations import Create, Exists, ZkCode

#: Before this version a disabled deletion was INVALID_REQUEST.
_KNOWS_DISABLED: Final = 3
_DISABLED_TEXT: Final = "Topic deletion is disabled."


async def handle_delete_topics(node: Node, request: Request) -> Body:
    """Marks topics for deletion and waits until they are gone from metadata, or the time is over."""
    node.check_active()
    if not node.properties.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if request.api_version < _KNOWS_DISABLED:
            code = ErrorCode.INVALID_REQUEST
        raise KafkaError(code, _DISABLED_TEXT)
    timeout_ms = request.body.timeout
    results: dict[str, ErrorCode] = {}
    for name in request.body.topic_names:
        if name not in results:
            try:
                await _mark(node, name)
            except KafkaError as error:
                results[name] = error.code
            else:
                results[name] = ErrorCode.NONE
    waiting = [name for name, code in results.items() if code is ErrorCode.NONE]
    if waiting and timeout_ms > 0:
        await node.wait(lambda: all(_is_gone(node, name) for name in waiting), timeout_ms)
    for name in waiting:
        if timeout_ms <= 0 or not _is_gone(node, name):
            results[name] = ErrorCode.REQUEST_TIMED_OUT
    return {"responses": [{"name": name, "error_code": results[name]} for name in request.body.topic_names]}


def delete_topics_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each topic."""
    rows = [{"name": name, "error_code": code, "error_message": message} for name in request.body.topic_names]
    return {"responses": rows}


async def _mark(node: Node, topic: str) -> None:
    """Raises: KafkaError UNKNOWN_TOPIC_OR_PARTITION, also for a topic that brokers know nothing of (it never had a
    leader, or its deletion has started). A topic that is marked already is fine."""
    if not node.knows_topic(topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # what is known was listed by ZooKeeper, so it can be part of a path
    (exists,) = await node.zk.perform([Exists(znodes.TopicZNode.path(topic))])
    if not exists.ok:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic `{topic}` to delete does not exist")
    path = znodes.DeleteTopicsTopicZNode.path(topic)
    (marked,) = await node.zk.perform([Create(path)])
    check_written(path, marked.code, ZkCode.NODE_EXISTS)


def _is_gone(node: Node, topic: str) -> bool:
    state = node.state
    return topic not in state.topics or topic in state.topics_with_deletion_started
