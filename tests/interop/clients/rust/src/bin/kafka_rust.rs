//! The `kafka` crate, which stores offsets and knows no members of groups: what contract.py describes.

use std::time::{Duration, Instant};

use interop::{SHARE, Task, check, equal, key, text, told, value};
use kafka::client::{
    Compression, FetchOffset, GroupOffsetStorage, KafkaClient, ProduceMessage, RequiredAcks,
};
use kafka::consumer::Consumer;

const PATIENCE: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_millis(300);

fn client(task: &Task) -> KafkaClient {
    let mut client = KafkaClient::new(vec![task.bootstrap.clone()]);
    client.set_group_offset_storage(Some(GroupOffsetStorage::Kafka));
    client
}

/// A client that knows the leader of the topic, which its first request creates.
fn with_metadata(task: &Task) -> Result<KafkaClient, String> {
    let mut client = client(task);
    let begun = Instant::now();
    loop {
        client.load_metadata(&[&task.topic]).map_err(text)?;
        if client
            .topics()
            .partitions(&task.topic)
            .is_some_and(|found| found.available_ids() == [0])
        {
            return Ok(client);
        }
        if begun.elapsed() > PATIENCE {
            return Err("the topic has no leader".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn produce(task: &Task, codec: &str, from: usize) -> Result<(), String> {
    let mut client = with_metadata(task)?;
    client.set_compression(match codec {
        "gzip" => Compression::GZIP,
        "snappy" => Compression::SNAPPY,
        _ => Compression::NONE,
    });
    let records: Vec<_> = (from..from + SHARE)
        .map(|number| (key(number), value(number)))
        .collect();
    let messages = records
        .iter()
        .map(|(key, value)| ProduceMessage::new(&task.topic, 0, Some(key), value.as_deref()));
    let confirmed = client
        .produce_messages(RequiredAcks::All, PATIENCE, messages)
        .map_err(text)?;
    let offset = confirmed[0].partition_confirms[0]
        .offset
        .map_err(|code| format!("{code:?}"))?;
    equal(offset, from as i64)
}

fn take(task: &Task, group: &str, from: usize, to: usize) -> Result<(), String> {
    let mut consumer = Consumer::from_hosts(vec![task.bootstrap.clone()])
        .with_topic(task.topic.clone())
        .with_group(group.to_owned())
        .with_fallback_offset(FetchOffset::Earliest)
        .with_offset_storage(Some(GroupOffsetStorage::Kafka))
        .create()
        .map_err(text)?;
    let (begun, mut next, mut ended) = (Instant::now(), from, None);
    while ended.is_none_or(|at: Instant| at.elapsed() < QUIET) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{} of {} records came", next - from, to - from));
        }
        for messages in consumer.poll().map_err(text)?.iter() {
            for message in messages.messages() {
                // It cannot tell null values from empty ones.
                let found = (
                    message.key.to_vec(),
                    Some(message.value.to_vec()),
                    message.offset,
                );
                check(next, found, false)?;
                next += 1;
            }
            if !group.is_empty() {
                consumer.consume_messageset(messages).map_err(text)?;
            }
        }
        if next >= to && ended.is_none() {
            ended = Some(Instant::now());
        }
    }
    equal(next, to)?;
    if group.is_empty() {
        Ok(())
    } else {
        consumer.commit_consumed().map_err(text)
    }
}

fn offsets(task: &Task) -> Result<(), String> {
    let mut client = with_metadata(task)?;
    let mut at = |offset| -> Result<i64, String> {
        Ok(client
            .fetch_topic_offsets(&task.topic, offset)
            .map_err(text)?[0]
            .offset)
    };
    equal(
        (at(FetchOffset::Earliest)?, at(FetchOffset::Latest)?),
        (0, task.first() as i64),
    )
}

fn commit(task: &Task) -> Result<(), String> {
    let (mut client, group) = (with_metadata(task)?, format!("{}-alone", task.group));
    client
        .commit_offset(&group, &task.topic, 0, 42)
        .map_err(text)?;
    let held = client
        .fetch_group_topic_offset(&group, &task.topic)
        .map_err(text)?;
    equal(held.iter().map(|each| each.offset).collect(), vec![42])?;
    // A consumer reads from there, and commits what it has read.
    take(task, &group, 42, task.first())?;
    let held = client
        .fetch_group_topic_offset(&group, &task.topic)
        .map_err(text)?;
    let offsets: Vec<_> = held.iter().map(|each| each.offset).collect();
    equal(offsets, vec![task.first() as i64])
}

fn main() {
    let task = Task::new();
    for (at, codec) in task.codecs.iter().enumerate() {
        told(
            &format!("produce {codec}"),
            produce(&task, codec, at * SHARE),
        );
    }
    told("fetch", take(&task, "", 0, task.first()));
    told("offsets", offsets(&task));
    told("commit", commit(&task));
}
