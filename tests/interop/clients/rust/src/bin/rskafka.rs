//! rskafka, which has no groups: what contract.py describes.

use std::time::Duration;

use chrono::Utc;
use interop::{SHARE, Task, check, equal, key, text, told, value};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const PATIENCE: Duration = Duration::from_secs(30);
const WAIT_MS: i32 = 5_000;

async fn client(task: &Task) -> Result<Client, String> {
    ClientBuilder::new(vec![task.bootstrap.clone()])
        .build()
        .await
        .map_err(text)
}

async fn partition(task: &Task) -> Result<PartitionClient, String> {
    client(task)
        .await?
        .partition_client(&task.topic, 0, UnknownTopicHandling::Retry)
        .await
        .map_err(text)
}

async fn admin(task: &Task) -> Result<(), String> {
    let (client, made) = (client(task).await?, format!("{}-made", task.topic));
    let controller = client.controller_client().map_err(text)?;
    controller
        .create_topic(&made, 3, 1, WAIT_MS)
        .await
        .map_err(text)?;
    let listed = client.list_topics().await.map_err(text)?;
    equal(
        listed
            .iter()
            .find(|topic| topic.name == made)
            .map(|topic| topic.partitions.len()),
        Some(3),
    )?;
    controller.delete_topic(&made, WAIT_MS).await.map_err(text)
}

async fn produce(task: &Task, codec: &str, from: usize) -> Result<(), String> {
    let compression = match codec {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let record = |number| Record {
        key: Some(key(number)),
        value: value(number),
        headers: Default::default(),
        timestamp: Utc::now(),
    };
    let offsets = partition(task)
        .await?
        .produce((from..from + SHARE).map(record).collect(), compression)
        .await
        .map_err(text)?;
    equal(offsets, (from as i64..(from + SHARE) as i64).collect())
}

async fn fetch(task: &Task) -> Result<(), String> {
    let partition = partition(task).await?;
    let mut next = 0;
    while next < task.first() {
        let (records, _) = partition
            .fetch_records(next as i64, 1..1_000_000, 500)
            .await
            .map_err(text)?;
        for found in records {
            check(
                next,
                (
                    found.record.key.unwrap_or_default(),
                    found.record.value,
                    found.offset,
                ),
                true,
            )?;
            next += 1;
        }
    }
    equal(next, task.first())
}

async fn offsets(task: &Task) -> Result<(), String> {
    let partition = partition(task).await?;
    let first = partition
        .get_offset(OffsetAt::Earliest)
        .await
        .map_err(text)?;
    let last = partition.get_offset(OffsetAt::Latest).await.map_err(text)?;
    equal((first, last), (0, task.first() as i64))
}

/// Run a step, for a limited time: rskafka retries without an end.
async fn step(name: &str, run: impl Future<Output = Result<(), String>>) {
    told(
        name,
        tokio::time::timeout(PATIENCE, run)
            .await
            .unwrap_or_else(|_| Err("it takes too long".to_owned())),
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let task = Task::new();
    step("admin", admin(&task)).await;
    for (at, codec) in task.codecs.iter().enumerate() {
        step(
            &format!("produce {codec}"),
            produce(&task, codec, at * SHARE),
        )
        .await;
    }
    step("fetch", fetch(&task)).await;
    step("offsets", offsets(&task)).await;
}
