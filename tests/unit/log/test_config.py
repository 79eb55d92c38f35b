"""A topic's configs as its log needs them."""

from ottla.broker.config import broker_config
from ottla.log.config import LogConfig
from ottla.metadata.configs import topic_configs


def test_the_defaults_are_those_of_the_config_table() -> None:
    assert LogConfig.of(topic_configs({}, broker_config({}))) == LogConfig()


def test_a_topics_configs_arrive() -> None:
    configs = {
        "segment.bytes": "2097152",
        "cleanup.policy": "compact",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "5000",
    }
    config = LogConfig.of(topic_configs(configs, broker_config({})))
    assert (config.segment_bytes, config.cleanup_policy, config.max_message_bytes) == (2097152, ("compact",), 5000)
    rules = config.rules
    assert (rules.compacted, rules.log_append_time, rules.max_message_bytes) == (True, True, 5000)
    assert (rules.codec, rules.level) == (4, 7)
