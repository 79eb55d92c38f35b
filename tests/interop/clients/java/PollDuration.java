import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Java clients from 2.0 on: `poll(Duration)`, offsets by name and by time. */
public final class PollDuration {
    private final Contract task;
    private final TopicPartition partition;

    private PollDuration(Contract task) {
        this.task = task;
        this.partition = new TopicPartition(task.topic, 0);
    }

    public static void main(String[] arguments) {
        Contract task = new Contract(arguments);
        PollDuration program = new PollDuration(task);
        CreateAndDelete.step(task);
        ProducerOnly.produceSteps(task);
        Contract.step("fetch", program::fetch);
        Contract.step("offsets", program::offsets);
        Contract.step("commit", program::commit);
        Contract.step("group", () -> program.join(0, task.first()));
        Contract.step("resume", () -> {
            ProducerOnly.produce(task, "none", task.first());
            program.join(task.first(), task.first() + Contract.SHARE);
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", task.bootstrap);
        configs.put("group.id", group);
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        configs.put("key.deserializer", ByteArrayDeserializer.class.getName());
        configs.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(configs);
    }

    private void fetch() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-none")) {
            consumer.assign(List.of(partition));
            take(consumer, 0, task.first());
        }
    }

    private void offsets() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-none")) {
            Contract.equal(consumer.beginningOffsets(List.of(partition)).get(partition), 0L);
            Contract.equal(consumer.endOffsets(List.of(partition)).get(partition), (long) task.first());
            Contract.equal(consumer.offsetsForTimes(Collections.singletonMap(partition, 1L)).get(partition).offset(), 0L);
        }
    }

    private void commit() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-alone")) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(42, "by hand")));
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            Contract.equal(found.offset(), 42L);
            Contract.equal(found.metadata(), "by hand");
        }
    }

    private void join(int from, int to) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group)) {
            consumer.subscribe(List.of(task.topic));
            take(consumer, from, to);
            consumer.commitSync();
        }
    }

    private static void take(KafkaConsumer<byte[], byte[]> consumer, int from, int to) {
        int next = from;
        long deadline = System.currentTimeMillis() + 30000;
        while (next < to && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                Contract.equal(each.offset(), (long) next);
                Contract.same(next++, each.key(), each.value());
            }
        }
        Contract.equal(next, to);
        Contract.equal(consumer.poll(Duration.ofMillis(300)).count(), 0);
    }
}
